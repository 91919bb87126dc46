"""Spans of consecutive variables, with a compiled MAP oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Factors, Scores, Structures, Variables, kernel

__all__ = ["Span"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@kernel
def _best_spans(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best span of every factor in `rows`, with at most as many slots as its parameter."""
    offsets, eta_u = factors.offsets, scores.eta_u
    start, entry, value, size = structures
    for r in rows:
        lo, hi, longest = offsets[r], offsets[r + 1], int(factors.parameters[r, 0])
        best, first, last = 0.0, lo, lo
        for i in range(lo, hi):
            total = 0.0
            for j in range(i, min(i + longest, hi)):
                total += eta_u[j]
                if total > best:
                    best, first, last = total, i, j + 1
        for k in range(last - first):
            entry[start[r] + k], value[start[r] + k] = first - lo + k, 1.0
        size[r] = last - first


class Span(Factor):
    """The variables that are on are consecutive, at most `longest` of them; or all are off.

    Parameters
    ----------
    variables
        Variables of shape (..., n): a span for every entry of the leading axes.
    longest
        The maximum length of a span: a number, or an array that broadcasts to the leading axes.
    lengths
        Integers of the leading axes' shape: row b has the variables ``[b, :lengths[b]]``.

    Raises
    ------
    TypeError
        If `longest` does not hold numbers.
    ValueError
        If `longest` is not a whole number of at least 1, or has the wrong shape.
    """

    map_kernel = staticmethod(_best_spans)

    def __init__(
        self,
        variables: Variables,
        longest: npt.ArrayLike,
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        counts = self.counts("longest", longest)
        if (counts < 1).any():
            raise ValueError(f"Span: longest is {longest!r}; expected whole numbers of at least 1.")
        self.longest = np.minimum(counts, self.event_shape[0])

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, int]:
        """Return start and end of the best span, or ``(0, 0)`` if all variables are off."""
        n = len(eta_u)
        ends = ((i, j) for i in range(n) for j in range(i + 1, min(i + int(self.longest), n) + 1))
        return max([(0, 0), *ends], key=lambda span: float(eta_u[slice(*span)].sum()))

    def vertex(self, y: tuple[int, int]) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return ones from start to end, and no additionals."""
        place = np.arange(*self.event_shape)
        return (y[0] <= place) & (place < y[1]), np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return start and end of the span, ``{"span": [start, end]}``."""
        on = np.flatnonzero(variables)
        return {"span": [int(on[0]), int(on[-1]) + 1] if on.size else [0, 0]}

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable(6), 3),
            cls(graph.variable((3, 5)), [1, 2, 5], lengths=[5, 3, 4]),
        ]
