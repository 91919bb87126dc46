"""When a component leaves the loop, and with which outcome.

A new stopping rule is another result of `judge`. What it remembers of a component is a field of
`Progress`, and `SolvedPart.status` says what its outcome means for the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpsmap_jit.compile import leaf

if TYPE_CHECKING:
    from lpsmap_core.engine.problem import Progress

ITERATING, CONVERGED, INFEASIBLE = 0, 1, 2
"""Outcomes of a component: it is in the loop, or was when a limit ended it; its residuals are
within the tolerances; its constraints are proven to contradict each other."""


@leaf
def judge(c: int, progress: Progress, tol: float, dual_tol: float) -> int:
    """Return the outcome of a component after an iteration.

    The copies have to agree within `tol`, and the scores that make them optimal within `dual_tol`,
    or as far as their rounding allows. Local problems that ran out of iterations show neither.
    """
    agree = progress.primal_residual[c] <= tol
    optimal = progress.dual_residual[c] <= max(dual_tol, progress.rounding[c])
    within = agree and optimal and not progress.at_inner_limit[c]
    return CONVERGED if within else ITERATING
