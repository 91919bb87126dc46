"""Selections of components: their numbers, their variables and their factors by bucket."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.problem import ONE, LoopProblem
from lpsmap_core.layout.arrangement import Links, Spans
from lpsmap_core.local.solvers import mark_unsolved, multiply_rows, solve_rows
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf

__all__ = [
    "POLL_PERIOD",
    "Selection",
    "adopt_local_solutions",
    "batch_length",
    "gather_direct",
    "gather_from_links",
    "keep_chosen",
    "multiply_locally",
    "scatter_direct",
    "scatter_to_links",
    "select_components",
    "solve_locally",
    "subtract_gathered",
]


MOST_BATCHED = 1_000
"""Limit of the variables in a batch of direct components, so that their data stay in the cache."""

POLL_PERIOD = 1_000
"""Variables of small components between two polls for interrupts and deadlines."""


class Selection(NamedTuple):
    """Some components; their factors of bucket b are ``rows[first[b]:last[b]]``."""

    components: IntArray
    variables: npt.NDArray[np.uint64]
    rows: IntArray
    first: IntArray
    last: IntArray


@leaf
def batch_length(components: IntArray, i: int, problem: LoopProblem) -> int:
    """Return the number of components in the batch that starts with the i-th of `components`.

    A direct component is batched with its small direct neighbours, because the overhead of a
    component exceeds the time of a small factor. Every other component is a batch of its own.
    """
    first_variable, iterations = problem.spans.first_variable, problem.progress.iterations
    first, n = components[i], 1
    while (
        i + n < len(components)
        and components[i + n] == first + n
        and problem.direct[first]
        and problem.direct[first + n]
        and iterations[first + n] == iterations[first]
        and first_variable[first + n + 1] - first_variable[first] <= MOST_BATCHED
    ):
        n += 1
    return n


@kernel
def select_components(spans: Spans, begin: int, end: int) -> Selection:
    """Return the selection of the components ``begin`` to ``end - 1``."""
    numbers = spans.counting
    return Selection(
        numbers[begin:end],
        spans.variable_counting[spans.first_variable[begin] : spans.first_variable[end]],
        numbers,
        spans.first_row[begin],
        spans.first_row[end],
    )


@kernel
def keep_chosen(selection: Selection, links: Links, spans: Spans, chosen: BoolArray) -> Selection:
    """Return the chosen components of a selection."""
    n = 0
    for c in selection.components:
        n += chosen[c]
    if n == len(selection.components):
        return selection
    components, variables = np.empty_like(selection.components), np.empty_like(selection.variables)
    n = 0
    for c in selection.components:
        if chosen[c]:
            components[n] = c
            n += 1
    components, n = components[:n], 0
    for v in selection.variables:
        if chosen[links.component[v]]:
            variables[n] = v
            n += 1
    variables = variables[:n]
    n_buckets = len(selection.first)
    first, last = np.empty(n_buckets, dtype=np.int64), np.empty(n_buckets, dtype=np.int64)
    n = 0
    for b in range(n_buckets):
        n += selection.last[b] - selection.first[b]
    rows, n = np.empty(n, dtype=np.int64), 0
    for b in range(n_buckets):
        first[b] = n
        for row in selection.rows[selection.first[b] : selection.last[b]]:
            if chosen[spans.component[spans.first_factor[b] + row]]:
                rows[n] = row
                n += 1
        last[b] = n
    return Selection(components, variables, rows, first, last)


@leaf
def solve_locally(
    selection: Selection, solver_table: Any, problem: LoopProblem, max_iterations: int
) -> bool:
    """Solve the local problems at the current local scores; false if Python code raised.

    Marks the components with a factor that ran out of iterations.
    """
    spans, iterate, extras = problem.spans, problem.iterate, problem.extras
    unsolved = problem.progress.unsolved
    for c in selection.components:
        unsolved[c] = False
    for b in range(len(selection.first)):
        rows = selection.rows[selection.first[b] : selection.last[b]]
        if len(rows) == 0:
            continue
        lo, hi = spans.first_link[b], spans.first_link[b + 1]
        first, last = spans.first_additional[b], spans.first_additional[b + 1]
        if not solve_rows(
            solver_table,
            b,
            rows,
            iterate.a[lo:hi],
            extras.scaled[first:last],
            iterate.z[lo:hi],
            extras.v[first:last],
            max_iterations,
        ):
            return False
        owners = spans.component[spans.first_factor[b] : spans.first_factor[b + 1]]
        mark_unsolved(solver_table, b, rows, owners, unsolved)
    return True


@leaf
def multiply_locally(
    selection: Selection,
    solver_table: Any,
    spans: Spans,
    inputs: FloatArray,
    inputs_v: FloatArray,
    outputs: FloatArray,
    outputs_v: FloatArray,
) -> None:
    """Write the products of the local Jacobians with numbers on links and additionals."""
    for b in range(len(selection.first)):
        rows = selection.rows[selection.first[b] : selection.last[b]]
        if len(rows) > 0:
            lo, hi = spans.first_link[b], spans.first_link[b + 1]
            first, last = spans.first_additional[b], spans.first_additional[b + 1]
            multiply_rows(
                solver_table,
                b,
                rows,
                inputs[lo:hi],
                inputs_v[first:last],
                outputs[lo:hi],
                outputs_v[first:last],
            )


@leaf
def scatter_to_links(selection: Selection, links: Links, x: FloatArray, out: FloatArray) -> None:
    """Write ``C x``, the scaled, signed copies of x on the links."""
    offsets, order = links.offsets, links.order
    root_degree, negated = links.root_degree, links.negated
    for v in selection.variables:
        copy = x[v] / root_degree[v]
        for e in range(offsets[v], offsets[v + ONE]):
            out[order[e]] = -copy if negated[e] else copy


@leaf
def gather_from_links(
    selection: Selection, links: Links, values: FloatArray, out: FloatArray
) -> None:
    """Write ``C^T values``, the transpose of `scatter_to_links`."""
    offsets, order = links.offsets, links.order
    root_degree, negated = links.root_degree, links.negated
    for v in selection.variables:
        total = 0.0
        for e in range(offsets[v], offsets[v + ONE]):
            value = values[order[e]]
            total += -value if negated[e] else value
        out[v] = total / root_degree[v]


@leaf
def scatter_direct(
    selection: Selection, problem: LoopProblem, x: FloatArray, one: float, out: FloatArray
) -> None:
    """Write the copies of x on the links of direct components; ``one - x`` for negated slots.

    There each variable has one copy, on the same scale. For a `one` of 0 this is
    `scatter_to_links`.
    """
    links, begin = problem.links, problem.spans.first_variable
    order, negated = links.order, links.negated
    for c in selection.components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            e = v + ahead
            out[order[e]] = one - x[v] if negated[e] else x[v]


@leaf
def gather_direct(
    selection: Selection, problem: LoopProblem, values: FloatArray, one: float, out: FloatArray
) -> None:
    """Write values on the links of direct components to their variables.

    This is the inverse of `scatter_direct`.
    """
    links, begin = problem.links, problem.spans.first_variable
    order, negated = links.order, links.negated
    for c in selection.components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            value = values[order[v + ahead]]
            out[v] = one - value if negated[v + ahead] else value


@leaf
def adopt_local_solutions(selection: Selection, problem: LoopProblem) -> None:
    """Set the means of direct components to their local solutions."""
    iterate, progress, begin = problem.iterate, problem.progress, problem.spans.first_variable
    gather_direct(selection, problem, iterate.z, 1.0, iterate.u)
    n_decided = 0
    for c in selection.components:
        first, last = begin[c], begin[c + 1]
        progress.primal_residual[c] = 0.0 if _are_finite(iterate.u[first:last]) else np.inf
        progress.dual_residual[c] = 0.0
        n_decided += not _are_finite(iterate.score[first:last])
    if n_decided > 0:  # the solver may have replaced infinite local scores
        scatter_direct(selection, problem, iterate.score, 1.0, iterate.a)


@leaf
def _are_finite(numbers: FloatArray) -> bool:
    """Return whether all numbers are finite."""
    wrong = 0
    for x in numbers:
        wrong += not abs(x) < np.inf
    return wrong == 0


@leaf
def subtract_gathered(
    selection: Selection, links: Links, values: FloatArray, x: FloatArray, out: FloatArray
) -> None:
    """Write ``x - C^T values``."""
    offsets, order = links.offsets, links.order
    root_degree, negated = links.root_degree, links.negated
    for v in selection.variables:
        total = 0.0
        for e in range(offsets[v], offsets[v + ONE]):
            value = values[order[e]]
            total += -value if negated[e] else value
        out[v] = x[v] - total / root_degree[v]
