"""Weights of an active set: their optimum, and structures that join and leave on the way to it."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.kernels.interrupts import interrupted
from lpsmap_core.local.active.gram import (
    append_structure,
    dependency,
    newcomer_direction,
    refactorise,
    remove,
    residual_direction,
    weight_residual,
)
from lpsmap_core.local.active.memory import ActiveSet

__all__ = ["exchange", "refine", "settle", "welcome"]

NEGLIGIBLE = 1e-14
"""Weights up to this are zero: the rounding of a sum of weights that is one."""

DRIFT = 1e-11
"""Relative residual of the weights beyond which they are refined, then their matrix
refactorised.
"""


@leaf
def welcome(gap: float, own: ActiveSet, work: FloatArray) -> bool:
    """Move the weights of a set that was at its optimum until a structure joined with weight zero.

    Returns false if the newcomer gets no weight: its gap was rounding.
    """
    newest = own.order[own.active[0] - 1]
    newcomer_direction(gap, work[0], own)
    blocking, step = _step(work[0], own)
    if blocking < 0:
        return True
    rejected = own.order[blocking] == newest
    remove(blocking, own)
    settle(own, work)
    return not (rejected and step == 0.0)


@leaf
def exchange(place: int, own: ActiveSet, work: FloatArray) -> bool:
    """Take in a structure that depends affinely on the active ones, in exchange for one of them.

    Weight moves along the dependency, on which z is constant and the objective falls linearly,
    until an active structure's weight is zero; that one leaves. Two structures that share all
    variables and differ in additionals are the smallest such case. Returns false if nothing can be
    exchanged.
    """
    capacity = len(own.order)
    count = own.active[0]
    share = work[0]
    dependency(share, own)
    leaving, step = -1, np.inf
    for k in range(count):
        if share[k] > 1e-9 and own.p[k] < step * share[k]:
            leaving, step = k, own.p[k] / share[k]
    if leaving < 0:
        return False
    for k in range(count):
        own.p[k] -= step * share[k]
    remove(leaving, own)
    for k in range(count - 1, capacity):  # the newcomer's place is the next in the order
        if own.order[k] == place:
            own.order[k] = own.order[count - 1]
            own.order[count - 1] = place
    if not append_structure(place, own, work[0]):
        settle(own, work)
        return False
    own.p[count - 1] = step
    own.active[0] = count
    settle(own, work)
    return True


@leaf
def settle(own: ActiveSet, work: FloatArray) -> None:
    """Move the weights to the optimum of their set; structures whose weight falls to zero leave."""
    while own.active[0] > 1:
        total, _, _ = weight_residual(own, work[0])
        residual_direction(1.0 - total, work[0], own)
        blocking, _ = _step(work[0], own)
        if blocking < 0:
            return
        remove(blocking, own)
        if interrupted():
            return
    own.p[0] = 1.0


@leaf
def _step(direction: FloatArray, own: ActiveSet) -> tuple[int, float]:
    """Step along a direction until a weight reaches zero, at most the whole way.

    Returns the place in the order of the weight that blocks, or -1, and the length of the step.
    """
    blocking, step = -1, 1.0
    for k in range(own.active[0]):
        weight = own.p[k]
        if weight + direction[k] > NEGLIGIBLE:
            continue
        until = 0.0
        if direction[k] < 0.0 and weight > 0.0:
            until = min(1.0, weight / -direction[k])
        if blocking < 0 or until < step:
            blocking, step = k, until
    for k in range(own.active[0]):
        own.p[k] += step * direction[k]
    return blocking, step


@leaf
def refine(own: ActiveSet, work: FloatArray) -> bool:
    """Bring the weights to the last digit; return whether they had drifted."""
    drifted = False
    for attempt in range(4):
        if own.active[0] < 2:
            break
        _, scale, residual = weight_residual(own, work[0])
        if residual <= DRIFT * (scale + 1.0):
            break
        drifted = True
        if attempt == 2:
            refactorise(own, work[0])
        settle(own, work)
    return drifted and attempt < 3
