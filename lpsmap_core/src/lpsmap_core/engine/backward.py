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
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.faces import (
    FaceWorkspace,
    apply_operator,
    draw_general_position,
    face_workspace_at,
    make_face_workspace,
    order_moving_first,
    reduce_residual,
)
from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_core.engine.selection import (
    POLL_PERIOD,
    Selection,
    batch_length,
    gather_direct,
    gather_from_links,
    keep_chosen,
    multiply_locally,
    scatter_direct,
    scatter_to_links,
    select_components,
)
from lpsmap_core.engine.state import ONE_PASS_CHEAPER, PartState
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import Watch, interrupted, out_of_time, stopped
from lpsmap_jit.lazy_kernels import raise_late
from lpsmap_jit.native import borrowed
from lpsmap_jit.threads import in_shares

__all__ = ["multiply_jacobian"]

NOISE = 3.0
"""The residual is rounding below this multiple of ``||J J y - J y||``, the distance of the local
Jacobians from projections. That distance grows with the number of structures in an active set."""


class BackwardLimits(NamedTuple):
    """Limits of the products with ``S`` for a component."""

    tolerance: float
    """Tolerance of the residual relative to ``||d||``."""
    n_products: int


TOO_MANY = (
    "Nearly parallel faces are a cause; solving with a smaller tol may separate them, or raise "
    "backward_max_iter"
)

APPROXIMATE = "lpsmap: the gradients of some components are approximate, because "

CHEAPER = 16, 2
"""How many times cheaper than a solve a product is, roughly, in direct and in coupled components.
"""


def multiply_jacobian(
    state: PartState, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
) -> tuple[FloatArray, FloatArray]:
    """Multiply the symmetric Jacobian of the solution with a vector.

    Parameters
    ----------
    state
        The solved part.
    d
        One number per variable of the part; overwritten.
    d_v
        One number per additional of all its buckets; empty for zeros.
    chosen
        Components to treat, None for all. The results of other components are zero.
    threads
        Number of threads that may be used.

    Returns
    -------
    out, out_v
        The product's entries for the variables and for the additionals.

    Warns
    -----
    RuntimeWarning
        If a component needs more products with ``S`` than ``backward_max_iter``, or more time than
        the solve was given, or if its active set ran out of iterations.
    """
    product, product_v = d, np.empty(state.part.n_additionals)
    work, kinds = make_face_workspace(state.part, product_v), state.part.kinds
    if chosen is not None:
        kinds = kinds[0][chosen[kinds[0]]], kinds[1][chosen[kinds[1]]]
        product[~chosen[state.part.component]] = 0.0
        product_v[~chosen[state.part.additional_component]] = 0.0
    batched = state.batched
    handles, n_unfinished = (state.solver_table, state.handle, work.handle), 0
    limits = BackwardLimits(state.options.backward_tol, state.options.backward_max_iter)

    def run(share: IntArray) -> int:
        n = int(_run(share, batched, *handles, d_v, product, limits))
        raise_late()
        return n

    with Watch(state.options.max_time):
        state.complete_faces()
        of_direct = max(CHEAPER[0], ONE_PASS_CHEAPER if state.one_pass else 1)
        for components, cheaper in zip(kinds, (of_direct, CHEAPER[1]), strict=True):
            used, sizes = 1 if batched else threads, state.part.sizes[components]
            n_unfinished += sum(in_shares(run, components, sizes, used, cheaper))
        late = out_of_time()
    state.raise_errors()
    if late:
        limit = f"{state.options.max_time:g} seconds; raise max_time to continue"
        _warn(f"the backward pass stopped after {limit}.")
    elif n_unfinished:
        _warn(f"the backward pass stopped after {limits.n_products} products. {TOO_MANY}.")
    unsolved = state.unsolved()
    if unsolved[slice(None) if chosen is None else chosen].any():
        _warn("an active set ran out of iterations, and has found only a part of its face.")
    return product, product_v


def _warn(reason: str) -> None:
    """Warn that gradients are approximate for some reason."""
    warnings.warn(APPROXIMATE + reason, RuntimeWarning, stacklevel=stacklevel())


@leaf
def _run(
    components: IntArray,
    batched: bool,
    solver_table: Any,
    problem_handle: Any,
    work_handle: Any,
    d_v: FloatArray,
    product: FloatArray,
    limits: BackwardLimits,
) -> int:
    """Multiply for some components, one after the other or batched.

    The caller holds the records of the handles. Returns the number of failed components.
    """
    failed: int = _run_records(
        components,
        batched,
        borrowed(solver_table),
        problem_at(problem_handle),
        face_workspace_at(work_handle),
        borrowed(d_v),
        borrowed(product),
        limits,
    )
    return failed


@kernel
def _run_records(
    components: IntArray,
    batched: bool,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    d_v: FloatArray,
    product: FloatArray,
    limits: BackwardLimits,
) -> int:
    """Multiply like `_run`, with records passed by address."""
    links, spans = problem.links, problem.spans
    if batched:
        chosen = np.zeros(len(problem.progress.step_size), dtype=np.bool_)
        for c in components:
            chosen[c] = True
        everything = select_components(spans, 0, len(chosen))
        selection = keep_chosen(everything, links, spans, chosen)
        return _multiply(selection, solver_table, problem, work, d_v, product, limits)
    n_unfinished, n_variables, i = 0, 0, 0
    while i < len(components):
        first = components[i]
        last = first + batch_length(components, i, problem)
        i += last - first
        n_variables += spans.first_variable[last] - spans.first_variable[first]
        if n_variables > POLL_PERIOD:
            n_variables = 0
            interrupted()  # if so, each remaining component takes one product
        selection = select_components(spans, first, last)
        n_unfinished += _multiply(selection, solver_table, problem, work, d_v, product, limits)
    return n_unfinished


@leaf
def _multiply(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    d_v: FloatArray,
    product: FloatArray,
    limits: BackwardLimits,
) -> int:
    """Overwrite a selection's part of `product`; return the number of failed components."""
    links, spans = problem.links, problem.spans
    if problem.direct[selection.components[0]]:
        # the Jacobian of a single factor is exact: iterations would only add rounding
        inputs_v = d_v if len(d_v) > 0 else work.no_v
        scatter_direct(selection, problem, product, 0.0, work.inputs)
        multiply_locally(
            selection, solver_table, spans, work.inputs, inputs_v, work.outputs, work.outputs_v
        )
        gather_direct(selection, problem, work.outputs, 0.0, product)
        return 0
    if stopped():
        for v in selection.variables:
            product[v] = 0.0
        for c in selection.components:
            work.running[c] = True
    else:
        _project(selection, solver_table, problem, work, d_v, product, limits)
    if len(work.outputs_v) > 0:
        scatter_to_links(selection, links, product, work.inputs)
        multiply_locally(
            selection, solver_table, spans, work.inputs, work.no_v, work.outputs, work.outputs_v
        )
    n_unfinished = 0
    for c in selection.components:
        n_unfinished += work.running[c]
    return n_unfinished


@leaf
def _project(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    d_v: FloatArray,
    product: FloatArray,
    limits: BackwardLimits,
) -> None:
    """Project onto the directions that all faces share; ``work.running`` marks failures."""
    links, spans = problem.links, problem.spans
    if len(d_v) > 0:
        for v in selection.variables:
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                work.inputs[links.order[e]] = 0.0
        multiply_locally(
            selection, solver_table, spans, work.inputs, d_v, work.outputs, work.outputs_v
        )
        gather_from_links(selection, links, work.outputs, work.image)
        for v in selection.variables:
            product[v] += work.image[v]
    draw_general_position(selection, problem, work.inputs)
    multiply_locally(
        selection, solver_table, spans, work.inputs, work.no_v, work.outputs, work.outputs_v
    )
    n_moving = order_moving_first(selection, links, work.outputs, work)
    apply_operator(selection, solver_table, problem, work, product, work.residual)
    _set_targets(selection, solver_table, problem, work, product, limits.tolerance)
    reduce_residual(selection, n_moving, solver_table, problem, work, product, limits.n_products)


@leaf
def _set_targets(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    product: FloatArray,
    tolerance: float,
) -> None:
    """Write the squared target residuals, after a product with the operator.

    ``||J J y - J y||`` is zero for exact projections J.
    """
    links, spans, component = problem.links, problem.spans, problem.links.component
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            work.inputs[links.order[e]] = work.outputs[links.order[e]]
    multiply_locally(
        selection, solver_table, spans, work.inputs, work.no_v, work.outputs, work.outputs_v
    )
    for c in selection.components:
        work.target[c] = work.size[c] = 0.0
    for v in selection.variables:
        work.target[component[v]] += (tolerance * product[v]) ** 2
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            change = work.outputs[links.order[e]] - work.inputs[links.order[e]]
            work.size[component[v]] += (NOISE * change) ** 2
    for c in selection.components:
        work.target[c] = max(work.target[c], work.size[c])
