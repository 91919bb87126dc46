"""The choice of a branching parameter, and of the point at which to divide a box."""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.shares import Totals, fraction_above, fraction_below, phi

MARGIN = 0.2
"""Minimum share of the width of a box on either side of the dividing point."""

NARROW = 1e-9
"""Boxes of this width are not divided: their remaining gap is due to rounding, or to a constraint
that no structures satisfy with equality."""


class Means(NamedTuple):
    """A solution of a relaxation: points of a box, averaged with weights from counts."""

    counts: FloatArray
    """(C,) counts of the blocks."""
    p: FloatArray
    """(M,) weighted sums of the points."""
    value: FloatArray
    """(M,) weighted sums of the relaxation's values of phi at the points."""


class Branch(NamedTuple):
    """A branching parameter, and the point at which it divides a box."""

    parameter: int
    """The parameter; -1 if all parameters are fixed."""
    below: float
    """Its upper bound in the lower box."""
    above: float
    """Its lower bound in the upper box."""


@leaf
def choose_branch(
    first: IntArray, totals: Totals, low: FloatArray, high: FloatArray, means: Means
) -> Branch:
    """Choose the parameter where the mean of phi is farthest above phi of the mean.

    This difference is what the relaxation gains, and branching reduces it.
    """
    most, branch, block = -1.0, -1, 0
    for c in range(len(first) - 1):
        total = means.counts[c]
        for m in range(first[c], first[c + 1]):
            if high[m] > low[m]:
                gain = means.value[m] - total * phi(means.p[m] / total) if total > 0.0 else 0.0
                if gain > most:
                    most, branch, block = gain, m, c
    if branch < 0:
        return Branch(branch, 0.0, 0.0)
    bottom, width = low[branch], high[branch] - low[branch]
    total = means.counts[block]
    p = means.p[branch] / total if total > 0.0 else bottom + 0.5 * width
    at = min(max(p, bottom + MARGIN * width), bottom + (1.0 - MARGIN) * width)
    below = fraction_below(at, totals.least[block], totals.most[block])
    above = fraction_above(at, totals.least[block], totals.most[block])
    return Branch(branch, below, above)


def halves(box: FloatArray, branch: Branch) -> list[FloatArray]:
    """Return the two parts of a box, the lower one first.

    Parameters
    ----------
    box
        (2 M,) lower, then upper bounds.
    branch
        Where to divide it.
    """
    m, n = branch.parameter, len(box) // 2
    if m < 0 or box[n + m] <= box[m] + NARROW:
        return []
    below, above = box.copy(), box.copy()
    below[n + m], above[m] = branch.below, branch.above
    return [below, above]
