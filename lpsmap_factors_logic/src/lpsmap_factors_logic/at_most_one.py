"""`AtMostOne`: no more than one variable of a row is on."""

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
from lpsmap_core.api import FloatArray, IntArray, sum_constrained_jvp
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, Tables
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor
from lpsmap_factors_logic.simplex import project_simplex_rows
from lpsmap_factors_logic.structures import Assignment, best_variable, indicator, write_single
from lpsmap_factors_logic.sum_constrained import AT_MOST
from lpsmap_factors_logic.tables import one_block


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn on the best variable of every row if its score is positive."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        structures.size[r] = 0
        if len(eta_u) > 0:
            best = best_variable(eta_u)
            if eta_u[best] > 0.0:
                write_single(r, best, structures)


@leaf
def _project(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, AT_MOST)


def _as_tables(factors: Factors) -> Tables:
    """Return every row as a variable with one state for each slot and one for all off.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    return one_block(factors, False)


class AtMostOne(LogicFactor, HypergraphFactor):
    """At most one variable of every row is on.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  z >= 0, <delta, z> <= 1`` (Niculae & Martins
    2020, Eq. 83).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`. A row may have no variable.
    """

    map_kernel = staticmethod(_best_assignments)
    as_tables = staticmethod(_as_tables)
    projection_kernel = staticmethod(_project)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on the best variable if its score is positive."""
        chosen = [int(np.argmax(eta_u))] if (eta_u > 0).any() else []
        return indicator(len(eta_u), chosen)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of one hyperedge for every variable, and one for none."""
        slots = np.arange(row.event_shape[0])
        build.edge(0)
        build.edges(np.zeros_like(slots), slots=slots)
        return 0

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that every row sums to at most 1."""
        return bounded_sums(self, -np.inf, 1.0)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``z >= 0, <delta, z> <= 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, AT_MOST)
