"""The rows and columns of a matching in a common workspace: the lines of its matrix.

The *long* lines are those of the longer side, one for each row of a matrix with at least as many
rows as columns, and one for each column of others. The short lines are the others. In the workspace
the entries are stored by long line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray


class Sides(NamedTuple):
    """The sides of a matching, and which lines must be matched."""

    n_long: int
    n_short: int
    along_long: int
    """The distance of slots whose long lines are neighbours."""
    along_short: int
    equal_long: bool
    """Whether every long line is matched: only if the sides are equally long."""
    equal_short: bool


class Lines(NamedTuple):
    """Workspace for a matching; entries are stored by long line, multipliers by side."""

    y: FloatArray
    """For each entry, the scaled score: ``delta a``; ``-inf`` if it is forbidden."""
    q: FloatArray
    """For each entry, the degree of its variable: ``delta^2``."""
    x: FloatArray
    """For each entry, its marginal: ``delta z``."""
    multiplier: FloatArray
    excess: FloatArray
    """For each line, the sum of its marginals less 1; 0 if its bound is inactive."""
    trial: FloatArray
    trial_excess: FloatArray
    step: FloatArray
    moves: FloatArray
    """For each line, 1 if its multiplier moves, or 0 if it rests."""
    diagonal: FloatArray
    """For each line, its diagonal element of the equations."""
    matrix: FloatArray
    """The equations of the short lines, of which the upper triangle is used."""


@kernel
def lines_workspace(n_long: int, n_short: int, n_entries: int) -> Lines:
    """Return a workspace for matchings up to some size."""
    n = n_long + n_short
    return Lines(
        y=np.empty(n_entries),
        q=np.empty(n_entries),
        x=np.empty(n_entries),
        multiplier=np.empty(n),
        excess=np.empty(n),
        trial=np.empty(n),
        trial_excess=np.empty(n),
        step=np.empty(n),
        moves=np.empty(n),
        diagonal=np.empty(n),
        matrix=np.empty((n_short, n_short)),
    )


@leaf
def sides_of(m: int, n: int, full: bool) -> Sides:
    """Return the sides of a matching of `m` rows to `n` columns.

    If it is `full`, all lines of the side that is not longer are matched.
    """
    if m >= n:
        return Sides(m, n, n, 1, full and m == n, full)
    return Sides(n, m, 1, n, False, full)
