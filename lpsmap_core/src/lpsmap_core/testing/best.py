"""Checks of the MAP oracle: it returns the best structure for all scores."""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.draws import DRAWS, HUGE, limits, random_scores
from lpsmap_core.testing.oracle import (
    ORACLE_ROUNDING,
    BestStructure,
    Oracle,
    oracles_of,
    vertices_seen,
)
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray


def check_map_is_best(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """No known structure scores better than the structure that solve_map returns."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        for scores in random_scores(rng, draws, oracle.size):
            _require_best(oracle, oracle.of(scores), seen, scores)


def check_linear(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The score of a structure is exactly ``<eta_u, m> + <eta_v, n>``, at every scale of scores.

    A small scale reveals an oracle that adds preferences, and other scales one with thresholds.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in rng.standard_normal((max(1, draws // 3), oracle.size)):
            results = {c: oracle.of(c * scores) for c in (1e-7, 1e-3, 1.0, 1e4)}
            seen = np.array([result.vertex for result in results.values()])
            for scale, result in results.items():
                _require_best(oracle, result, seen, scale * scores)


def check_ties(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Among tied scores solve_map returns one structure of the type.

    For scores of 1 where this structure is on and -1 elsewhere, it must not beat what solve_map
    returns. Additionals have smaller scores, since they may be counts.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        flat = np.array([0.0, 1.0, -1.0])[:, None] * np.ones(oracle.size)
        mixed = rng.integers(-1, 2, size=(draws, oracle.size)).astype(np.float64)
        for scores in np.concatenate([flat, mixed]):
            result = oracle.of(scores)
            _require_best(oracle, result, seen, scores)
            if not np.isin(result.m, (0.0, 1.0)).all():
                continue  # no scores select a fraction
            best = oracle.beaten_by(result.vertex)
            if best is not None:
                raise broken(
                    "for tied scores solve_map returns one structure, which it also returns for "
                    "the scores that select it (1 where it is on, -1 elsewhere, and less for "
                    "additionals), because the engine computes the mixtures",
                    f"{result.vertex.tolist()}, but {best.tolist()} for the selecting scores",
                    "the same vertex twice",
                    oracle.where(scores),
                )


def check_forbidden(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Hugely negative scores forbid, hugely positive scores force, and others keep their digits.

    The oracle gets a finite score in place of -inf, which outweighs the sum of all others. For a
    negated variable it is positive; see `lpsmap_core.local.finite_scores`.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        for scores in random_scores(rng, draws, oracle.size, decades=1.0):
            feasible = seen[rng.integers(len(seen)), : oracle.arity]
            forbidden, forced = (
                np.append(flags, np.zeros(oracle.n_additionals, dtype=bool))
                for flags in limits(rng, feasible)
            )
            huge = HUGE * max(1.0, np.abs(scores).max(initial=0.0))
            limited = np.where(forced, huge, np.where(forbidden, -huge, scores))
            result = oracle.of(limited)
            if result.vertex[forbidden].any() or (result.vertex[forced] != 1.0).any():
                raise broken(
                    "a variable of hugely negative score is off and one of hugely positive score "
                    "is on if a structure allows it, because -inf is passed to the oracle as such "
                    "a score",
                    f"{result.vertex.tolist()}",
                    f"off at {np.flatnonzero(forbidden).tolist()}, on at "
                    f"{np.flatnonzero(forced).tolist()}, as in {feasible.tolist()}",
                    oracle.where(limited),
                )
            obeys = ~seen[:, forbidden].any(axis=1) & (seen[:, forced] == 1.0).all(axis=1)
            others = np.where(forbidden | forced, 0.0, scores)
            _require_best(oracle, result, seen[obeys], others, 1e-8 * np.abs(scores).max(initial=0))


def _require_best(
    oracle: Oracle,
    result: BestStructure,
    seen: FloatArray,
    scores: FloatArray,
    allowed: float = 0.0,
) -> None:
    score = float(scores @ result.vertex)
    values = seen @ scores
    better = int(np.argmax(values))
    if values[better] - score > max(allowed, ORACLE_ROUNDING * np.abs(scores).sum()):
        raise broken(
            "solve_map returns the structure of the highest score <eta_u, m> + <eta_v, n>, because "
            "it is used to prove solutions optimal",
            f"{result.vertex.tolist()} of score {score:.10g}",
            f"at least {values[better]:.10g}, that of {seen[better].tolist()}, which it returned "
            "for other scores",
            oracle.where(scores),
        )
