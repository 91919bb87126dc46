"""Sums of floats without rounding: expansions of three floats, the largest first (Shewchuk 1997).

Masks have few different magnitudes, far apart, so that three floats represent the sums of scores.
"""

from __future__ import annotations

from typing import TypeAlias

from lpsmap_core import leaf
from lpsmap_dynamic import two_sum

Expansion: TypeAlias = tuple[float, float, float]


@leaf
def plus(a: Expansion, b: Expansion) -> Expansion:
    """Return the sum of two expansions."""
    high, of_high = two_sum(a[0], b[0])
    middle, of_middle = two_sum(a[1], b[1])
    middle, carried = two_sum(middle, of_high)
    low = (a[2] + b[2]) + (carried + of_middle)
    for _ in range(2):  # the first pass closes the gaps that cancellation leaves
        high, middle = two_sum(high, middle)
        middle, low = two_sum(middle, low)
    return high, middle, low


@leaf
def exceeds(a: Expansion, b: Expansion) -> bool:
    """Return whether `a` is larger than `b`."""
    if a[0] != b[0]:
        return a[0] > b[0]
    return a[1] > b[1] or (a[1] == b[1] and a[2] > b[2])
