"""Where to divide a box of parameters, or the parses below it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lpsmap_search.arrays import FloatArray
from lpsmap_search.branching import NARROW, Branch

__all__ = ["Split", "most_fractional", "most_regretted"]

Split = Literal["midpoint", "point"]
"""Where to divide the range of a probability: in the middle, or at the relaxation's point."""

MARGIN = 0.1
"""Share of its width that a range keeps on either side of the relaxation's point, at least."""

INTEGRAL = 1e-6
"""Share by which a variable that should be all or nothing may miss both."""


def most_regretted(
    regret: FloatArray, bounds: FloatArray, theta: FloatArray, split: Split
) -> Branch | None:
    """Return the parameter of highest regret (Gormley & Eisner 2013, section 3).

    Parameters
    ----------
    regret
        (M,) by how much z_m exceeds the product ``theta_m f_m`` that it stands for.
    bounds
        (2 M,) lower, then upper bounds of the probabilities.
    theta
        (M,) the logarithms at the relaxation's point.
    split
        Where to divide.

    Returns
    -------
    Branch or None
        None if all ranges are too narrow to be divided.
    """
    low, high = np.split(bounds, 2)
    wide = high > low + NARROW
    if not wide.any():
        return None
    m = int(np.where(wide, regret, -np.inf).argmax())
    middle, width = 0.5 * (low[m] + high[m]), high[m] - low[m]
    p = float(np.exp(theta[m]))
    at = middle
    if split == "point":
        at = min(max(p, low[m] + MARGIN * width), high[m] - MARGIN * width)
    return Branch(m, float(at), float(at), p < at or (p == at and at < middle))


def most_fractional(values: FloatArray, whole: FloatArray) -> int | None:
    """Return which of the variables that should be all or nothing is the farthest from both.

    Parameters
    ----------
    values
        (P,) of the variables of the parses.
    whole
        (P,) what each variable is if it is not zero; zero if it may be anything.

    Returns
    -------
    int or None
        None if all are all or nothing.
    """
    shares = np.divide(values, whole, out=np.zeros_like(values), where=whole > 0.0)
    distance = np.minimum(shares, 1.0 - shares)
    found = int(distance.argmax())
    return found if distance[found] > INTEGRAL else None
