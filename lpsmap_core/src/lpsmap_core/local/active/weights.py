"""The weights of an active set: their optimum, and structures that join and leave on the way."""

from __future__ import annotations

import numpy as np

from lpsmap_core.local.active.gram import (
    GramWorkspace,
    append_structures,
    find_combination,
    find_direction,
    forward_residual,
    mean_residual,
    refactorise,
    remove,
)
from lpsmap_core.local.active.memory import ActiveSet, n_newcomers
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import interrupted

NEGLIGIBLE = 1e-14
"""Weights up to this are zero: the rounding of a sum of weights that is one."""

MIN_COEFFICIENT = 1e-9
"""Smallest coefficient of an active structure that can be exchanged for a dependent one."""

DRIFT = 1e-11
"""Relative residual above which weights are refined, and then their matrix is refactorised."""


@leaf
def write_mixture(active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray) -> None:
    """Write z = W p."""
    z[:] = 0.0
    for k in range(active_set.active[0]):
        place, weight = active_set.order[k], active_set.p[k]
        begin = place * active_set.width
        index = active_set.entry[begin : begin + active_set.of_variables[place]]
        value = active_set.value[begin : begin + active_set.of_variables[place]]
        for e in range(len(index)):
            z[index[e]] += weight * value[e]
    for i in range(len(z)):
        z[i] *= inverse_delta[i]


@leaf
def add_waiting(
    gap: float, active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: GramWorkspace
) -> bool:
    """Add the waiting structures and move the weights to the optimum.

    A small set that one structure joins is at its optimum except for the `gap` of that structure.
    Large sets drift until rounding makes structures join and leave, so their residual is
    recomputed. Returns false if no newcomer stays. The gain was then rounding, since the optimum
    without the newcomers was found before.
    """
    first, n = active_set.active[0], active_set.waiting[0]
    settled = n_newcomers(first) == 1
    if settled:
        work.columns[0, first] = gap
    else:
        mean_residual(active_set, inverse_delta, z, work)
    active_set.waiting[0] = 0
    for k in range(first, first + n):
        active_set.p[k] = 1.0 if first == 0 else 0.0
    joined = append_structures(first, n, active_set, inverse_delta, work, settled)
    if joined == 0:
        return _exchange(active_set, inverse_delta, z, work)
    return first == 0 or _descend(joined, active_set, work) > 0


@leaf
def _exchange(
    active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: GramWorkspace
) -> bool:
    """Exchange an active structure for one that depends affinely on the active ones.

    The newcomer is the next structure in the order. Weight moves along the dependency, on which z
    is constant and the objective decreases linearly, until the weight of an active structure is
    zero. That structure leaves. In the smallest example, two structures have the same variables and
    different additionals. Returns false if no exchange is possible.
    """
    count, share = active_set.active[0], work.direction
    find_combination(active_set, work)
    leaving, step = -1, np.inf
    for k in range(count):
        if share[k] > MIN_COEFFICIENT and active_set.p[k] < step * share[k]:
            leaving, step = k, active_set.p[k] / share[k]
    if leaving < 0:
        return False
    for k in range(count):
        active_set.p[k] -= step * share[k]
    remove(leaving, active_set, work)
    newcomer, active_set.order[count] = active_set.order[count], active_set.order[count - 1]
    active_set.order[count - 1], active_set.p[count - 1] = newcomer, step
    joined = append_structures(count - 1, 1, active_set, inverse_delta, work, True)
    optimise(active_set, inverse_delta, z, work)
    return joined == 1


@leaf
def optimise(
    active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: GramWorkspace
) -> None:
    """Move the weights to the optimum of their set; structures of weight zero leave.

    Overwrites z.
    """
    write_mixture(active_set, inverse_delta, z)
    mean_residual(active_set, inverse_delta, z, work)
    forward_residual(active_set, work)
    _descend(0, active_set, work)


@leaf
def _descend(joined: int, active_set: ActiveSet, work: GramWorkspace) -> int:
    """Move the weights to the optimum along the residual r; the first column holds ``L^-1 r``.

    Structures whose weight falls to zero leave. Returns how many of the last `joined` ones stay.
    """
    residual = work.columns[0]
    while active_set.active[0] > 1:
        total = 1.0
        for k in range(active_set.active[0]):
            total -= active_set.p[k]
        find_direction(total, active_set, work)
        blocking, step = _step(work.direction, active_set)
        if blocking < 0:
            return joined
        for k in range(active_set.active[0]):
            residual[k] *= 1.0 - step
        joined -= blocking >= active_set.active[0] - joined
        remove(blocking, active_set, work)
        if interrupted():
            return joined
    active_set.p[0] = 1.0
    return joined


@leaf
def _step(direction: FloatArray, active_set: ActiveSet) -> tuple[int, float]:
    """Step along a direction until a weight reaches zero, at most by a full step.

    Returns the position of the blocking weight, or -1, and the length of the step.
    """
    # the largest step of at most 1 with p + step x >= 0
    blocking, step = -1, 1.0
    for k in range(active_set.active[0]):
        weight = active_set.p[k]
        if weight + direction[k] > NEGLIGIBLE:
            continue
        until = 0.0
        if direction[k] < 0.0 and weight > 0.0:
            until = min(1.0, weight / -direction[k])
        if blocking < 0 or until < step:
            blocking, step = k, until
    for k in range(active_set.active[0]):
        active_set.p[k] += step * direction[k]
    return blocking, step


@leaf
def refine(
    active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: GramWorkspace
) -> bool:
    """Refine the weights of the mixture z to the last digit; return whether they had drifted."""
    drifted = False
    for attempt in range(4):
        if active_set.active[0] < 2:
            break
        scale, residual = mean_residual(active_set, inverse_delta, z, work)
        if residual <= DRIFT * (scale + 1.0):
            break
        drifted = True
        if attempt == 2:
            refactorise(active_set, inverse_delta, work)
        optimise(active_set, inverse_delta, z, work)
        write_mixture(active_set, inverse_delta, z)
    return drifted and attempt < 3
