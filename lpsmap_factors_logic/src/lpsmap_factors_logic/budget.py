"""`Budget`: the number of variables of a row that are on is limited or fixed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    LocalSolution,
    Scores,
    Structures,
    Variables,
    bounded_sums,
    kernel,
    largest_arity,
)
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    sum_constrained_jvp,
    truth_values,
)
from lpsmap_dynamic import (
    HypergraphBuilder,
    HypergraphFactor,
    Row,
    min_subset_paths,
    project_budget_rows,
    subset_hypergraph,
)
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor, without_negated
from lpsmap_factors_logic.structures import Assignment, indicator
from lpsmap_factors_logic.sum_constrained import AT_MOST


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn on the best B variables of every row, unless forced only those with positive scores."""
    start, entry, value, size = structures
    negated = np.empty(largest_arity(rows, factors.offsets))
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        most, exact = int(factors.parameters[r, 0]), factors.parameters[r, 1] != 0.0
        for i in range(len(eta_u)):
            negated[i] = -eta_u[i]
        n = 0
        for i in np.argsort(negated[: len(eta_u)], kind="mergesort")[:most]:
            if exact or eta_u[i] > 0.0:
                entry[start[r] + n], value[start[r] + n] = i, 1.0
                n += 1
        size[r] = n


class Budget(LogicFactor, HypergraphFactor):
    """At most, or exactly, a given number of variables of every row are on.

    For the modifiers of a head of a `DepTree`, use `ModifierBudget`. A row of a tree's arcs holds
    the possible heads of one word, of which a tree has exactly one.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  0 <= z <= 1 / delta, <delta, z> <= B``, or
    ``= B`` (Niculae & Martins 2020, Eq. 82).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`. A row may have no variable.
    budget
        The whole number B, or an array that broadcasts to one number for every row. A number larger
        than the number of variables is no limit. For fractions of variables use `Knapsack` with
        costs of 1.
    force_budget
        Whether exactly B variables are on: one truth value, or an array likewise.

    Raises
    ------
    TypeError
        If `budget` does not hold numbers, or `force_budget` does not hold truth values.
    ValueError
        If a budget is negative or not whole, or if a forced budget exceeds the number of variables
        of its row.
    """

    map_kernel = staticmethod(_best_assignments)
    projection_kernel = staticmethod(project_budget_rows)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)

    @without_negated
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
        """Return the budget of each row, at most its number of variables."""
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
        """Return the assignment that turns on the best B, unless forced only positive scores."""
        best = np.argsort(-eta_u, kind="stable")[: int(self.budget)]
        return indicator(len(eta_u), best if self.force_budget else best[eta_u[best] > 0])

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of the subsets of limited size."""
        most = int(row["budget"])
        least = most if row["force_budget"] else 0
        return subset_hypergraph(build, row.event_shape[0], least, most)

    def min_paths(self) -> IntArray:
        """Return a lower bound of the number of paths of every row's hypergraph."""
        most = self.budget.astype(np.int64)
        least = np.where(self.force_budget, most, 0)
        return min_subset_paths(np.diff(self.offsets), least, most)

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that the sum of every row is at most, or exactly, its budget."""
        return bounded_sums(self, np.where(self.force_budget, self.budget, -np.inf), self.budget)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``0 <= z <= 1 / delta, <delta, z> <= B`` or ``= B`` in array-API code."""
        sense = AT_MOST * (1 - parameters[:, 1:2])
        return sum_constrained.project(a, delta, None, parameters[:, :1], sense)
