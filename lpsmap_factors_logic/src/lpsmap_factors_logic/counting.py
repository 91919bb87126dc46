"""Constraints on how many variables of a row are on: Xor, Or, AtMostOne, Budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    LocalScores,
    LocalSolution,
    Variables,
    bounded_sums,
    leaf,
)
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    project_budget_rows,
    sum_constrained_jvp,
    truth_values,
)
from lpsmap_factors_logic import oracles, sum_constrained
from lpsmap_factors_logic.rows import LogicFactor
from lpsmap_factors_logic.simplex import project_simplex_rows
from lpsmap_factors_logic.sum_constrained import AT_LEAST, AT_MOST, EXACTLY
from lpsmap_factors_logic.tables import TableFields

__all__ = ["AtMostOne", "Budget", "Or", "Xor"]

Assignment = tuple[int, ...]


@leaf
def _xor(rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, EXACTLY)


@leaf
def _or(rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, AT_LEAST)


@leaf
def _at_most_one(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    project_simplex_rows(rows, factors.offsets, scores, solution, AT_MOST)


MOST_IN_TABLE = 6
"""Variables of a disjunction that still makes a table, of 64 entries."""


def _exactly_one(factors: Factors) -> TableFields:
    """Return rows as a variable each, with a state for every slot.

    Parameters
    ----------
    factors
        All of a bucket.
    """
    return _one_block(factors, True)


def _one_or_none(factors: Factors) -> TableFields:
    """Return rows as a variable each, with a state for every slot and one more.

    Parameters
    ----------
    factors
        All of a bucket.
    """
    return _one_block(factors, False)


def _one_block(factors: Factors, always: bool) -> TableFields:
    arity = np.diff(factors.offsets)
    n_entries = int((arity + (not always)).sum())
    n_blocks = np.ones(len(arity), dtype=np.int64)
    return TableFields(n_blocks, arity, always, np.zeros(n_entries), np.full(n_entries, -1))


def _disjunctions(factors: Factors) -> TableFields | None:
    """Return rows as tables whose last entry, of all off, is not allowed; None for long ones.

    Parameters
    ----------
    factors
        All of a bucket.
    """
    arity = np.diff(factors.offsets)
    if arity.max(initial=0) > MOST_IN_TABLE:
        return None
    ends = np.cumsum(2**arity)
    n_entries = int(ends[-1]) if len(ends) else 0
    fixed = np.zeros(n_entries)
    fixed[ends - 1] = -np.inf
    sizes = np.ones(int(arity.sum()), dtype=np.int64)
    return TableFields(arity, sizes, False, fixed, np.full(n_entries, -1))


class Xor(LogicFactor):
    """Exactly one variable of every row is on.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  z >= 0, <delta, z> = 1``; alone in a graph, where
    ``delta = 1``, sparsemax (Niculae & Martins 2020, appendix D.2.1).

    Parameters
    ----------
    variables
        Variables of shape (..., n), or a sequence of views to stack.
    axis
        The axis along which exactly one is on: ``Xor(u, axis=0)`` is a factor for every column.
    mask
        Booleans that broadcast to ``variables.shape``: which variables take part.
    lengths
        For every row, how many variables take part, counted from the first.

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

    map_kernel = staticmethod(oracles.one)
    as_tables = staticmethod(_exactly_one)
    projection_kernel = staticmethod(_xor)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    needs_variables = "because exactly one of them must be on"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on the best variable."""
        return _indicator(len(eta_u), [int(np.argmax(eta_u))])

    def linear_constraints(self) -> LinearConstraints:
        """Return that the sum of every row is 1."""
        return bounded_sums(self, 1.0, 1.0)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``z >= 0, <delta, z> = 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, EXACTLY)


class Or(LogicFactor):
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

    map_kernel = staticmethod(oracles.one_or_more)
    as_tables = staticmethod(_disjunctions)
    projection_kernel = staticmethod(_or)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    needs_variables = "because at least one of them must be on"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on what scores above 0, else the best variable."""
        chosen = np.flatnonzero(eta_u > 0)
        return _indicator(len(eta_u), chosen if chosen.size else [int(np.argmax(eta_u))])

    def linear_constraints(self) -> LinearConstraints:
        """Return that the sum of every row is at least 1."""
        return bounded_sums(self, 1.0, np.inf)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``0 <= z <= 1 / delta, <delta, z> >= 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, AT_LEAST)


class AtMostOne(LogicFactor):
    """One variable of every row is on, or none.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  z >= 0, <delta, z> <= 1`` (Niculae & Martins
    2020, Eq. 83).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`. A row may have no variable.
    """

    map_kernel = staticmethod(oracles.at_most_one)
    as_tables = staticmethod(_one_or_none)
    projection_kernel = staticmethod(_at_most_one)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on the best variable if it scores above 0."""
        chosen = [int(np.argmax(eta_u))] if (eta_u > 0).any() else []
        return _indicator(len(eta_u), chosen)

    def linear_constraints(self) -> LinearConstraints:
        """Return that the sum of every row is at most 1."""
        return bounded_sums(self, -np.inf, 1.0)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``z >= 0, <delta, z> <= 1`` in array-API code."""
        return sum_constrained.project(a, delta, None, 1.0, AT_MOST)


class Budget(LogicFactor):
    """At most, or exactly, so many variables of every row are on.

    For the modifiers of a head of a `DepTree`, use `ModifierBudget`: a row of a tree's arcs holds
    the possible heads of one word, of which it has one anyway.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  0 <= z <= 1 / delta, <delta, z> <= B``, or
    ``= B`` (Niculae & Martins 2020, Eq. 82).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`. A row may have no variable.
    budget
        The whole number B, or an array of them that broadcasts to one for every row. More than a
        row has stands for all of it. For fractions of variables use `Knapsack` with costs of 1.
    force_budget
        Whether exactly B variables are on. One for all rows, or an array likewise.

    Raises
    ------
    TypeError
        If `budget` does not hold numbers, or `force_budget` truth values.
    ValueError
        If a budget is negative or not whole, or if exactly so many variables are to be on in a row
        that has fewer.
    """

    map_kernel = staticmethod(oracles.budget)
    projection_kernel = staticmethod(project_budget_rows)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        budget: npt.ArrayLike,
        force_budget: npt.ArrayLike = False,
        axis: int = -1,
        *,
        mask: npt.ArrayLike | None = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, axis, mask=mask, lengths=lengths)
        counts = self.counts("budget", budget)
        force = truth_values("Budget: force_budget", force_budget)
        self.force_budget = self.per_factor("force_budget", force)
        self.budget = self._budgets(counts)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph, mask = FactorGraph(), np.array([True, False, True, True])
        return [
            cls(graph.variable((4, 5)), [2, 1, 0, 3], lengths=[5, 3, 1, 2]),
            cls(graph.variable((4, 2)), [2, 3], [True, True], axis=0, mask=mask[:, None]),
        ]

    def _budgets(self, counts: IntArray) -> IntArray:
        """Return how many variables may be on in each row: no more than it has."""
        arity = np.diff(self.offsets)
        wrong = np.flatnonzero((self.force_budget != 0) & (counts > arity))
        if wrong.size:
            i = wrong[0]
            raise ValueError(
                f"Budget: budget of {self._name_of(i)} is {counts[i]} with force_budget, "
                f"but it covers {arity[i]} variables; expected at most as many. Lower the budget "
                "there, or leave force_budget out."
            )
        return np.minimum(counts, arity)

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return the assignment that turns on the best B, or fewer if fewer score above 0."""
        best = np.argsort(-eta_u, kind="stable")[: int(self.budget)]
        return _indicator(len(eta_u), best if self.force_budget else best[eta_u[best] > 0])

    def linear_constraints(self) -> LinearConstraints:
        """Return that the sum of every row is at most its budget, or is it."""
        return bounded_sums(self, np.where(self.force_budget, self.budget, -np.inf), self.budget)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``0 <= z <= 1 / delta, <delta, z> <= B`` or ``= B`` in array-API code."""
        sense = AT_MOST * (1 - parameters[:, 1:2])
        return sum_constrained.project(a, delta, None, parameters[:, :1], sense)


def _indicator(n: int, chosen: npt.ArrayLike) -> Assignment:
    y = np.zeros(n, dtype=np.int64)
    y[np.asarray(chosen, dtype=np.int64)] = 1
    return tuple(y.tolist())
