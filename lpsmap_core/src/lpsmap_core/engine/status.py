"""How the solution of a component ended."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt


class Status(enum.Enum):
    """How the solution of a connected component ended; the value says what to do."""

    SOLVED = "Solved exactly: the optimality conditions hold to rounding."
    CONVERGED = "Converged to tol; Solution.error_bound bounds the error of the values."
    ITERATION_LIMIT = (
        "The outer iterations ran out before the residuals fell to tol: raise max_iter, or accept "
        "the residuals in Solution.primal_residual and dual_residual."
    )
    TIME_LIMIT = (
        "The time ran out before the residuals fell to tol: raise max_time, or accept the "
        "residuals in Solution.primal_residual and dual_residual."
    )
    INNER_ITERATION_LIMIT = (
        "The active set of a factor ran out of iterations, and the values are the best over the "
        "structures found: raise max_inner_iter, or accept them. Gradients are approximate too, as "
        "other structures belong to the solution. The same holds if a type's own solver gave up."
    )
    PRECISION_LIMIT = (
        "The scores of this component span more orders of magnitude than float64 can hold, and the "
        "values may be wrong: bring them closer together, or forbid with -inf."
    )
    INFEASIBLE = (
        "The constraints contradict each other, or allow only variables that a score of -inf "
        "forbids: relax one of the factors in Solution.contradictions, or a mask."
    )
    NON_FINITE = (
        "A score is NaN or +inf: correct the scores. The values of this component are NaN; other "
        "components are not affected."
    )

    @property
    def ok(self) -> bool:
        """Whether the values can be relied upon."""
        return self in OK

    def __repr__(self) -> str:
        return f"Status.{self.name}"


OK = (Status.SOLVED, Status.CONVERGED)
"""The statuses of components whose values can be relied upon."""


class Statuses(np.ndarray[Any, np.dtype[np.object_]]):
    """The statuses of components; as text, the count of each, such as ``30 SOLVED, 2 NON_FINITE``.

    Comparisons return plain arrays.
    """

    def __str__(self) -> str:
        counts = Counter(status.name for status in self.ravel().tolist())
        return ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))

    def __array_wrap__(self, array: npt.NDArray[Any], *_: Any) -> npt.NDArray[Any]:  # type: ignore[override]
        return array.view(np.ndarray)
