"""Assignments of all variables, completed by the best additionals of the factors' own oracles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.layout import Layout, Part
from lpsmap_core.local.oracles import best_feasible, which_are_feasible
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = [
    "CompletedAssignment",
    "best_additionals",
    "complete_assignment",
]


class CompletedAssignment(NamedTuple):
    """An assignment of a graph's variables, completed by the best additionals."""

    allowed: list[BoolArray]
    """For every declaration, (n_factors,) whether its factors allow the assignment."""
    additionals: list[FloatArray]
    """For every declaration, the (n_factors, n_additionals) best additionals."""


def complete_assignment(
    layout: Layout,
    factors: Sequence[Factor],
    additional_scores: Sequence[FloatArray],
    chosen: BoolArray,
) -> CompletedAssignment:
    """Return which factors of a graph allow an assignment, and their best additionals.

    Parameters
    ----------
    layout, factors
        The graph.
    additional_scores
        For every declaration, the (n_factors, n_additionals) scores of its additionals; ``-inf``
        forbids.
    chosen
        For each variable of the graph, whether it is on.
    """
    part = layout.part
    eta_v = part.by_bucket(additional_scores, factors)
    allowed, v = best_additionals(part, eta_v, chosen[part.variables])
    by_declaration = {id(factor): np.ones(factor.n_factors, dtype=bool) for factor in factors}
    for b, bucket in enumerate(part.buckets):
        of_bucket = allowed[slice(*part.spans.first_factor[b : b + 2])]
        for d, declaration in enumerate(bucket.declarations):
            own = bucket.declaration == d
            by_declaration[id(declaration)][bucket.row[own]] = of_bucket[own]
    return CompletedAssignment(
        [by_declaration[id(factor)] for factor in factors], part.by_declaration(v, factors)
    )


def best_additionals(
    part: Part, eta_v: FloatArray, chosen: BoolArray
) -> tuple[BoolArray, FloatArray]:
    """Return which factors allow an assignment, and their best additionals.

    Parameters
    ----------
    part
        The part.
    eta_v
        Scores of the additionals of all buckets; ``-inf`` forbids.
    chosen
        For each variable of the part, whether it is on.

    Returns
    -------
    allowed
        For each factor of all buckets.
    v
        For each additional.
    """
    allowed, found = [np.empty(0, dtype=bool)], [np.empty(0)]
    for b, bucket in enumerate(part.buckets):
        own, barred = eta_v[part.additionals_of(b)], np.isneginf(eta_v[part.additionals_of(b)])
        scores = np.where(chosen[bucket.variable] != bucket.negated, np.inf, -np.inf)
        w, n = best_feasible(bucket, scores, own, barred)
        allowed.append(which_are_feasible(bucket, scores, barred, w, n))
        found.append(n)
    return np.concatenate(allowed), np.concatenate(found)
