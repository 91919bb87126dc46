"""The choice of a branching variable: a parameter, or a variable of the parses."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.branching import NARROW, Branch

Split = Literal["midpoint", "point"]
"""The point that divides the range of a probability: its midpoint, or the point of the
relaxation."""

MARGIN = 0.1
"""Minimum share of the width of a range on either side of the point of the relaxation."""

INTEGRAL = 1e-6
"""Relative tolerance within which a variable counts as integral."""


def most_regretted(
    regret: FloatArray, bounds: FloatArray, theta: FloatArray, split: Split
) -> Branch | None:
    """Return the parameter of highest regret (Gormley & Eisner 2013, section 3).

    Parameters
    ----------
    regret
        (M,) the excess of z_m over the product ``theta_m f_m`` that it represents.
    bounds
        (2 M,) lower, then upper bounds of the probabilities.
    theta
        (M,) the logarithms at the point of the relaxation.
    split
        The kind of dividing point.

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
    at, width = 0.5 * (low[m] + high[m]), high[m] - low[m]
    if split == "point":
        at = min(max(np.exp(theta[m]), low[m] + MARGIN * width), high[m] - MARGIN * width)
    return Branch(m, float(at), float(at))


def most_fractional(values: FloatArray, whole: FloatArray) -> int | None:
    """Return the most fractional of the variables that should be integral.

    Parameters
    ----------
    values
        (P,) values of the variables of the parses.
    whole
        (P,) the nonzero value that each variable may have; zero for continuous variables.

    Returns
    -------
    int or None
        None if all are integral.
    """
    fractions = np.divide(values, whole, out=np.zeros_like(values), where=whole > 0.0)
    distance = np.minimum(fractions, 1.0 - fractions)
    best = int(distance.argmax())
    return best if distance[best] > INTEGRAL else None
