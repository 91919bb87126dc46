"""The two best assignments of components of one factor each, by its oracle.

The second best differs from the best in some variable: it is the best of those given the other
value of each variable in turn, for all components together. Counts only need two variables: the
second best of them lacks the least slot that is on, or has the best that is off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import BoolArray, Bucket, FloatArray, IntArray, Part, best_feasible, ranges
from lpsmap_dynamic import count_bounds

__all__ = ["two_best"]

MAX_SLOTS = 400
"""Maximum number of slots of a factor other than a count, each of which takes a call of the oracle.
"""

Scored = list[tuple[float, BoolArray]]


def two_best(
    part: Part, eta: FloatArray, eta_v: FloatArray, deadline: Deadline
) -> dict[int, Scored]:
    """Return the scores and flags of the best assignments; fewer than two if there are no more.

    Components of several factors are left out, and all if there is no time.
    """
    n_factors = np.bincount(part.spans.component, minlength=part.n_components)
    alone = (n_factors == 1) & (part.sizes == np.diff(part.first_variable))
    found: dict[int, Scored] = {}
    for b, bucket in enumerate(part.buckets):
        few = count_bounds(bucket) is not None or part.sizes <= MAX_SLOTS
        rows = np.flatnonzero((alone & few)[bucket.component])
        if rows.size:
            of_bucket = eta_v[part.additionals_of(b)][ranges(bucket.additional_offsets, rows)]
            found |= _of_bucket(bucket.select(rows), part, eta, of_bucket, deadline)
    return {} if deadline.passed else found


def _of_bucket(
    bucket: Bucket, part: Part, eta: FloatArray, eta_v: FloatArray, deadline: Deadline
) -> dict[int, Scored]:
    """Return the assignments of the components of a bucket's factors."""
    owner = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))
    gains, forbidden = eta[bucket.variable], np.isneginf(eta_v)
    slots, n = np.where(bucket.negated, -gains, gains), bucket.n_factors

    def best(scores: FloatArray) -> tuple[BoolArray, FloatArray, BoolArray]:
        """Return the slots that are on, the scores, and which factors have whole structures."""
        w, v = best_feasible(bucket, scores, eta_v, forbidden)
        on = w > 0.5  # noqa: PLR2004 - of zeros and ones
        chosen = np.where(on != bucket.negated, gains, 0.0)
        chosen_v = np.where(v != 0.0, eta_v, 0.0) * v
        return on, bucket.sums(chosen, chosen_v), np.bincount(owner, on != w, n) == 0

    first, score, whole = best(slots)
    second, of_second = first.copy(), np.full(n, -np.inf)
    for at in _flips(bucket, owner, slots, first):
        if deadline.passed:
            return {}
        has, other = owner[at], slots.copy()
        other[at] = np.where(first[at], -np.inf, np.inf)
        on, of_other, is_whole = best(other)
        whole &= is_whole
        obeys = np.zeros(n, dtype=bool)
        obeys[has] = on[at] != first[at]
        better = obeys & (of_other > of_second)
        second = np.where(better[owner], on, second)
        of_second = np.where(better, of_other, of_second)
    found: dict[int, Scored] = {}
    begin = part.first_variable[bucket.component]
    place = bucket.variable - begin[owner]
    for r in np.flatnonzero(whole).tolist():
        own = slice(*bucket.offsets[r : r + 2].tolist())
        entries: Scored = []
        for on, total in ((first, score[r]), (second, of_second[r])):
            if total > -np.inf:
                flags = np.empty(own.stop - own.start, dtype=bool)
                flags[place[own]] = on[own] != bucket.negated[own]
                entries.append((float(total), flags))
        found[int(bucket.component[r])] = entries
    return found


def _flips(bucket: Bucket, owner: IntArray, slots: FloatArray, on: BoolArray) -> Iterator[IntArray]:
    """Yield slots, at most one of each factor, of which the second best structures flip some."""
    if count_bounds(bucket) is None:
        arity = np.diff(bucket.offsets)
        for p in range(int(arity.max())):
            yield bucket.offsets[:-1][arity > p] + p
        return
    order = np.lexsort((np.where(on, slots, -slots), on, owner))
    group = 2 * owner[order] + on[order]
    leading = order[np.flatnonzero(np.diff(group, prepend=-1))]
    yield leading[~on[leading]]
    yield leading[on[leading]]
