"""Scores to try a factor with."""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["DRAWS", "HUGE", "limits", "random_degrees", "random_scores"]

DRAWS = 12
"""Problems that a check draws unless told otherwise."""

HUGE = 1e6
"""Score of a forced variable, and of a forbidden one with a minus, as a multiple of the others'."""


def random_scores(rng: np.random.Generator, draws: int, n: int, decades: float = 3.0) -> FloatArray:
    """Draw (draws, n) scores: a third plain, small integers with many ties, at odd scales."""
    if draws < 1:
        raise ValueError(f"draws: got {draws}; expected at least 1, or nothing is checked.")
    scores = rng.standard_normal((draws, n))
    scores[1::3] = rng.integers(-2, 3, size=scores[1::3].shape)
    odd = scores[2::3]
    odd *= 10.0 ** rng.uniform(-decades, decades, size=(len(odd), 1))
    return rng.permutation(scores)


def random_degrees(rng: np.random.Generator, draws: int, n: int) -> FloatArray:
    """Draw (draws, n) scales: square roots of the numbers of factors that variables are in."""
    return np.sqrt(rng.integers(1, 7, size=(draws, n)))


def limits(rng: np.random.Generator, vertex: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Draw which variables to forbid and which to force, so that a given vertex obeys."""
    forbidden = (vertex == 0.0) & (rng.random(vertex.shape) < 0.4)
    forced = (vertex == 1.0) & (rng.random(vertex.shape) < 0.25)
    return forbidden, forced
