"""The solution of a chain's local problem, and products with its derivative."""

from __future__ import annotations

from lpsmap_core import leaf
from lpsmap_factors_struct.flows.chain import BARRED, KNOWN, Chain
from lpsmap_factors_struct.flows.cycles import cancel_cycles
from lpsmap_factors_struct.flows.face import choose_face, settle_face
from lpsmap_factors_struct.flows.interior import follow_path
from lpsmap_factors_struct.flows.start import (
    leave_out,
    move_potentials,
    reduce_scores,
    start_inside,
)

__all__ = ["solve_chain"]

TOLERANCE = 1e-7
"""How close the interior method comes before a face is tried, for slacks of about 1."""

TIGHTER = 30.0
"""How much closer it comes if that was not the right face."""

MOST_TRIES = 5

FEW_ROUNDS, MOST_ROUNDS = 20, 20
"""Faces that are tried from an earlier one, and from the interior."""


@leaf
def solve_chain(chain: Chain) -> bool:
    """Solve the problem in a chain's room; returns whether it is solved exactly.

    Where the flow is known to solve another problem, its face is tried first.
    """
    flow = chain.flow
    warm = flow.facts[KNOWN] == 1.0
    flow.facts[KNOWN] = 0.0
    if reduce_scores(chain) < -0.5 * BARRED:
        return False
    if warm:
        move_potentials(chain, -1.0)
    if not (warm and settle_face(chain, FEW_ROUNDS)) and not _solve_anew(chain):
        return False
    cancel_cycles(chain)
    move_potentials(chain, 1.0)
    flow.facts[KNOWN] = 1.0
    return True


@leaf
def _solve_anew(chain: Chain) -> bool:
    """Solve the problem of reduced scores from nothing."""
    typical = leave_out(chain)
    tol = TOLERANCE * min(typical, 1.0)
    for _ in range(MOST_TRIES):
        start_inside(chain, typical)
        if not follow_path(chain, tol):
            return False
        choose_face(chain, typical)
        if settle_face(chain, MOST_ROUNDS):
            return True
        tol /= TIGHTER
    return False
