"""`Or`, and `Nand` and `Imply`: at least one variable of a row is on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from lpsmap_core import (
    Factors,
    LinearConstraints,
    LocalScores,
    LocalSolution,
    Scores,
    Structures,
    bounded_sums,
    kernel,
    leaf,
)
from lpsmap_core.api import BoolArray, FloatArray, IntArray, sum_constrained_jvp
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, Tables, subset_hypergraph
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor
from lpsmap_factors_logic.simplex import project_simplex_rows
from lpsmap_factors_logic.structures import (
    Assignment,
    best_variable,
    indicator,
    write_positive,
    write_single,
)
from lpsmap_factors_logic.sum_constrained import AT_LEAST

MAX_IN_TABLE = 6
"""Maximum number of variables of a row that is represented by a table, which has 64 entries."""


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn on the variables with positive scores, or else the best variable."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        write_positive(r, eta_u, structures)
        if structures.size[r] == 0:
            write_single(r, best_variable(eta_u), structures)


@leaf
def _project(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, AT_LEAST)


def _as_tables(factors: Factors) -> Tables | None:
    """Return rows as tables whose last entry, all variables off, is forbidden; None for long rows.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    arity = np.diff(factors.offsets)
    if arity.max(initial=0) > MAX_IN_TABLE:
        return None
    lengths, which = np.unique(arity, return_inverse=True)
    ends = np.cumsum(2**lengths)
    n_entries = int(ends[-1]) if len(ends) else 0
    fixed = np.zeros(n_entries)
    fixed[ends - 1] = -np.inf
    sizes, first_entry = np.ones(int(arity.sum()), dtype=np.int64), (ends - 2**lengths)[which]
    return Tables(arity, sizes, False, first_entry, fixed, np.full(n_entries, -1))


class Or(LogicFactor, HypergraphFactor):
    """At least one variable of every row is on.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  0 <= z <= 1 / delta, <delta, z> >= 1`` (Niculae &
    Martins 2020, appendix D.2.2).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    map_kernel = staticmethod(_best_assignments)
    as_tables = staticmethod(_as_tables)
    projection_kernel = staticmethod(_project)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    needs_variables = "because at least one of them must be on"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on positive scores, or else the best variable."""
        chosen = np.flatnonzero(eta_u > 0)
        return indicator(len(eta_u), chosen if chosen.size else [int(np.argmax(eta_u))])

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of all subsets but the empty one."""
        return subset_hypergraph(build, row.event_shape[0], least=1)

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that every row sums to at least 1."""
        return bounded_sums(self, 1.0, np.inf)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``0 <= z <= 1 / delta, <delta, z> >= 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, AT_LEAST)


class Nand(Or):
    """Not all variables of every row are on.

    It is the `Or` of the negated variables (Niculae & Martins 2020, Eq. 84).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return True


class Imply(Or):
    """If all variables of a row but the last are on, the last is on.

    It is the `Or` whose variables before the last are negated (Niculae & Martins 2020, Eq. 86).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`: the last variable that takes part in a row is the consequence of the others.
        Alone in its row, it must be on.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return ~self._outputs()
