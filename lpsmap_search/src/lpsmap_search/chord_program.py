"""Bounds of the likelihood over boxes of parameters by chords and a linear program.

The best parameters for given structures are the shares of their counts, ``f_m = p_m F_c``. In a box
of shares, ``l F_c <= f_m <= u F_c``, and phi(p) = p log p is at most its chord between l and u, so
that the likelihood ``sum_m F_c phi(f_m / F_c)`` is at most

    sum_m s_m f_m + (phi(l_m) - s_m l_m) F_c,   s_m = (phi(u_m) - phi(l_m)) / (u_m - l_m).

This is linear in f, and p = 0 needs no special case. Its maximum over the convex hull of the
structures' counts bounds the likelihood. The Lagrangian relaxation that separates phi by parameter
has the same bound at optimal multipliers; the relaxation over vertices in
`lpsmap_search.lagrangian` can have a lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.constraints import CONSTRAINT_TOLERANCE, CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.count_model import x_log_x
from lpsmap_search.linear_programs import BASIC, UNIT, Basis, LinearProgram, SimplexSolver
from lpsmap_search.polytopes import hypergraph_polytope
from lpsmap_search.shares import Totals
from lpsmap_search.sparse_matrix import Entries, SparseMatrix, sums_at

OPTIONS = {"simplex_dual_edge_weight_strategy": 1}
"""Options of HiGHS: Devex pricing is an eighth faster here than steepest edge."""


class Chords(NamedTuple):
    """The chords of phi over a box, ``slope p + intercept``."""

    slope: FloatArray
    """(M,)."""
    intercept: FloatArray
    """(M,) rounded up."""


def chords_of(low: FloatArray, high: FloatArray) -> Chords:
    """Return the chords of a box."""
    bottom, top, width = x_log_x(low), x_log_x(high), high - low
    slope = np.divide(top - bottom, width, out=np.zeros_like(low), where=width > 0.0)
    rounding = 8.0 * UNIT * (1.0 + np.abs(slope))
    return Chords(slope, bottom - slope * low + rounding)


class ChordProgram:
    """The linear program of a box.

    Its columns are those of the hypergraph polytope, the counts f and the sums of blocks F. The
    rows are those of the polytope, the definitions of f and F, ``f_m >= l_m F_c``, ``f_m <= u_m
    F_c``, and the constraint. All rows except the constraint have two finite bounds, so the dual
    simplex algorithm can start from a basis of another box without a first phase.

    Parameters
    ----------
    corpus
        The sentences.
    totals
        Ranges of the counts of blocks.
    constraint
        A constraint on the counts, or None.
    """

    def __init__(
        self, corpus: Corpus, totals: Totals, constraint: CountConstraint | None = None
    ) -> None:
        hull, block, most = hypergraph_polytope(corpus), corpus.model.block, totals.most * 1.0
        n_edges, n, n_blocks = len(hull.upper), len(block), len(most)
        f, sums = n_edges + np.arange(n), n_edges + n + np.arange(n_blocks)
        ends = np.cumsum([hull.matrix.n_rows, n, n_blocks, n, n])
        counted, summed, least, greatest = (
            np.arange(i, j) for i, j in zip(ends, ends[1:], strict=False)
        )
        pieces: list[Entries] = [
            (hull.matrix.row, hull.matrix.column, hull.matrix.value),
            (counted[hull.counts.row], hull.counts.column, hull.counts.value),
            (counted, f, -1.0),
            (summed[block], f, 1.0),
            (summed, sums, -1.0),
            (least, f, 1.0),
            (least, sums[block], 0.0),
            (greatest, f, -1.0),
            (greatest, sums[block], 1.0),
        ]
        nothing, unlimited = np.zeros(n + n_blocks), most[block]
        lower = [hull.row_lower, nothing, np.zeros(2 * n)]
        upper = [hull.row_upper, nothing, unlimited, unlimited]
        if constraint is not None:
            [used] = np.nonzero(constraint.weights)
            pieces.append((np.full(len(used), ends[-1]), f[used], constraint.weights[used]))
            lower.append(
                np.array([constraint.least - CONSTRAINT_TOLERANCE * max(1.0, constraint.least)])
            )
            upper.append(np.array([np.inf]))
        n_rows, width = sum(map(len, lower)), n_edges + n + n_blocks
        matrix = SparseMatrix.from_pieces(pieces, (n_rows, width))
        self._program = LinearProgram(
            np.zeros(width),
            np.zeros(width),
            np.concatenate([hull.upper, unlimited, most]),
            matrix,
            np.concatenate(lower),
            np.concatenate(upper),
        )
        rows = np.concatenate([least, greatest])
        self._shares = matrix.entries(rows, np.tile(sums[block], 2))
        self._block, self._f, self._sums = block, f, sums

    @property
    def n_entries(self) -> int:
        """Number of coefficients."""
        return len(self._program.matrix.value)

    @property
    def slack_basis(self) -> Basis:
        """The initial basis of slacks."""
        return Basis(
            bytes(len(self._program.objective)), bytes([BASIC]) * self._program.matrix.n_rows
        )

    def solver(self) -> SimplexSolver:
        """Return a solver of the program; set a box before solving."""
        return SimplexSolver(self._program, OPTIONS)

    def set_box(self, solver: SimplexSolver, low: FloatArray, high: FloatArray) -> Chords:
        """Set the box of a solver, and return its chords.

        Parameters
        ----------
        solver
            The result of `solver`.
        low, high
            (M,) bounds of the shares.
        """
        chords = chords_of(low, high)
        by_blocks = sums_at(self._block, chords.intercept, len(self._sums))
        columns = np.concatenate([self._f, self._sums])
        solver.change_objective(columns, np.concatenate([chords.slope, by_blocks]))
        solver.change_coefficients(self._shares, np.concatenate([-low, high]))
        return chords

    def counts(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the counts and the sums of blocks at a point of the program."""
        return np.maximum(x[self._f], 0.0), np.maximum(x[self._sums], 0.0)
