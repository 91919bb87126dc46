"""Assignments of all variables, completed by the best additionals of the factors' own oracles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, FloatArray, Layout, Part, best_feasible


class CompletedAssignment(NamedTuple):
    """Assignments of a graph's variables, completed by the best additionals."""

    allowed: list[BoolArray]
    """For every declaration, (..., n_factors) whether its factors allow the assignments."""
    additionals: list[FloatArray]
    """For every declaration, the (..., n_factors, n_additionals) best additionals."""


def complete_assignment(
    layout: Layout,
    factors: Sequence[Factor],
    additional_scores: Sequence[FloatArray],
    chosen: BoolArray,
) -> CompletedAssignment:
    """Return which factors of a graph allow assignments, and their best additionals.

    Parameters
    ----------
    layout, factors
        The graph.
    additional_scores
        For every declaration, the (n_factors, n_additionals) scores of its additionals; ``-inf``
        forbids.
    chosen
        (..., n_variables) whether each variable of the graph is on, in one assignment or several.
    """
    part, several = layout.part, chosen.shape[:-1]
    eta_v = part.by_bucket(additional_scores, factors)
    allowed, v = best_additionals(part, eta_v, chosen[..., part.variables])
    by_declaration = {
        id(factor): np.ones((*several, factor.n_factors), dtype=bool) for factor in factors
    }
    for b, bucket in enumerate(part.buckets):
        of_bucket = allowed[..., slice(*part.spans.first_factor[b : b + 2])]
        for d, declaration in enumerate(bucket.declarations):
            mine = bucket.declaration == d
            by_declaration[id(declaration)][..., bucket.row[mine]] = of_bucket[..., mine]
    in_order = [by_declaration[id(factor)] for factor in factors]
    return CompletedAssignment(in_order, part.by_declaration(v, factors))


def best_additionals(
    part: Part, eta_v: FloatArray, chosen: BoolArray
) -> tuple[BoolArray, FloatArray]:
    """Return which factors allow assignments, and their best additionals.

    One call of a type's oracle serves all assignments.

    Parameters
    ----------
    part
        The part.
    eta_v
        Scores of the additionals of all buckets; ``-inf`` forbids.
    chosen
        (..., n_variables) whether each variable of the part is on, in one assignment or several.

    Returns
    -------
    allowed
        (..., n_factors) for the factors of all buckets.
    v
        (..., n_additionals)
    """
    several = chosen.shape[:-1]
    n = math.prod(several)
    allowed, best = [np.empty((*several, 0), dtype=bool)], [np.empty((*several, 0))]
    for b, bucket in enumerate(part.buckets):
        copies = bucket if n == 1 else bucket.select(np.tile(np.arange(bucket.n_factors), n))
        scores_v = np.tile(eta_v[part.additionals_of(b)], n)
        on = chosen[..., bucket.variable] != bucket.negated
        scores, forbidden = np.where(on, np.inf, -np.inf).reshape(-1), np.isneginf(scores_v)
        w, v = best_feasible(copies, scores, scores_v, forbidden)
        # exactly: a share of a billionth less than 1 is a whole unit of large integer costs
        wrong = copies.sums(np.abs(w - (scores > 0.0)), np.where(forbidden, np.abs(v), 0.0))
        feasible = wrong == 0.0
        allowed.append(feasible.reshape(*several, bucket.n_factors))
        best.append(v.reshape(*several, bucket.n_additionals))
    return np.concatenate(allowed, axis=-1), np.concatenate(best, axis=-1)
