"""`Xor`, and `XorOut`: exactly one variable of a row is on."""

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
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, Tables
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor
from lpsmap_factors_logic.simplex import project_simplex_rows
from lpsmap_factors_logic.structures import Assignment, best_variable, indicator, write_single
from lpsmap_factors_logic.sum_constrained import EXACTLY
from lpsmap_factors_logic.tables import one_block


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn on the best variable of every row."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        write_single(r, best_variable(eta_u), structures)


@leaf
def _project(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, EXACTLY)


def _as_tables(factors: Factors) -> Tables:
    """Return every row as a variable with one state for each slot.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    return one_block(factors, True)


class Xor(LogicFactor, HypergraphFactor):
    """Exactly one variable of every row is on.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  z >= 0, <delta, z> = 1``. Alone in a graph, where
    ``delta = 1``, its solution is sparsemax (Niculae & Martins 2020, appendix D.2.1).

    Parameters
    ----------
    variables
        Variables of shape (..., n), or a sequence of views to stack.
    axis
        The axis along which exactly one is on: ``Xor(u, axis=0)`` is a factor for every column.
    mask
        Booleans that broadcast to ``variables.shape``: the variables that take part.
    lengths
        For every row, the number of variables that take part, counted from the first.

    Raises
    ------
    ValueError
        If a row has no variable.

    Examples
    --------
    >>> import lpsmap
    >>> fg = lpsmap.FactorGraph()
    >>> u = fg.variable_from([[1.0, 0.6, -1.0], [0.0, 0.0, 5.0]])
    >>> factor = fg.add(lpsmap.Xor(u))
    >>> solution = fg.solve()
    >>> print(u.value.round(6))
    [[0.7 0.3 0. ]
     [0.  0.  1. ]]
    """

    map_kernel = staticmethod(_best_assignments)
    as_tables = staticmethod(_as_tables)
    projection_kernel = staticmethod(_project)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    needs_variables = "because exactly one of them must be on"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on the best variable."""
        return indicator(len(eta_u), [int(np.argmax(eta_u))])

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of one hyperedge for every variable."""
        slots = np.arange(row.event_shape[0])
        build.edges(np.zeros_like(slots), slots=slots)
        return 0

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that every row sums to 1."""
        return bounded_sums(self, 1.0, 1.0)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``z >= 0, <delta, z> = 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, EXACTLY)


class XorOut(Xor):
    """At most one variable of a row before the last is on, and the last says whether one is.

    It is the `Xor` whose last variable is negated (Niculae & Martins 2020, appendix D.2.5).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`. Without inputs the output is off.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return self._outputs()
