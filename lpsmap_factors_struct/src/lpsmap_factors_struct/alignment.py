"""Monotone alignments of two sequences."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    Scores,
    Structures,
    Variables,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import FloatArray, IndexArray, IntArray
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_factors_struct.rectangle import pairs_vertex, rectangles


@leaf
def best_alignment(
    scores: FloatArray,
    m: int,
    n: int,
    high: FloatArray,
    low: FloatArray,
    start: int,
    entry: IndexArray,
    value: FloatArray,
) -> int:
    """Write the cells of the best path from position `start`, last cell first; return their number.

    Dynamic time warping (Sakoe & Chiba 1978) in O(m n), without back pointers: backtracking repeats
    the comparisons. Sums have double precision twice over, since a path may have to take cells with
    huge positive scores, in which the scores of other cells would be lost.

    Parameters
    ----------
    scores
        ``m * n`` finite scores, row by row.
    m, n
        Numbers of rows and columns.
    high, low
        Workspace of the size of `scores`: the score of the best path to each cell, and its rounding
        error.
    start, entry, value
        First position of the result, and the arrays for slots and values.
    """
    if m * n == 0:
        return 0
    high[0], low[0] = scores[0], 0.0
    for i in range(m):
        for j in range(1 if i == 0 else 0, n):
            here = i * n + j
            before = here - _step(high, low, i, j, n)
            # Knuth's (1969) two-sum: total + lost is the exact sum
            total = high[before] + scores[here]
            share = total - high[before]
            lost = (high[before] - (total - share)) + (scores[here] - share)
            high[here], low[here] = total, low[before] + lost
    at, here = start, m * n - 1
    while True:
        entry[at], value[at] = here, 1.0
        at += 1
        if here == 0:
            return at - start
        here -= _step(high, low, here // n, here % n, n)


@leaf
def _step(high: FloatArray, low: FloatArray, i: int, j: int, n: int) -> int:
    """Return the distance from cell (i, j) back to its predecessor on the best path."""
    if i == 0:
        return 1
    if j == 0:
        return n
    here = i * n + j
    best = here - n - 1
    for before in (here - n, here - 1):
        if (high[before] - high[best]) + (low[before] - low[best]) > 0.0:
            best = before
    return here - best


@kernel
def _best_alignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best alignment of every factor in `rows`."""
    offsets, parameters = factors.offsets, factors.parameters
    start, entry, value, size = structures
    largest = largest_arity(rows, offsets)
    high, low = np.empty(largest), np.empty(largest)
    for r in rows:
        m, n = int(parameters[r, 0]), int(parameters[r, 1])
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        size[r] = best_alignment(eta_u, m, n, high, low, start[r], entry, value)


class Alignment(DynamicProgram):
    """Monotone alignments of two sequences: paths through a matrix from corner to corner.

    The structures are the paths from cell (0, 0) to cell (m - 1, n - 1) that move right, down, or
    diagonally right and down, one cell at a time. The variables of the cells on the path are 1.
    Thus every element of either sequence is aligned with one or more consecutive elements of the
    other. The oracle is dynamic time warping (Sakoe & Chiba 1978).

    Parameters
    ----------
    variables
        Cells, of shape ``(..., m, n)``: an alignment of `m` elements with `n` for every entry of
        the leading axes. The score of a cell is the gain of aligning the two elements, such as the
        negative of their distance.
    lengths
        Integers of the leading axes' shape, or with an additional axis of two: alignment b covers
        ``[b, :lengths[b, 0], :lengths[b, 1]]``. An alignment with an empty sequence is empty.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If `variables` has fewer than two axes, or a length is negative or beyond its axis.

    Notes
    -----
    An alignment's label is the tuple of its cells (row, column), from the first to the last.
    """

    variables_ndim = 2
    map_kernel = staticmethod(_best_alignments)

    def __init__(self, variables: Variables, *, lengths: npt.ArrayLike | None = None) -> None:
        super().__init__(variables, lengths=lengths)
        self.n_rows, self.n_columns = rectangles(self)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((2, 3))),
            cls(graph.variable((3, 3, 4)), lengths=[[3, 2], [1, 4], [2, 2]]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the last cell. Every cell is reached from up to three others."""
        m, n = row.event_shape
        if m * n == 0:
            build.edge("nothing")
            return "nothing"
        cells = np.arange(m * n)
        build.edges([0], slots=[0])
        for down, right in ((1, 1), (1, 0), (0, 1)):
            reached = cells[(cells // n >= down) & (cells % n >= right)]
            build.edges(reached, reached - down * n - right, reached)
        return m * n - 1

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[tuple[int, int], ...]:
        """Return the cells of the best alignment."""
        m, n = eta_u.shape
        entry = np.empty(m + n, dtype=np.int32)
        size = best_alignment(
            np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1),
            m,
            n,
            np.empty(m * n),
            np.empty(m * n),
            0,
            entry,
            np.empty(len(entry)),
        )
        return tuple((cell // n, cell % n) for cell in entry[:size][::-1].tolist())

    def vertex(self, y: tuple[tuple[int, int], ...]) -> tuple[FloatArray, FloatArray]:
        """Return the cells of alignment `y` as a matrix."""
        return pairs_vertex(self, y), np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"pairs": [[row, column], ...]}``, from the first to the last."""
        return {"pairs": np.argwhere(variables > 0.5).tolist()}

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the lengths of the longest paths, which follow two sides of the matrix."""
        edges = factors.parameters[:, :2].sum(axis=1).astype(np.int64) - 1
        return np.where(np.diff(factors.offsets) > 0, edges, 0)
