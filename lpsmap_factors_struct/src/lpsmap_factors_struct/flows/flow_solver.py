"""The solution of a chain's local problem by flows: interior-point method, then exact face."""

from __future__ import annotations

from lpsmap_core import leaf
from lpsmap_factors_struct.flows.chain import BARRED, FLOW_SOLVED, Chain
from lpsmap_factors_struct.flows.cycles import cancel_cycles
from lpsmap_factors_struct.flows.flow_face import choose_face, refine_face
from lpsmap_factors_struct.flows.initial_point import (
    prune_edges,
    reduce_scores,
    shift_potentials,
    write_initial_point,
)
from lpsmap_factors_struct.flows.interior_point import follow_path

__all__ = ["solve_chain"]

TOLERANCE = 1e-7
"""Tolerance of the interior-point method before a face is chosen, for slacks of about 1."""

TOLERANCE_FACTOR = 30.0
"""Reduction of the tolerance if that face was not the right one."""

MAX_ATTEMPTS = 5
"""Maximum number of tolerances that are tried."""

MAX_WARM_ROUNDS, MAX_ROUNDS = 20, 20
"""Maximum number of faces, after a warm start and after the interior-point method."""


@leaf
def solve_chain(chain: Chain) -> bool:
    """Solve the problem in a chain's workspace; returns whether it is solved exactly.

    If the flow solves another problem, its face is tried first.
    """
    flow = chain.flow
    warm = flow.header[FLOW_SOLVED] == 1.0
    flow.header[FLOW_SOLVED] = 0.0
    if reduce_scores(chain) < -0.5 * BARRED:
        return False
    if warm:
        shift_potentials(chain, -1.0)
    if not (warm and refine_face(chain, MAX_WARM_ROUNDS)) and not _solve_anew(chain):
        return False
    cancel_cycles(chain)
    shift_potentials(chain, 1.0)
    flow.header[FLOW_SOLVED] = 1.0
    return True


@leaf
def _solve_anew(chain: Chain) -> bool:
    """Solve the problem of reduced scores without a warm start."""
    typical = prune_edges(chain)
    tol = TOLERANCE * min(typical, 1.0)
    for _ in range(MAX_ATTEMPTS):
        write_initial_point(chain, typical)
        if not follow_path(chain, tol):
            return False
        choose_face(chain, typical)
        if refine_face(chain, MAX_ROUNDS):
            return True
        tol /= TOLERANCE_FACTOR
    return False
