"""Derivatives of the solution: the projection onto the directions that all faces share.

The Jacobian of the marginals in the scores is ``P``, the orthogonal projection onto the
eigenvalue-1 space of ``S`` (Niculae & Martins 2020, Proposition 3). The paper takes powers of
``S``. Here ``P d = d - y`` for the y of least norm with ``(I - S) y = (I - S) d``. Conjugate
gradients find it in far fewer products, for each component at its own pace.

On a face the additionals follow the variables linearly: ``d nu = B^T C d mu`` with ``B`` the mixed
block of the local Jacobian. The same operator therefore carries gradients to and from them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lpsmap_core.engine.faces import (
    FaceWorkspace,
    draw_general_position,
    face_workspace_at,
    make_face_workspace,
    multiply,
    order_moving_first,
    reduce_residual,
)
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import ONE, problem_at
from lpsmap_core.engine.selection import (
    Selection,
    Variables,
    gather_direct,
    gather_from_links,
    multiply_jacobians,
    scatter_direct,
    scatter_to_links,
    select_blocks,
)
from lpsmap_core.engine.state import ONE_PASS_CHEAPER, PartState
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import Watch, interrupted, out_of_time
from lpsmap_jit.memory import Memory
from lpsmap_jit.threads import COUPLED_WORK, in_shares

NOISE = 3.0
"""The residual is rounding below this multiple of ``||J J y - J y||``, the distance of the local
Jacobians from projections. That distance grows with the number of structures in an active set."""


TOO_MANY = (
    "Nearly parallel faces are a cause; solving with a smaller tol may separate them, or raise "
    "backward_max_iter"
)

APPROXIMATE = "lpsmap: the gradients of some components are approximate, because "

CHEAPER = 16, 2 * COUPLED_WORK
"""How many times cheaper than a solve a product is, roughly, in direct and in coupled components.
"""


def multiply_jacobian(
    state: PartState, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
) -> tuple[FloatArray, FloatArray]:
    """Multiply the symmetric Jacobian of the solution with a vector; see `SolvedGraph.multiply`.

    It warns if a component needs more products with ``S`` than ``backward_max_iter``, or more time
    than the solve was given, or if its active set ran out of iterations.
    """
    product, product_v = d, np.empty(state.part.n_additionals)
    kinds = state.part.kinds
    workspace = make_face_workspace(state, product_v)
    if chosen is not None:
        kinds = kinds[0][chosen[kinds[0]]], kinds[1][chosen[kinds[1]]]
        product[~chosen[state.part.component]] = 0.0
        product_v[state.part.on_additionals(~chosen)] = 0.0
    options, n_unfinished = state.options, 0

    def run(share: IntArray) -> int:
        return sum(
            _multiply(state, selection, workspace, d_v, product, options)
            for selection in select_blocks(state, share)
        )

    with Watch(options.max_time):
        state.complete_faces()
        of_direct = max(CHEAPER[0], ONE_PASS_CHEAPER if state.one_pass else 1)
        for components, cheaper in zip(kinds, (of_direct, CHEAPER[1]), strict=True):
            used, sizes = 1 if state.vectorised else threads, state.part.sizes[components]
            n_unfinished += sum(in_shares(run, components, sizes, used, cheaper))
        late = out_of_time()
    if late:
        limit = f"{options.max_time:g} seconds; raise max_time to continue"
        _warn(f"the backward pass stopped after {limit}.")
    elif n_unfinished:
        _warn(f"the backward pass stopped after {options.backward_max_iter} products. {TOO_MANY}.")
    limited = state.at_inner_limit()
    if limited[slice(None) if chosen is None else chosen].any():
        _warn("an active set ran out of iterations, and has found only a part of its face.")
    return product, product_v


def _warn(reason: str) -> None:
    warnings.warn(APPROXIMATE + reason, RuntimeWarning, stacklevel=stacklevel())


def _multiply(
    state: PartState,
    selection: Selection,
    workspace: Memory[FaceWorkspace],
    d_v: FloatArray,
    product: FloatArray,
    options: Options,
) -> int:
    """Overwrite a selection's part of `product`; return the number of failed components."""
    (components, variables, _), handle, work = selection, workspace.handle, workspace.record
    late = interrupted()
    if state.part.direct[components[0]]:
        # the Jacobian of a single factor is exact: iterations would only add rounding
        scatter_direct(components, handle, product, 0.0, work.inputs)
        multiply(state, selection, work, d_v)
        gather_direct(components, handle, work.outputs, 0.0, product)
        return 0
    if late:
        product[variables.view(np.int64)] = 0.0
        work.running[components] = True
    else:
        _project(state, selection, workspace, d_v, product, options)
    if len(work.outputs_v):
        scatter_to_links(variables, handle, product, work.inputs)
        multiply(state, selection, work)
    return int(np.count_nonzero(work.running[components]))


def _project(
    state: PartState,
    selection: Selection,
    workspace: Memory[FaceWorkspace],
    d_v: FloatArray,
    product: FloatArray,
    options: Options,
) -> None:
    """Project onto the directions that all faces share; ``work.running`` marks failures."""
    (components, variables, _), handle, work = selection, workspace.handle, workspace.record
    numbers = variables.view(np.int64)
    if len(d_v):
        _clear(variables, handle, work.inputs)
        multiply(state, selection, work, d_v)
        gather_from_links(variables, handle, work.outputs, work.image)
        product[numbers] += work.image[numbers]
    draw_general_position(variables, handle, work.inputs)
    multiply(state, selection, work)
    moving = order_moving_first(state, selection, work.outputs, work)
    scatter_to_links(variables, handle, product, work.inputs)
    multiply(state, selection, work)
    gather_from_links(variables, handle, work.outputs, work.residual)
    work.residual[numbers] = product[numbers] - work.residual[numbers]  # (I - S) d
    # ||J J y - J y|| is zero for exact projections J
    multiply_jacobians(state, selection, work.outputs, work.no_v, work.inputs, work.outputs_v)
    _set_targets(components, variables, handle, product, options.backward_tol)
    most = options.backward_max_iter
    reduce_residual(state, selection, *moving, work, handle, product, most)


@leaf
def _clear(variables: Variables, problem: Any, out: FloatArray) -> None:
    """Write zeros on the links of some variables."""
    links = problem_at(problem).links
    for v in variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            out[links.order[e]] = 0.0


@leaf
def _set_targets(
    components: IntArray, variables: Variables, handle: Any, product: FloatArray, tolerance: float
) -> None:
    """Write the squared target residuals, given ``J y`` as outputs and ``J J y`` as inputs."""
    links, work = problem_at(handle).links, face_workspace_at(handle)
    for c in components:
        work.target[c] = work.size[c] = 0.0
    for v in variables:
        c = links.component[v]
        work.target[c] += (tolerance * product[v]) ** 2
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            change = work.outputs[links.order[e]] - work.inputs[links.order[e]]
            work.size[c] += (NOISE * change) ** 2
    for c in components:
        work.target[c] = max(work.target[c], work.size[c])
