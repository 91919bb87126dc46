"""Where the solve of rows and columns starts: nearly where it ends."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import Variables
from lpsmap_core.engine.step_size import FIRST_STEP_SIZE
from lpsmap_core.engine.warm_start import CachedStart, GraphStart
from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_torch.layers.matching_duals import matching_duals

__all__ = ["MatchingStart"]


class MatchingStart(CachedStart):
    """The duals of tables whose shorter side is full, found by Newton's method.

    The engine goes on from them, and certifies what it finds: they count for time alone.

    Parameters
    ----------
    variables
        ``(size, m, n)`` the tables.
    scores
        Their scores.
    heights, widths
        (size,) how many rows and columns take part; 0 where there is no start.
    full
        The factor type of the lines that are full.
    """

    def __init__(
        self,
        variables: Variables,
        scores: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
        full: type[Factor],
    ) -> None:
        super().__init__({}, variables, [])
        object.__setattr__(self, "_tables", (scores, heights, widths, full))

    def start_for(self, layout: Layout) -> GraphStart:
        """Return means and duals of all tables whose multipliers were found."""
        scores, heights, widths, full = self._tables  # type: ignore[attr-defined]
        size, m, n = scores.shape
        rows, columns, found = np.zeros((size, m)), np.zeros((size, n)), np.zeros(size)
        matching_duals(scores, heights, widths, rows, columns, found)
        start = GraphStart.nowhere(layout)
        known = np.flatnonzero(found)
        if not known.size:
            return start
        r, c = rows[:, :, None], columns[:, None, :]
        delta = math.sqrt(2.0)  # every pair is in one row and in one column
        start.u[self.variables.index] = np.clip(scores - r - c, 0.0, 1.0) / delta
        of_full = np.where((heights <= widths)[:, None, None], r - c, c - r) / delta
        flat = np.zeros(layout.n_variables)
        flat[self.variables.index] = of_full
        signs = [1.0 if bucket.type is full else -1.0 for bucket in layout.buckets]
        lines = zip(signs, layout.buckets, strict=True)
        start.duals[:] = np.concatenate([sign * flat[b.variable] for sign, b in lines])
        component = layout.component[self.variables.index[known, 0, 0]]
        start.known[component] = True
        step_size = FIRST_STEP_SIZE * np.sqrt(1.0 + _mean_squares(scores, heights, widths)[known])
        start.step_size[component] = start.first_step_size[component] = step_size
        return start

    def keep(self, layout: Layout, solved: object) -> None:
        """Keep nothing."""


def _mean_squares(
    scores: NDArray[np.float64], heights: NDArray[np.int64], widths: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean square of every table's scores; those that take no part are zero."""
    sums = np.square(scores).sum(axis=(1, 2))
    means: NDArray[np.float64] = sums / np.maximum(heights * widths, 1)
    return means
