"""The point at which the oracle is asked once structures only replace each other (Wentges 1997).

With nearly uniform scores and additionals, the marginals of slots are soon settled, and the linear
scores of additionals decide between structures as in a linear program. Its prices ``a - z`` then
swing, and most structures that join leave again. Any point x bounds the objective below, by

    1/2 ||a||^2 - 1/2 ||x||^2 - max_(w, n) (<a - x, w> + <eta_v, n>),

where the maximum is the oracle's answer at x. Once a set grows no longer, the oracle is asked close
to the *centre*, the point of the best bound so far. If its answer does not improve the set, the
bound rises, and the oracle is asked at z itself.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.local.active.memory import ActiveSet, LocalProblem, SetsRecord
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import leaf

SHARE = 0.9
"""Weight of the centre. With .5 and .8, nearly uniform sequences take up to three times as many
calls of the oracle, with .95 as many."""

PATIENCE = 10
"""Exchanges of a solve before the first smoothed point. Most solves need fewer, in which case a
smoothed point would cost a call of the oracle, and moving the centre a tenth of each."""


@leaf
def may_smooth(f: int, record: SetsRecord) -> bool:
    """Return whether structures have only replaced each other for a while in this solve.

    Without additionals nothing is linear.
    """
    return len(record.centre) > 0 and record.exchanges[f] >= PATIENCE


@leaf
def begin_smoothing(f: int, problem: LocalProblem, z: FloatArray, record: SetsRecord) -> None:
    """Forget the centre of an earlier solve, and ask at `z` first."""
    record.exchanges[f], record.smooths[f], record.bound[f] = 0, 0, -np.inf
    if len(record.centre) > 0:
        for i in range(problem.offsets[f], problem.offsets[f + 1]):
            record.centre[i] = z[i]


@leaf
def asked_at(i: int, f: int, z: FloatArray, record: SetsRecord) -> float:
    """Return the coordinate of slot `i` of factor `f` in the point at which the oracle is asked."""
    share = SHARE if record.smooths[f] != 0 else 0.0
    return float(z[i] + share * (record.centre[i] - z[i]) if share > 0.0 else z[i])


@leaf
def move_centre(
    f: int,
    place: int,
    problem: LocalProblem,
    active_set: ActiveSet,
    z: FloatArray,
    record: SetsRecord,
) -> None:
    """Move the centre to the point of the latest call if its bound is better.

    The answer is the structure at `place`. Forced slots add the same number to all bounds.
    """
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin, bound = place * active_set.width, 0.0
    middle = begin + active_set.of_variables[place]
    for i in range(lo, hi):
        bound -= 0.5 * asked_at(i, f, z, record) ** 2
    for e in range(begin, middle):
        i = lo + active_set.entry[e]
        if abs(problem.a[i]) < np.inf:
            price = (problem.a[i] - asked_at(i, f, z, record)) * problem.inverse_delta[i]
            bound -= price * active_set.value[e]
    first = problem.additional_offsets[f] - (hi - lo)
    for e in range(middle, begin + active_set.size[place]):
        bound -= problem.eta_v[first + active_set.entry[e]] * active_set.value[e]
    if bound > record.bound[f]:
        record.bound[f] = bound
        for i in range(lo, hi):
            record.centre[i] = asked_at(i, f, z, record)
