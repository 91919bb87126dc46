"""Rows of integer programs, scaled and widened so that tolerances cannot exclude an assignment.

Solvers compare in floating-point numbers, up to absolute tolerances. If the coefficients of a row
are large, its rounding errors exceed the tolerance: HiGHS then excludes feasible assignments, and
claims proofs that are false. Therefore rows of weights are scaled to about 1, and their sides are
moved outwards by far more than tolerance and rounding. What is proved of the wider program holds
for the given one. Rows of small integers have no rounding errors, and remain as they are.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_decode.solvers.map_solver import Program

__all__ = ["MARGIN", "meets_rows", "scaled_rows"]

MARGIN = 2.0**-23
"""Margin of the sides of a row, relative to its largest coefficient: about 100 times the tolerance
of `highs.TOLERANCES`. Smaller coefficients are dropped, and the sides are moved by their sum: HiGHS
has excluded feasible assignments with coefficients of about its tolerance."""

MAX_INTEGER = 1024.0
"""Rows of integers up to this one remain as they are."""

ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
"""Relative error of the sum of a row."""


def scaled_rows(program: Program, margin: float) -> Program:
    """Return a program whose rows of weights are scaled by powers of two, with moved sides.

    Parameters
    ----------
    program
        The program.
    margin
        How far the sides move outwards, relative to the largest coefficient; inwards if negative.
    """
    weighted = _of_weights(program)
    if not weighted.any():
        return program
    row, n_rows = program.row, len(program.low)
    largest = np.zeros(n_rows)
    np.maximum.at(largest, row, np.abs(program.coefficient))
    exponent = np.where(weighted, -np.frexp(largest)[1], 0)
    coefficient = np.ldexp(program.coefficient, exponent[row])
    kept = ~weighted[row] | (np.abs(coefficient) >= MARGIN)
    dropped = np.bincount(row[~kept], np.abs(coefficient[~kept]), minlength=n_rows)
    moved = np.where(weighted, margin + np.copysign(dropped, margin), 0.0)
    with np.errstate(over="ignore"):  # such a side is no bound
        low, high = (np.ldexp(side, exponent) for side in (program.low, program.high))
    return dataclasses.replace(
        program,
        row=row[kept],
        column=program.column[kept],
        coefficient=coefficient[kept],
        low=low - moved,
        high=high + moved,
    )


def meets_rows(program: Program, values: FloatArray) -> bool:
    """Return whether values of all columns meet the rows of weights, up to rounding.

    Rows with auxiliary columns, which are continuous, are not checked.
    """
    checked, row = _of_weights(program), program.row
    if not checked.any():
        return True
    auxiliary = program.column >= len(program.scores) - program.n_auxiliary
    checked[row[auxiliary]] = False
    terms, n_rows = program.coefficient * np.rint(values)[program.column], len(program.low)
    total = np.bincount(row, terms, minlength=n_rows)
    slack = ROUNDING * np.bincount(row, np.abs(terms), minlength=n_rows)
    met = (total <= program.high + slack) & (total >= program.low - slack)
    return bool(met[checked].all())


def _of_weights(program: Program) -> BoolArray:
    """Return flags of the rows with coefficients other than small integers."""
    a, found = program.coefficient, np.zeros(len(program.low), dtype=bool)
    found[program.row[(a != np.rint(a)) | (np.abs(a) > MAX_INTEGER)]] = True
    return found
