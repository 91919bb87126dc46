"""Selections of components, and what all steps of the loop do with them.

A selection holds components that are iterated side by side: their numbers, their variables and
their factors by bucket. Local solvers are called once for each bucket. The kernels below move
numbers between the variables and the links.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.problem import ONE, problem_at
from lpsmap_core.engine.state import PartState
from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import flags
from lpsmap_core.local.local_solver import RUNNING
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.threads import BLOCK_LINKS

Variables = npt.NDArray[np.uint64]


class Selection(NamedTuple):
    """Some components, their variables, and their factors in each bucket."""

    components: IntArray
    variables: Variables
    rows: tuple[IntArray, ...]


def select_blocks(state: PartState, components: IntArray) -> Iterator[Selection]:
    """Yield selections that together hold some components, in order.

    Python and array code are much faster on many factors at once, so that they get all of them.
    """
    if state.vectorised or not len(components):
        bounds = [0, len(components)]
    else:
        ends = state.part.sizes[components].cumsum()
        n_blocks = -(-int(ends[-1]) // BLOCK_LINKS)
        cuts = ends.searchsorted(np.arange(1, n_blocks) * BLOCK_LINKS, side="right")
        bounds = sorted({0, *cuts.tolist(), len(components)})
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        if begin < end:
            yield _select(state.part, components[begin:end])


def _select(part: Part, components: IntArray) -> Selection:
    """Return the selection of some components, which are in order."""
    first, last, spans = int(components[0]), int(components[-1]) + 1, part.spans
    counting = part.links.counting
    begin, end = spans.first_variable[first], spans.first_variable[last]
    rows = zip(spans.first_row[first].tolist(), spans.first_row[last].tolist(), strict=True)
    selection = Selection(
        counting[first:last],
        part.links.variable_counting[begin:end],
        tuple(counting[lo:hi] for lo, hi in rows),
    )
    if len(components) == last - first:
        return selection
    return keep_chosen(selection, part, flags(components, part.n_components))


def keep_chosen(selection: Selection, part: Part, chosen: BoolArray) -> Selection:
    """Return the chosen components of a selection."""
    kept = chosen[selection.components]
    if kept.all():
        return selection
    variables, rows = selection.variables, selection.rows
    buckets = zip(part.buckets, rows, strict=True)
    return Selection(
        selection.components[kept],
        variables[chosen[part.component[variables.view(np.int64)]]],
        tuple(some[chosen[bucket.component[some]]] for bucket, some in buckets),
    )


def solve_locally(state: PartState, selection: Selection, max_iterations: int) -> None:
    """Solve the local problems at the current local scores.

    Marks the components with a factor that ran out of iterations.
    """
    at_limit = state.problem.progress.at_inner_limit
    at_limit[selection.components] = False
    for view, rows in zip(state.views, selection.rows, strict=True):
        if len(rows):
            view.solver.solve(rows, view.a, view.eta_v, view.z, view.v, max_iterations)
            if view.solver.iterates:
                at_limit[view.bucket.component[rows[view.solver.status[rows] == RUNNING]]] = True


def multiply_jacobians(
    state: PartState,
    selection: Selection,
    inputs: FloatArray,
    inputs_v: FloatArray,
    outputs: FloatArray,
    outputs_v: FloatArray,
) -> None:
    """Write the products of the factors' Jacobians with numbers on links and additionals."""
    for view, rows in zip(state.views, selection.rows, strict=True):
        if len(rows):
            links, extra = view.links, view.additionals
            arrays = inputs[links], inputs_v[extra], outputs[links], outputs_v[extra]
            view.solver.jvp(rows, *arrays)


# -------------------------------------------------------------------- kernels


@leaf
def scatter_to_links(variables: Variables, problem: Any, x: FloatArray, out: FloatArray) -> None:
    """Write ``C x``, the scaled, signed copies of x on the links."""
    links = problem_at(problem).links
    offsets, order, negated = links.offsets, links.order, links.negated
    for v in variables:
        copy = x[v] / links.root_degree[v]
        for e in range(offsets[v], offsets[v + ONE]):
            out[order[e]] = -copy if negated[e] else copy


@leaf
def gather_from_links(
    variables: Variables, problem: Any, values: FloatArray, out: FloatArray
) -> None:
    """Write ``C^T values``, the transpose of `scatter_to_links`."""
    links = problem_at(problem).links
    offsets, order, negated = links.offsets, links.order, links.negated
    for v in variables:
        total = 0.0
        for e in range(offsets[v], offsets[v + ONE]):
            value = values[order[e]]
            total += -value if negated[e] else value
        out[v] = total / links.root_degree[v]


@leaf
def scatter_direct(
    components: IntArray, problem: Any, x: FloatArray, one: float, out: FloatArray
) -> None:
    """Write the copies of x on the links of direct components; ``one - x`` for negated slots.

    There each variable has one copy, on the same scale. For a `one` of 0 this is
    `scatter_to_links`.
    """
    record = problem_at(problem)
    links, begin = record.links, record.spans.first_variable
    order, negated = links.order, links.negated
    for c in components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            e = v + ahead
            out[order[e]] = one - x[v] if negated[e] else x[v]


@leaf
def gather_direct(
    components: IntArray, problem: Any, values: FloatArray, one: float, out: FloatArray
) -> None:
    """Write values on the links of direct components to their variables.

    This is the inverse of `scatter_direct`.
    """
    record = problem_at(problem)
    links, begin = record.links, record.spans.first_variable
    order, negated = links.order, links.negated
    for c in components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            value = values[order[v + ahead]]
            out[v] = one - value if negated[v + ahead] else value


@leaf
def adopt_local_solutions(components: IntArray, problem: Any) -> None:
    """Set the means of direct components to their local solutions."""
    record = problem_at(problem)
    iterate, progress, begin = record.iterate, record.progress, record.spans.first_variable
    gather_direct(components, problem, iterate.z, 1.0, iterate.u)
    n_decided = 0
    for c in components:
        first, last = begin[c], begin[c + 1]
        progress.primal_residual[c] = 0.0 if _are_finite(iterate.u[first:last]) else np.inf
        progress.dual_residual[c] = 0.0
        n_decided += not _are_finite(iterate.score[first:last])
    if n_decided > 0:  # the solver may have replaced infinite local scores
        scatter_direct(components, problem, iterate.score, 1.0, iterate.a)


@leaf
def _are_finite(numbers: FloatArray) -> bool:
    wrong = 0
    for x in numbers:
        wrong += not abs(x) < np.inf
    return wrong == 0
