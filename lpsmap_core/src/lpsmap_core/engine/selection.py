"""Some components: their numbers, their variables, their factors of every bucket."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.state import ONE, Problem
from lpsmap_core.kernels.arrays import BoolArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf
from lpsmap_core.layout.arrangement import Blocks, Links
from lpsmap_core.local.solvers import mark_unsolved, multiply_rows, solve_rows

__all__ = [
    "Selection",
    "gather",
    "keep",
    "multiply_locally",
    "scatter",
    "select",
    "solve_locally",
    "subtract_gathered",
]


class Selection(NamedTuple):
    """Components and what belongs to them; factors of bucket b are ``rows[first[b]:last[b]]``."""

    components: IntArray
    variables: npt.NDArray[np.uint64]
    rows: IntArray
    first: IntArray
    last: IntArray


@kernel
def select(blocks: Blocks, begin: int, end: int) -> Selection:
    """Return the selection of the components ``begin`` to ``end - 1``."""
    numbers = blocks.counting
    return Selection(
        numbers[begin:end],
        blocks.variable_counting[blocks.variables[begin] : blocks.variables[end]],
        numbers,
        blocks.of_component[begin],
        blocks.of_component[end],
    )


@kernel
def keep(selection: Selection, links: Links, blocks: Blocks, chosen: BoolArray) -> Selection:
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
            if chosen[blocks.component[blocks.factors[b] + row]]:
                rows[n] = row
                n += 1
        last[b] = n
    return Selection(components, variables, rows, first, last)


@leaf
def solve_locally(
    selection: Selection, solvers: Any, problem: Problem, max_iterations: int
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
        lo, hi = blocks.links[b], blocks.links[b + 1]
        first, last = blocks.additionals[b], blocks.additionals[b + 1]
        if not solve_rows(
            solvers,
            b,
            rows,
            iterate.a[lo:hi],
            extras.scaled[first:last],
            iterate.z[lo:hi],
            extras.v[first:last],
            max_iterations,
        ):
            return False
        owners = blocks.component[blocks.factors[b] : blocks.factors[b + 1]]
        mark_unsolved(solvers, b, rows, owners, unsolved)
    return True


@leaf
def multiply_locally(
    selection: Selection,
    solvers: Any,
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
            lo, hi = blocks.links[b], blocks.links[b + 1]
            first, last = blocks.additionals[b], blocks.additionals[b + 1]
            multiply_rows(
                solvers,
                b,
                rows,
                inputs[lo:hi],
                inputs_v[first:last],
                outputs[lo:hi],
                outputs_v[first:last],
            )


@leaf
def scatter(selection: Selection, links: Links, x: FloatArray, out: FloatArray) -> None:
    """Write ``C x``, the scaled, signed copies of x on the links."""
    offsets, index = links.offsets, links.links
    delta, negated = links.delta, links.negated
    for v in selection.variables:
        copy = x[v] / delta[v]
        for e in range(offsets[v], offsets[v + ONE]):
            out[index[e]] = -copy if negated[e] else copy


@leaf
def gather(selection: Selection, links: Links, values: FloatArray, out: FloatArray) -> None:
    """Write ``C^T values``, the transpose of `scatter`."""
    offsets, index = links.offsets, links.links
    delta, negated = links.delta, links.negated
    for v in selection.variables:
        total = 0.0
        for e in range(offsets[v], offsets[v + ONE]):
            value = values[index[e]]
            total += -value if negated[e] else value
        out[v] = total / delta[v]


@leaf
def subtract_gathered(
    selection: Selection, links: Links, values: FloatArray, x: FloatArray, out: FloatArray
) -> None:
    """Write ``x - C^T values``."""
    offsets, index = links.offsets, links.links
    delta, negated = links.delta, links.negated
    for v in selection.variables:
        total = 0.0
        for e in range(offsets[v], offsets[v + ONE]):
            value = values[index[e]]
            total += -value if negated[e] else value
        out[v] = x[v] - total / delta[v]
