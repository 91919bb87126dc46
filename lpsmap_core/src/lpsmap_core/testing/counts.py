"""Checks of what a type says about its structures in sums: counts, and linear constraints."""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear import constraints_of
from lpsmap_core.testing.buckets import bucket_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken

__all__ = ["check_constraints", "check_count_bounds"]

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


def check_constraints(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Every structure meets the type's linear constraints, as far as they are about slots alone."""
    known = constraints_of(factor)
    if known is None:
        return
    rng, n_slots = np.random.default_rng(seed), int(factor.offsets[-1])
    others = np.zeros(len(known.low), dtype=bool)
    others[known.row[known.column >= n_slots]] = True
    shown = ~others[known.row]
    for oracle in oracles_of(factor):
        slots = factor.slots_of(oracle.i)
        mine = shown & (known.column >= slots.start) & (known.column < slots.stop)
        rows, column = known.row[mine], known.column[mine] - slots.start
        asked = np.isin(np.arange(len(known.low)), rows)
        for scores in random_scores(rng, draws, oracle.size):
            vertex = oracle.of(scores).vertex
            sums = np.bincount(rows, known.coefficient[mine] * vertex[column], len(known.low))
            fits = (sums >= known.low - ROUNDING) & (sums <= known.high + ROUNDING)
            wrong = np.flatnonzero(asked & ~fits)
            if wrong.size:
                r = wrong[0]
                raise broken(
                    "linear_constraints and necessary_constraints hold for every structure, "
                    "because solvers of whole graphs and plan() rely on them",
                    f"{vertex.tolist()}, of which row {r} has the sum {sums[r]:g}",
                    f"{known.low[r]:g} to {known.high[r]:g}",
                    oracle.where(scores),
                )
