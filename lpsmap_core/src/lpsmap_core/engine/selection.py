"""Some components: their numbers, their variables, their factors of every bucket."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.problem import ONE, LoopProblem
from lpsmap_core.layout.arrangement import Blocks, Links
from lpsmap_core.local.solvers import mark_unsolved, multiply_rows, solve_rows
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf

__all__ = [
    "Selection",
    "copy_alone",
    "copy_back_alone",
    "count_together",
    "gather_from_links",
    "keep_chosen",
    "multiply_locally",
    "scatter_to_links",
    "select_components",
    "solve_locally",
    "subtract_gathered",
    "take_over",
]


MOST_TOGETHER = 1_000
"""Variables of single factors that are solved together: so few that all stays in the cache."""


class Selection(NamedTuple):
    """Components and what belongs to them; factors of bucket b are ``rows[first[b]:last[b]]``."""

    components: IntArray
    variables: npt.NDArray[np.uint64]
    rows: IntArray
    first: IntArray
    last: IntArray


@leaf
def count_together(components: IntArray, i: int, problem: LoopProblem) -> int:
    """Return how many components are worked on together, from the i-th of some on.

    One, unless it is a single factor: small neighbours that are such, too, come along, since what a
    component costs beside its solver is more than small factors take.
    """
    first_variable, iterations = problem.blocks.first_variable, problem.progress.iterations
    first, n = components[i], 1
    while (
        i + n < len(components)
        and components[i + n] == first + n
        and problem.direct[first]
        and problem.direct[first + n]
        and iterations[first + n] == iterations[first]
        and first_variable[first + n + 1] - first_variable[first] <= MOST_TOGETHER
    ):
        n += 1
    return n


@kernel
def select_components(blocks: Blocks, begin: int, end: int) -> Selection:
    """Return the selection of the components ``begin`` to ``end - 1``."""
    numbers = blocks.counting
    return Selection(
        numbers[begin:end],
        blocks.variable_counting[blocks.first_variable[begin] : blocks.first_variable[end]],
        numbers,
        blocks.first_row[begin],
        blocks.first_row[end],
    )


@kernel
def keep_chosen(selection: Selection, links: Links, blocks: Blocks, chosen: BoolArray) -> Selection:
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
            if chosen[blocks.component[blocks.first_factor[b] + row]]:
                rows[n] = row
                n += 1
        last[b] = n
    return Selection(components, variables, rows, first, last)


@leaf
def solve_locally(
    selection: Selection, solver_table: Any, problem: LoopProblem, max_iterations: int
) -> bool:
    """Solve the local problems at the current local scores; false if Python code raised.

    Notes which components have a factor that ran out of iterations.
    """
    blocks, iterate, extras = problem.blocks, problem.iterate, problem.extras
    unsolved = problem.progress.unsolved
    for c in selection.components:
        unsolved[c] = False
    for b in range(len(selection.first)):
        rows = selection.rows[selection.first[b] : selection.last[b]]
        if len(rows) == 0:
            continue
        lo, hi = blocks.first_link[b], blocks.first_link[b + 1]
        first, last = blocks.first_additional[b], blocks.first_additional[b + 1]
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
        owners = blocks.component[blocks.first_factor[b] : blocks.first_factor[b + 1]]
        mark_unsolved(solver_table, b, rows, owners, unsolved)
    return True


@leaf
def multiply_locally(
    selection: Selection,
    solver_table: Any,
    blocks: Blocks,
    inputs: FloatArray,
    inputs_v: FloatArray,
    outputs: FloatArray,
    outputs_v: FloatArray,
) -> None:
    """Write the products of the local Jacobians with numbers on links and on additionals."""
    for b in range(len(selection.first)):
        rows = selection.rows[selection.first[b] : selection.last[b]]
        if len(rows) > 0:
            lo, hi = blocks.first_link[b], blocks.first_link[b + 1]
            first, last = blocks.first_additional[b], blocks.first_additional[b + 1]
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
def copy_alone(
    selection: Selection, problem: LoopProblem, x: FloatArray, one: float, out: FloatArray
) -> None:
    """Write the copies of x on the links of components of one factor; ``one - x`` if negated.

    There each variable has one copy, on the same scale: `scatter_to_links` for a `one` of 0.
    """
    links, begin = problem.links, problem.blocks.first_variable
    order, negated = links.order, links.negated
    for c in selection.components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            e = v + ahead
            out[order[e]] = one - x[v] if negated[e] else x[v]


@leaf
def copy_back_alone(
    selection: Selection, problem: LoopProblem, values: FloatArray, one: float, out: FloatArray
) -> None:
    """Write from the links of such components to their variables, the inverse of `copy_alone`."""
    links, begin = problem.links, problem.blocks.first_variable
    order, negated = links.order, links.negated
    for c in selection.components:
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        ahead = links.offsets[first] - first
        for v in range(first, last):
            value = values[order[v + ahead]]
            out[v] = one - value if negated[v + ahead] else value


@leaf
def take_over(selection: Selection, problem: LoopProblem) -> None:
    """Let the means of components of one factor be its solution."""
    iterate, progress, begin = problem.iterate, problem.progress, problem.blocks.first_variable
    copy_back_alone(selection, problem, iterate.z, 1.0, iterate.u)
    n_decided = 0
    for c in selection.components:
        first, last = begin[c], begin[c + 1]
        progress.primal_residual[c] = 0.0 if _are_finite(iterate.u[first:last]) else np.inf
        progress.dual_residual[c] = 0.0
        n_decided += not _are_finite(iterate.score[first:last])
    if n_decided > 0:  # infinite ones, which the solver was free to change
        copy_alone(selection, problem, iterate.score, 1.0, iterate.a)


@leaf
def _are_finite(numbers: FloatArray) -> bool:
    """Return whether no number is infinite, nor NaN."""
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
