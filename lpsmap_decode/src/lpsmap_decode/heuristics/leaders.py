"""Factors that share no variable and together choose most of an assignment."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, Bucket, FloatArray, IntArray, best_feasible, ranges
from lpsmap_decode.heuristics.component import Component

__all__ = ["Oracles", "in_groups", "leaders_of"]


class Oracles:
    """The chosen factors of a component, and their best structures."""

    def __init__(self, component: Component, chosen: BoolArray) -> None:
        part = component.part
        self.buckets: list[Bucket] = []
        self._eta_v: list[tuple[FloatArray, BoolArray]] = []
        for b, bucket in enumerate(part.buckets):
            rows = np.flatnonzero(chosen[slice(*part.spans.first_factor[b : b + 2])])
            eta_v = component.eta_v[part.additionals_of(b)]
            if rows.size and rows.size < bucket.n_factors:
                eta_v = eta_v[ranges(bucket.additional_offsets, rows)]
                bucket = bucket.select(rows)
            if rows.size:
                self.buckets.append(bucket)
                self._eta_v.append((eta_v, np.isneginf(eta_v)))
        none = np.empty(0, dtype=np.int64)
        self.variable: IntArray = np.concatenate([none, *(b.variable for b in self.buckets)])
        """For each link, its variable."""

    def best(self, scores: FloatArray) -> BoolArray:
        """Return which variables of the links are on in the best structures.

        `scores` are those of the variables of the links; infinite ones decide where the factors
        allow it.
        """
        found, begin = [np.empty(0, dtype=bool)], 0
        for bucket, (eta_v, forbidden) in zip(self.buckets, self._eta_v, strict=True):
            own = scores[begin : begin + bucket.n_links]
            w, _ = best_feasible(bucket, np.where(bucket.negated, -own, own), eta_v, forbidden)
            found.append((w > 0.5) != bucket.negated)  # noqa: PLR2004 - zeros and ones
            begin += bucket.n_links
        return np.concatenate(found)


def leaders_of(component: Component, candidates: BoolArray | None = None) -> BoolArray:
    """Return for each factor whether it leads: factors without rows first, then large ones.

    All factors are candidates by default.
    """
    part, (_, exact) = component.part, component.described
    arity = np.concatenate([np.diff(bucket.offsets) for bucket in part.buckets])
    first = np.cumsum(arity) - arity
    covered = np.zeros(part.n_variables, dtype=bool)
    leads = np.zeros(len(arity), dtype=bool)
    for f in np.lexsort((-arity, exact)).tolist():
        own = part.link_variable[first[f] : first[f] + arity[f]]
        if (candidates is None or candidates[f]) and not covered[own].any():
            covered[own] = leads[f] = True
    return leads


def in_groups(component: Component, chosen: BoolArray) -> list[Oracles]:
    """Return some factors in groups that share no variable."""
    left, groups = chosen.copy(), []
    while left.any():
        group = leaders_of(component, left)
        if not group.any():  # factors that hold a variable twice
            break
        groups.append(Oracles(component, group))
        left &= ~group
    return groups
