"""Assignments of all variables, completed by the best additionals of the factors' own oracles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, FloatArray, Layout, best_additionals


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
