"""Weights of an active set: their optimum, and structures that join and leave on the way to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import leaf
from lpsmap_core.gram import (
    Store,
    append,
    dependency,
    newcomer_direction,
    refactorise,
    remove,
    residual_direction,
    weight_residual,
)

__all__ = ["exchange", "refine", "settle", "welcome"]

FloatArray = npt.NDArray[np.float64]

NEGLIGIBLE = 1e-14
"""Weights up to this are zero: the rounding of a sum of weights that is one."""

DRIFT = 1e-11
"""Relative residual of the weights beyond which they are refined, then their matrix
refactorised.
"""


@leaf
def welcome(f: int, gap: float, store: Store, capacity: int, work: FloatArray) -> bool:
    """Move the weights of a set that was at its optimum until a structure joined with weight zero.

    Returns false if the newcomer gets no weight: its gap was rounding.
    """
    base = f * capacity
    newest = store.order[base + store.active[f] - 1]
    newcomer_direction(f, gap, work[0], store, capacity)
    blocking, step = _step(f, work[0], store, capacity)
    if blocking < 0:
        return True
    rejected = store.order[base + blocking] == newest
    remove(f, blocking, store, capacity)
    settle(f, store, capacity, work)
    return not (rejected and step == 0.0)


@leaf
def exchange(f: int, place: int, store: Store, capacity: int, work: FloatArray) -> bool:
    """Take in a structure that depends affinely on the active ones, in exchange for one of them.

    Weight moves along the dependency, on which z is constant and the objective falls linearly,
    until an active structure's weight is zero; that one leaves. Two structures that share all
    variables and differ in additionals are the smallest such case. Returns false if nothing can be
    exchanged.
    """
    base, count = f * capacity, store.active[f]
    share = work[0]
    dependency(f, share, store, capacity)
    leaving, step = -1, np.inf
    for k in range(count):
        if share[k] > 1e-9 and store.p[base + k] < step * share[k]:
            leaving, step = k, store.p[base + k] / share[k]
    if leaving < 0:
        return False
    for k in range(count):
        store.p[base + k] -= step * share[k]
    remove(f, leaving, store, capacity)
    for k in range(count - 1, capacity):  # the newcomer's place is the next in the order
        if store.order[base + k] == place:
            store.order[base + k] = store.order[base + count - 1]
            store.order[base + count - 1] = place
    if not append(f, place, store, capacity, work[0]):
        settle(f, store, capacity, work)
        return False
    store.p[base + count - 1] = step
    store.active[f] = count
    settle(f, store, capacity, work)
    return True


@leaf
def settle(f: int, store: Store, capacity: int, work: FloatArray) -> None:
    """Move the weights to the optimum of their set; structures whose weight falls to zero leave."""
    while store.active[f] > 1:
        total, _, _ = weight_residual(f, store, capacity, work[0])
        residual_direction(f, 1.0 - total, work[0], store, capacity)
        blocking, _ = _step(f, work[0], store, capacity)
        if blocking < 0:
            return
        remove(f, blocking, store, capacity)
    store.p[f * capacity] = 1.0


@leaf
def _step(f: int, direction: FloatArray, store: Store, capacity: int) -> tuple[int, float]:
    """Step along a direction until a weight reaches zero, at most the whole way.

    Returns the place in the order of the weight that blocks, or -1, and the length of the step.
    """
    base = f * capacity
    blocking, step = -1, 1.0
    for k in range(store.active[f]):
        weight = store.p[base + k]
        if weight + direction[k] > NEGLIGIBLE:
            continue
        until = 0.0
        if direction[k] < 0.0 and weight > 0.0:
            until = min(1.0, weight / -direction[k])
        if blocking < 0 or until < step:
            blocking, step = k, until
    for k in range(store.active[f]):
        store.p[base + k] += step * direction[k]
    return blocking, step


@leaf
def refine(f: int, store: Store, capacity: int, work: FloatArray) -> bool:
    """Bring the weights to the last digit; return whether they had drifted."""
    drifted = False
    for attempt in range(4):
        if store.active[f] < 2:
            break
        _, scale, residual = weight_residual(f, store, capacity, work[0])
        if residual <= DRIFT * (scale + 1.0):
            break
        drifted = True
        if attempt == 2:
            refactorise(f, store, capacity, work[0])
        settle(f, store, capacity, work)
    return drifted and attempt < 3
