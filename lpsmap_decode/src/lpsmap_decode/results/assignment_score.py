"""Scores of assignments of all variables, by the factors' own oracles."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, Part
from lpsmap_dynamic import best_additionals


def score_assignment(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the score of every component's assignment, and the best additionals.

    Parameters
    ----------
    part, eta_v
        As for `best_additionals`.
    eta
        Scores that broadcast to the shape of `chosen`.
    chosen
        For each variable of the part, in any shape, whether it is on.

    Returns
    -------
    scores
        For each component; ``-inf`` where a factor does not allow the assignment.
    v
        For each additional.
    """
    allowed, v = best_additionals(part, eta_v, chosen.reshape(-1))
    scores = sums_of(part, eta, eta_v, chosen, v)
    scores[part.spans.component[~allowed]] = -np.inf
    return scores, v


def sums_of(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, v: FloatArray
) -> FloatArray:
    """Return the same for every component, given the additionals, whether allowed or not."""
    gains = np.where(chosen, eta, 0.0).reshape(-1)
    gains_v = np.where(v != 0.0, eta_v, 0.0) * v
    scores = np.bincount(part.component, gains, part.n_components).astype(np.float64)
    scores += np.bincount(part.additional_component, gains_v, part.n_components)
    return scores
