"""Random scores for checks."""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import BoolArray, FloatArray

DRAWS = 12
"""Default number of problems that a check draws."""

HUGE = 1e6
"""Score of a forced variable, and minus that of a forbidden one, as a multiple of the others."""


def random_scores(rng: np.random.Generator, draws: int, n: int, decades: float = 3.0) -> FloatArray:
    """Draw (draws, n) scores: a third normal, a third tied integers, a third at random scales."""
    if draws < 1:
        raise ValueError(f"draws: got {draws}; expected at least 1 problem to check.")
    scores = rng.standard_normal((draws, n))
    scores[1::3] = rng.integers(-2, 3, size=scores[1::3].shape)
    scaled = scores[2::3]
    scaled *= 10.0 ** rng.uniform(-decades, decades, size=(len(scaled), 1))
    return rng.permutation(scores)


def random_degrees(rng: np.random.Generator, draws: int, n: int) -> FloatArray:
    """Draw (draws, n) scales: square roots of the degrees of variables."""
    return np.sqrt(rng.integers(1, 7, size=(draws, n)))


def limits(rng: np.random.Generator, vertex: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Draw flags of forbidden and of forced variables such that `vertex` is feasible."""
    forbidden = (vertex == 0.0) & (rng.random(vertex.shape) < 0.4)
    forced = (vertex == 1.0) & (rng.random(vertex.shape) < 0.25)
    return forbidden, forced
