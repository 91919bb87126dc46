"""Derivatives of the solution: the projection onto the directions that all faces share.

The Jacobian of the marginals in the scores is ``P``, the orthogonal projection onto the
eigenvalue-1 space of ``S`` (Niculae & Martins 2020, Proposition 3). The paper takes powers of
``S``; here ``P d = d - y`` for the y of least norm with ``(I - S) y = (I - S) d``, found by
conjugate gradients in far fewer products, every component at its own pace.

On a face the additionals follow the variables linearly, ``d nu = B^T C d mu`` with ``B`` the mixed
block of the local Jacobian, so that the same operator carries gradients from and to them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lpsmap_core.engine.faces import (
    Work,
    apply_operator,
    draw_general_position,
    make_work,
    order_moving_first,
    reduce_residual,
    work_at,
)
from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_core.engine.selection import (
    Selection,
    copy_alone,
    copy_back_alone,
    count_together,
    gather_from_links,
    keep_chosen,
    multiply_locally,
    scatter_to_links,
    select_components,
)
from lpsmap_core.engine.state import PartState
from lpsmap_core.engine.threads import in_shares
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import Watch, interrupted, out_of_time, stopped
from lpsmap_jit.lazy_kernels import raise_late
from lpsmap_jit.native import borrowed

__all__ = ["multiply_jacobian"]

TOLERANCE = 1e-13
"""``P d`` is found when the residual is this small, relative to ``||d||``."""

NOISE = 3.0
"""The residual is rounding below this multiple of what the local Jacobians lack of projections: the
more structures in an active set, the more.
"""

MAX_PRODUCTS = 2000

LOOK_PERIOD = 1_000
"""Variables of small components between two looks at whether to go on."""

CHEAPER = 16, 2
"""By about so much a product takes less than a solve: in direct components, and in coupled ones."""


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
        One number per additional of all its buckets; or none at all, for zeros.
    chosen
        Components to treat, the results of others are zero; None for all.
    threads
        Number of threads that may be used.

    Returns
    -------
    out, out_v
        The product's entries for the variables and for the additionals.

    Warns
    -----
    RuntimeWarning
        If a component needs more than `MAX_PRODUCTS` products with ``S``, or more seconds than the
        solve was given.
    """
    if not state.faces_complete:
        with Watch():
            state.complete_faces()
    product, product_v = d, np.empty(state.part.n_additionals)
    work, kinds = make_work(state.part, product_v), state.part.kinds
    if chosen is not None:
        kinds = kinds[0][chosen[kinds[0]]], kinds[1][chosen[kinds[1]]]
        product[~chosen[state.part.component]] = 0.0
        product_v[~chosen[state.part.additional_component]] = 0.0
    together = state.together
    handles, n_unfinished = (state.solver_table, state.handle, work.handle), 0

    def run(share: IntArray) -> int:
        n = int(_run(share, together, *handles, d_v, product))
        raise_late()
        return n

    with Watch(state.max_time):
        for components, cheaper in zip(kinds, CHEAPER, strict=True):
            sizes = state.part.sizes[components] // cheaper
            n_unfinished += sum(in_shares(run, components, sizes, 1 if together else threads))
        late = out_of_time()
    state.raise_errors()
    if n_unfinished:
        why = (
            f"{state.max_time:g} seconds; raise max_time to go on"
            if late
            else f"{MAX_PRODUCTS} products. Nearly parallel faces do this; solving with a smaller "
            "tol may separate them"
        )
        warnings.warn(
            "lpsmap: the gradients of some components are approximate, since the backward pass "
            f"stopped after {why}.",
            RuntimeWarning,
            stacklevel=stacklevel(),
        )
    return product, product_v


@leaf
def _run(
    components: IntArray,
    together: bool,
    solver_table: Any,
    problem_handle: Any,
    work_handle: Any,
    d_v: FloatArray,
    product: FloatArray,
) -> int:
    """Multiply for some components, one after the other or all together.

    The caller holds the records of the handles. Returns how many failed.
    """
    failed: int = _run_records(
        components,
        together,
        borrowed(solver_table),
        problem_at(problem_handle),
        work_at(work_handle),
        borrowed(d_v),
        borrowed(product),
    )
    return failed


@kernel
def _run_records(
    components: IntArray,
    together: bool,
    solver_table: Any,
    problem: LoopProblem,
    work: Work,
    d_v: FloatArray,
    product: FloatArray,
) -> int:
    """Multiply, as `_run` does, with records by their addresses."""
    links, blocks = problem.links, problem.blocks
    if together:
        chosen = np.zeros(len(problem.progress.step_size), dtype=np.bool_)
        for c in components:
            chosen[c] = True
        everything = select_components(blocks, 0, len(chosen))
        selection = keep_chosen(everything, links, blocks, chosen)
        return _multiply(selection, solver_table, problem, work, d_v, product)
    n_unfinished, n_variables, i = 0, 0, 0
    while i < len(components):
        first = components[i]
        last = first + count_together(components, i, problem)
        i += last - first
        n_variables += blocks.first_variable[last] - blocks.first_variable[first]
        if n_variables > LOOK_PERIOD:
            n_variables = 0
            interrupted()  # then what is left takes one product each
        selection = select_components(blocks, first, last)
        n_unfinished += _multiply(selection, solver_table, problem, work, d_v, product)
    return n_unfinished


@leaf
def _multiply(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    work: Work,
    d_v: FloatArray,
    product: FloatArray,
) -> int:
    """Overwrite a selection's part of `product`; return how many components failed."""
    links, blocks = problem.links, problem.blocks
    if problem.direct[selection.components[0]]:
        # alone, a factor's Jacobian is the answer: what iterations would see is only rounding
        inputs_v = d_v if len(d_v) > 0 else work.no_v
        copy_alone(selection, problem, product, 0.0, work.inputs)
        multiply_locally(
            selection, solver_table, blocks, work.inputs, inputs_v, work.outputs, work.outputs_v
        )
        copy_back_alone(selection, problem, work.outputs, 0.0, product)
        return 0
    if stopped():
        for v in selection.variables:
            product[v] = 0.0
        for c in selection.components:
            work.running[c] = True
    else:
        _project(selection, solver_table, problem, work, d_v, product)
    if len(work.outputs_v) > 0:
        scatter_to_links(selection, links, product, work.inputs)
        multiply_locally(
            selection, solver_table, blocks, work.inputs, work.no_v, work.outputs, work.outputs_v
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
    work: Work,
    d_v: FloatArray,
    product: FloatArray,
) -> None:
    """Project on the directions that all faces share; ``work.running`` marks what failed."""
    links, blocks = problem.links, problem.blocks
    if len(d_v) > 0:
        for v in selection.variables:
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                work.inputs[links.order[e]] = 0.0
        multiply_locally(
            selection, solver_table, blocks, work.inputs, d_v, work.outputs, work.outputs_v
        )
        gather_from_links(selection, links, work.outputs, work.image)
        for v in selection.variables:
            product[v] += work.image[v]
    draw_general_position(selection, problem, work.inputs)
    multiply_locally(
        selection, solver_table, blocks, work.inputs, work.no_v, work.outputs, work.outputs_v
    )
    n_moving = order_moving_first(selection, links, work.outputs, work)
    apply_operator(selection, solver_table, problem, work, product, work.residual)
    _set_targets(selection, solver_table, problem, work, product)
    reduce_residual(selection, n_moving, solver_table, problem, work, product, MAX_PRODUCTS)


@leaf
def _set_targets(
    selection: Selection, solver_table: Any, problem: LoopProblem, work: Work, product: FloatArray
) -> None:
    """Write the squared residuals to reach, after a product with the operator.

    ``||J J y - J y||`` is zero for projections J up to their rounding.
    """
    links, blocks, component = problem.links, problem.blocks, problem.links.component
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            work.inputs[links.order[e]] = work.outputs[links.order[e]]
    multiply_locally(
        selection, solver_table, blocks, work.inputs, work.no_v, work.outputs, work.outputs_v
    )
    for c in selection.components:
        work.target[c] = work.size[c] = 0.0
    for v in selection.variables:
        work.target[component[v]] += (TOLERANCE * product[v]) ** 2
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            change = work.outputs[links.order[e]] - work.inputs[links.order[e]]
            work.size[component[v]] += (NOISE * change) ** 2
    for c in selection.components:
        work.target[c] = max(work.target[c], work.size[c])
