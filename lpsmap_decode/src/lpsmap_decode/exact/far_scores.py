"""Scores and bounds of assignments whose far scores were brought near, as they were given."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, Part, is_proved

__all__ = ["as_given"]

ROUNDING = 1e-12
"""Of a gap that is carried from one scale to another."""


def as_given(
    part: Part,
    given: tuple[FloatArray, FloatArray],
    far: BoolArray,
    chosen: BoolArray,
    v: FloatArray,
    score: FloatArray,
    bound: FloatArray,
    gap: float,
) -> tuple[FloatArray, FloatArray]:
    """Return scores and bounds of assignments in units of the scores as they were given.

    A bound that proves nothing says nothing of them.

    Parameters
    ----------
    part, given
        The part, and the scores of its variables and additionals before `bring_near`.
    far
        Which components had far ones.
    chosen, v
        An assignment of the part's variables, and of its additionals.
    score, bound
        For each component, what it scores, ``-inf`` if it is not allowed, and no other more than.
    gap
        Relative difference of the two that is a proof.
    """
    if not far.any():
        return score, bound
    largest, small = np.finfo(np.float64).max, 2.0**-40
    with np.errstate(over="ignore", invalid="ignore"):
        found = _sums(part, *given, chosen, v)
        # sums that overflow, perhaps on their way
        scaled = np.clip(
            _sums(part, small * given[0], small * given[1], chosen, v) / small, -largest, largest
        )
        found = np.where(np.isfinite(found), found, scaled)
        # as far above it, in proportion, as before
        share = np.clip(
            (bound - score) / np.maximum(1.0, np.abs(score)), 0.0, (1.0 - ROUNDING) * gap
        )
        highest = found + share * np.maximum(1.0, np.abs(found))
    proved = is_proved(score, bound, gap)
    bound = np.where(far & (bound > -np.inf), np.where(proved, highest, np.inf), bound)
    return np.where(far & (score > -np.inf), found, score), bound


def _sums(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, v: FloatArray
) -> FloatArray:
    """Return what an assignment scores in every component."""
    gains = np.concatenate([np.where(chosen, eta, 0.0), np.where(v != 0.0, eta_v, 0.0) * v])
    owner = np.concatenate([part.component, part.additional_component])
    return np.bincount(owner, gains, part.n_components).astype(np.float64, copy=False)
