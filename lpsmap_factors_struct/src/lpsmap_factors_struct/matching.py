"""Matchings of the rows and columns of a matrix."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    LocalSolver,
    Scores,
    Structures,
    Variables,
    kernel,
    leaf,
)
from lpsmap_core.api import FloatArray, IndexArray, IntArray
from lpsmap_factors_struct.assignment import AssignmentWorkspace, assign, assignment_workspace
from lpsmap_factors_struct.birkhoff.dense_matchings import DenseMatchings
from lpsmap_factors_struct.rectangle import pairs_vertex, rectangles


@leaf
def best_matching(
    scores: FloatArray,
    m: int,
    n: int,
    full: bool,
    workspace: AssignmentWorkspace,
    start: int,
    entry: IndexArray,
    value: FloatArray,
) -> int:
    """Write the slots of the best matching from position `start`; return their number.

    The shorter side is assigned to the longer one. Unless the matching is `full`, scores below 0
    count as 0, and pairs without a positive score are left out.

    Parameters
    ----------
    scores
        ``m * n`` finite scores, row by row.
    m, n
        Numbers of rows and columns.
    full
        Whether every row, or every column if there are fewer columns, is matched.
    workspace
        Workspace for a matrix of this shape.
    start, entry, value
        First position of the result, and the arrays for slots and values.
    """
    cost = workspace.cost
    short, long = min(m, n), max(m, n)
    across, along = (n, 1) if m <= n else (1, n)
    for i in range(short):
        most = -np.inf
        for j in range(long):
            score = scores[i * across + j * along]
            score = score if full else max(score, 0.0)
            cost[i * long + j] = score
            most = max(most, score)
        for j in range(long):
            cost[i * long + j] = most - cost[i * long + j]
    assign(short, long, workspace)
    at = start
    for i in range(short):
        slot = i * across + workspace.partner[i] * along
        if full or scores[slot] > 0.0:
            entry[at], value[at] = slot, 1.0
            at += 1
    return at - start


@kernel
def _best_matchings(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best matching of every factor in `rows`."""
    offsets, parameters = factors.offsets, factors.parameters
    start, entry, value, size = structures
    short, long, entries = 0, 0, 0
    for r in rows:
        m, n = int(parameters[r, 0]), int(parameters[r, 1])
        short, long = max(short, min(m, n)), max(long, max(m, n))
        entries = max(entries, m * n)
    workspace = assignment_workspace(short, long, entries)
    for r in rows:
        m, n, full = int(parameters[r, 0]), int(parameters[r, 1]), parameters[r, 2] != 0
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        size[r] = best_matching(eta_u, m, n, full, workspace, start[r], entry, value)


class Matching(Factor):
    """Matchings: pairs of a row and a column, with each row and each column in at most one pair.

    The structures are the matchings in which every row has a partner, or all matchings if `full` is
    "none". For as many rows as columns, the marginals are the doubly stochastic matrices (Birkhoff
    1946). The oracle is linear assignment by shortest augmenting paths in O(n^3) (Jonker &
    Volgenant 1987). Matchings under SparseMAP: Niculae et al. (2018), section 5.2; the same model
    as many small factors: Niculae & Martins (2020), section 5.2.

    Parameters
    ----------
    variables
        Pairs, of shape ``(..., m, n)``: a matching of `m` rows to `n` columns for every entry of
        the leading axes.
    full
        Which side must be matched completely: "rows"; "shorter", which means the rows or the
        columns, whichever are fewer; or "none", so that pairs with negative scores can be left out.
        For complete columns, transpose the variables.
    lengths
        Integers of the leading axes' shape, or with an additional axis of two: matching b covers
        ``[b, :lengths[b, 0], :lengths[b, 1]]``. A matching without rows or columns is empty.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If `full` is another value, a length is negative or exceeds its axis, or all rows must be
        matched but outnumber the columns.

    Notes
    -----
    A matching's label is the tuple of its pairs (row, column), in the order of the shorter side.

    A local solution of more than four structures is computed as a projection onto the sums of rows
    and columns, by Newton steps on their multipliers (Li, Sun & Toh 2020). Nearly uniform scores
    therefore take no longer than others.
    """

    variables_ndim = 2
    map_kernel = staticmethod(_best_matchings)

    def __init__(
        self,
        variables: Variables,
        full: Literal["rows", "shorter", "none"] = "rows",
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        if not isinstance(full, str) or full not in ("rows", "shorter", "none"):
            raise ValueError(
                f"Matching: full is {full!r}; expected 'rows', 'shorter' or 'none': the side that "
                "must be matched completely."
            )
        self.n_rows, self.n_columns = rectangles(self)
        wrong = np.flatnonzero(self.n_rows > self.n_columns)
        if full == "rows" and wrong.size:
            f = wrong[0]
            raise ValueError(
                f"Matching: factor {f} has {self.n_rows[f]:g} rows but {self.n_columns[f]:g} "
                "columns; expected at most as many rows as columns where every row must be "
                "matched. Set full to 'shorter' or 'none', or transpose the variables."
            )
        self.full = full
        self.saturates = self.per_factor("saturates", full != "none")

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 2, 3)), lengths=[[2, 3], [1, 2], [2, 2]]),
            cls(graph.variable((3, 2)), full="shorter"),
            cls(graph.variable((2, 3, 3)), full="none"),
        ]

    @classmethod
    def local_solver(cls) -> type[LocalSolver]:
        """Return the solver of matchings by active sets and projections."""
        return DenseMatchings

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[tuple[int, int], ...]:
        """Return the pairs of the best matching."""
        m, n = eta_u.shape
        entry = np.empty(min(m, n), dtype=np.int32)
        size = best_matching(
            np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1),
            m,
            n,
            bool(self.saturates),
            assignment_workspace(min(m, n), max(m, n), m * n),
            0,
            entry,
            np.empty(len(entry)),
        )
        return tuple((slot // n, slot % n) for slot in entry[:size].tolist())

    def vertex(self, y: tuple[tuple[int, int], ...]) -> tuple[FloatArray, FloatArray]:
        """Return the pairs of matching `y` as a matrix."""
        return pairs_vertex(self, y), np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"pairs": [[row, column], ...]}``, in the order of the rows."""
        return {"pairs": np.argwhere(variables > 0.5).tolist()}

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the lengths of the shorter sides, which bound the numbers of pairs."""
        return np.minimum(factors.parameters[:, 0], factors.parameters[:, 1]).astype(np.int64)

    def linear_constraints(self) -> LinearConstraints:
        """Return that rows and columns have at most one partner, and those of the full side one.

        These constraints describe the polytope of matchings exactly (Birkhoff 1946).
        """
        return LinearConstraints.deferred(self._rows_and_columns)

    def _rows_and_columns(self) -> LinearConstraints:
        m, n = self.n_rows.astype(np.int64), self.n_columns.astype(np.int64)
        arity = np.diff(self.offsets)
        owner, slot = np.repeat(np.arange(self.n_factors), arity), np.arange(arity.sum())
        row, column = np.divmod(slot - self.offsets[owner], n[owner])
        sides = []
        for line, size, other in ((row, m, n), (column, n, m)):
            first = np.cumsum(size) - size
            full = (self.saturates != 0.0) & (size <= other)
            low = np.repeat(np.where(full, 1.0, -np.inf), size)
            sides.append(LinearConstraints(first[owner] + line, slot, 1.0, low, 1.0))
        return LinearConstraints.together(*sides)
