"""Check of what a type says about how many of its variables are on."""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import bucket_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken

__all__ = ["check_count_bounds"]

ROUNDING = 1e-10
"""By how much scores may differ, as a multiple of their summed magnitudes."""


def check_count_bounds(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """All assignments within count_bounds are structures, and no others.

    Then the best structure has so many of the best variables on.
    """
    rng = np.random.default_rng(seed)
    count_bounds = type(factor).count_bounds
    assert count_bounds is not None
    bounds = np.empty((2, factor.n_factors))
    bounds[0], bounds[1] = count_bounds(bucket_of(factor, 1).factors)
    for oracle, (least, most) in zip(oracles_of(factor), bounds.T, strict=True):
        counts = np.arange(oracle.arity + 1)
        allowed = (counts >= least) & (counts <= most)
        for scores in random_scores(rng, draws, oracle.size):
            answer = oracle.of(scores)
            best_first = np.sort(scores[: oracle.arity])[::-1]
            sums = np.where(allowed, np.cumsum([0.0, *best_first]), -np.inf)
            found, expected = float(scores @ answer.vertex), float(sums.max(initial=-np.inf))
            if not abs(found - expected) <= ROUNDING * np.abs(scores).sum():
                raise broken(
                    "count_bounds are the least and the most variables that are on, and every "
                    "assignment within them is a structure, because solves start from them",
                    f"{answer.vertex.tolist()} of score {found:.10g}, with {least:g} to {most:g}",
                    f"a structure of score {expected:.10g}",
                    oracle.where(scores),
                )
