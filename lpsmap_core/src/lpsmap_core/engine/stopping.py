"""When a component leaves the loop, with which outcome, and which status that is for the user.

A new stopping rule is another result of `judge`, with its status in `STATUS_OF`. What it remembers
of a component is a field of `Progress`.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.status import Status
from lpsmap_jit.compile import leaf

ITERATING, CONVERGED, INFEASIBLE = 0, 1, 2
"""Outcomes of a component: it is in the loop, or was when a limit ended it; its residuals are
within the tolerances; its constraints are proven to contradict each other."""

STATUS_OF = np.array([Status.ITERATION_LIMIT, Status.CONVERGED, Status.INFEASIBLE], dtype=object)
"""The status of each outcome. `SolvedPart.status` replaces it where more is known."""

RESIDUAL_ROUNDING = 1e-14
"""Dual residuals below this multiple of a component's largest score are rounding."""

EXACT_RESIDUAL = 1e-12
"""Residuals up to this are rounding; the dual residual is relative to the largest score."""


@leaf
def judge(
    primal: float,
    dual: float,
    largest_score: float,
    at_inner_limit: bool,
    tol: float,
    dual_tol: float,
) -> int:
    """Return the outcome of a component with two residuals after an iteration.

    The copies have to agree within `tol`, and the scores that make them optimal within `dual_tol`,
    or as far as their rounding allows. Without the quadratic term, scores of any size are alike, so
    `dual_tol` is in units of the largest one if that is below 1. Local problems that ran out of
    iterations show neither.
    """
    allowed = max(dual_tol * min(1.0, largest_score), RESIDUAL_ROUNDING * largest_score)
    within = primal <= tol and dual <= allowed and not at_inner_limit
    return CONVERGED if within else ITERATING
