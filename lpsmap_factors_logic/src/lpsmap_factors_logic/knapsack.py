"""`Knapsack`: a bound on the total cost of the variables of a row that are on."""

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
    real_numbers,
    slot_values,
    sum_constrained_jvp,
)
from lpsmap_dynamic import project_budget_rows
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor, without_negated
from lpsmap_factors_logic.sum_constrained import AT_MOST

MIN_BUDGET, MAX_COST = 2.0**-4, 2.0**49
"""Range of the numbers of a row that need no scaling. Squares of costs do not overflow, and other
solvers, such as HiGHS, neither refuse nor drop coefficients."""

ROUNDING = 1e-15
"""Share of the budget by which a sum of costs may exceed it, such as .1 + .2 exceeds .3."""

NEGLIGIBLE = 2.0**-80
"""Share of the budget below which a cost is 0: sums of a million such costs are rounding."""


@kernel
def _best_vertices(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn variables on by score per cost until the budget is spent, the last one in part."""
    offsets, costs = factors.offsets, factors.link_parameter
    start, entry, value, size = structures
    negated = np.empty(largest_arity(rows, offsets))
    for r in rows:
        lo, n_variables = offsets[r], offsets[r + 1] - offsets[r]
        left, n = factors.parameters[r, 0], 0
        rounding = ROUNDING * left
        for i in range(n_variables):
            gain, cost = scores.eta_u[lo + i], costs[lo + i]
            negated[i] = np.inf
            if gain > 0.0:
                negated[i] = -gain / cost if cost > 0.0 else -np.inf
        for i in np.argsort(negated[:n_variables], kind="mergesort"):
            cost = costs[lo + i]
            if scores.eta_u[lo + i] <= 0.0 or (cost > left and left <= 0.0):
                break
            share = 1.0 if cost <= left + rounding else left / cost
            entry[start[r] + n], value[start[r] + n] = i, share
            n += 1
            left = max(left - share * cost, 0.0)
            if share < 1.0:
                break
        size[r] = n


class Knapsack(LogicFactor):
    """The total cost of the variables of a row that are on is at most a budget.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  0 <= z <= 1 / delta, <c * delta, z> <= B``
    (Niculae & Martins 2020, appendix D.2.3). The polytope is ``{0 <= m <= 1, <c, m> <= B}``.
    Some of its vertices have one fractional entry, so that it is larger than the convex hull of the
    feasible 0/1 assignments.

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`. A row may have no variable.
    costs
        Nonnegative numbers c that broadcast to ``variables.shape``. Those of variables that do not
        take part are ignored.
    budget
        A nonnegative number B, or an array that broadcasts to one number for every row.

    Raises
    ------
    TypeError
        If `costs` or `budget` does not hold real numbers.
    ValueError
        If a cost or a budget is negative or not finite.
    """

    map_kernel = staticmethod(_best_vertices)
    projection_kernel = staticmethod(project_budget_rows)
    jvp_kernel = staticmethod(sum_constrained_jvp)
    jvp = classmethod(sum_constrained.jvp)
    expected_failures = {
        "check_zero_one": "the polytope is relaxed: a vertex may have one fractional entry"
    }

    @without_negated
    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        costs: npt.ArrayLike,
        budget: npt.ArrayLike,
        axis: int = -1,
        *,
        mask: npt.ArrayLike | None = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, axis, mask=mask, lengths=lengths)
        self.costs = self.per_link(
            "costs", self._along_rows("costs", real_numbers("Knapsack: costs", costs))
        )
        self.budget = self.per_factor("budget", budget)
        if (self.costs < 0).any():
            raise ValueError(
                f"Knapsack: costs holds {self.costs.min():g}; expected numbers of 0 or more. "
                "Negate the variables of negative cost (~u), and add what they save to the budget."
            )
        wrong = np.flatnonzero(self.budget < 0)
        if wrong.size:
            raise ValueError(
                f"Knapsack: budget of {self._name_of(wrong[0])} is {self.budget[wrong[0]]:g}; "
                "expected 0 or more, the cost of turning nothing on."
            )

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph, mask = FactorGraph(), np.array([True, False, True, True])
        costs = np.array([1.0, 0.5, 2.0, 0.0, 3.0])
        return [
            cls(graph.variable((3, 5)), costs, [2.2, 0.0, 9.0], lengths=[5, 3, 2]),
            cls(graph.variable((4, 2)), costs[:4, None] + 1.0, 3.5, axis=0, mask=mask[:, None]),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[float, ...]:
        """Return the best vertex: by score per cost until the budget is spent, the last in part."""
        y, (costs, left) = np.zeros(len(eta_u)), _scaled_rows(self.costs, self.budget)
        rounding, wanted = ROUNDING * left, np.flatnonzero(eta_u > 0)
        cost = costs[wanted]
        gain = np.full(len(wanted), np.inf)
        np.divide(eta_u[wanted], cost, out=gain, where=cost > 0)
        for i in wanted[np.argsort(-gain, kind="stable")]:
            cost = costs[i]
            y[i] = 1.0 if cost <= left + rounding else left / cost
            left = max(left - y[i] * cost, 0.0)
            if y[i] < 1.0:
                break
        return tuple(y.tolist())

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that the total cost of every row is at most its budget."""
        costs, budget = self._kernel_numbers("costs"), self._kernel_numbers("budget")
        return bounded_sums(self, -np.inf, budget, slot_values(self, costs))

    def _kernel_numbers(self, name: str) -> FloatArray:
        """Return the costs, or the budgets, of scaled rows."""
        costs = self.costs if self.keep is None else np.where(self.keep, self.costs, 0.0)
        scaled, budget = _scaled_rows(costs, self.budget.reshape(self.batch_shape))
        return scaled if name == "costs" else budget.reshape(-1)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project onto ``0 <= z <= 1 / delta, <c * delta, z> <= B`` in array-API code."""
        return sum_constrained.project(a, delta, link_parameter, parameters[:, :1], AT_MOST)


def _scaled_rows(costs: FloatArray, budget: Any) -> tuple[FloatArray, Any]:
    """Return costs and budgets of rows with extreme numbers scaled, and others unchanged.

    The scale is a power of 2, which rounds nothing, and leaves the budget between 1/2 and 1. A cost
    above `MAX_COST` is then so many budgets that its variable is off up to rounding, and is reduced
    to that. A `NEGLIGIBLE` cost becomes 0. With a budget of 0 all positive costs mean the same, and
    become 1.

    Parameters
    ----------
    costs
        (..., n) costs.
    budget
        (...) budgets.
    """
    largest = np.maximum(costs.max(axis=-1, initial=0.0), budget)
    moderate = (largest <= MAX_COST) & (budget >= MIN_BUDGET)
    exponent = np.where(moderate, 0, -np.frexp(budget)[1])
    with np.errstate(over="ignore", under="ignore"):
        scaled, limit = np.ldexp(costs, exponent[..., None]), np.ldexp(budget, exponent)
        scaled = np.minimum(scaled, MAX_COST)
        scaled[scaled < NEGLIGIBLE * limit[..., None]] = 0.0
        is_zero = np.asarray(budget == 0.0)[..., None]
        return np.where(is_zero, np.sign(costs), scaled), limit
