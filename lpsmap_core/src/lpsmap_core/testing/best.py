"""Checks of the MAP oracle: it returns the best structure for whatever scores."""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.draws import DRAWS, HUGE, limits, random_scores
from lpsmap_core.testing.oracle import Answer, Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

__all__ = ["check_forbidden", "check_linear", "check_map_is_best", "check_ties"]

ORACLE_ROUNDING = 1e-10
"""By how much an answer may miss the best, as a multiple of the summed magnitudes of scores."""


def check_map_is_best(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """No structure that solve_map ever returned scores better than its answer."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        for scores in random_scores(rng, draws, oracle.size):
            _require_best(oracle, oracle.of(scores), seen, scores)


def check_linear(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A structure scores ``<eta_u, m> + <eta_v, n>`` and nothing else, at every scale of scores.

    A preference of the oracle's own shows at a small scale, and a threshold of its own at all but
    one.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in rng.standard_normal((max(1, draws // 3), oracle.size)):
            answers = {c: oracle.of(c * scores) for c in (1e-7, 1e-3, 1.0, 1e4)}
            seen = np.array([answer.vertex for answer in answers.values()])
            for scale, answer in answers.items():
                _require_best(oracle, answer, seen, scale * scores)


def check_ties(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Among equal scores solve_map returns one structure, and one of its own.

    The scores that ask for exactly this structure, 1 for what it holds and -1 for the rest, must
    bring it back.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        flat = np.array([0.0, 1.0, -1.0])[:, None] * np.ones(oracle.size)
        mixed = rng.integers(-1, 2, size=(draws, oracle.size)).astype(np.float64)
        for scores in np.concatenate([flat, mixed]):
            answer = oracle.of(scores)
            _require_best(oracle, answer, seen, scores)
            if not np.isin(answer.vertex, (0.0, 1.0)).all():
                continue  # a fraction cannot be asked for
            asked = 2.0 * answer.vertex - 1.0
            back = oracle.of(asked)
            if (back.vertex != answer.vertex).any():
                raise broken(
                    "an answer to tied scores is one structure, which is also the answer to the "
                    "scores that ask for it (1 where it is on, -1 elsewhere), because mixtures "
                    "are made by the engine",
                    f"{answer.vertex.tolist()}, but when asked for it {back.vertex.tolist()}",
                    "the same vertex twice",
                    oracle.where(scores),
                )


def check_forbidden(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Hugely negative scores forbid, hugely positive ones force, and the rest keep their digits.

    A score of -inf reaches the oracle as a finite one that outweighs all others together, that of
    a negated variable with a plus; see `lpsmap_core.local.finite_scores`.
    """
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        seen = vertices_seen(oracle, rng, draws)
        for scores in random_scores(rng, draws, oracle.size, decades=1.0):
            chosen = seen[rng.integers(len(seen)), : oracle.arity]
            forbidden, forced = (
                np.append(flags, np.zeros(oracle.n_additionals, dtype=bool))
                for flags in limits(rng, chosen)
            )
            huge = HUGE * max(1.0, np.abs(scores).max(initial=0.0))
            asked = np.where(forced, huge, np.where(forbidden, -huge, scores))
            answer = oracle.of(asked)
            if answer.vertex[forbidden].any() or (answer.vertex[forced] != 1.0).any():
                raise broken(
                    "a variable of hugely negative score is off and one of hugely positive score "
                    "is on wherever a structure allows it, because that is how -inf reaches the "
                    "oracle",
                    f"{answer.vertex.tolist()}",
                    f"off at {np.flatnonzero(forbidden).tolist()}, on at "
                    f"{np.flatnonzero(forced).tolist()}, as in {chosen.tolist()}",
                    oracle.where(asked),
                )
            obeys = ~seen[:, forbidden].any(axis=1) & (seen[:, forced] == 1.0).all(axis=1)
            others = np.where(forbidden | forced, 0.0, scores)
            _require_best(oracle, answer, seen[obeys], others, 1e-8 * np.abs(scores).max(initial=0))


def _require_best(
    oracle: Oracle, answer: Answer, seen: FloatArray, scores: FloatArray, allowed: float = 0.0
) -> None:
    found = float(scores @ answer.vertex)
    values = seen @ scores
    better = int(np.argmax(values))
    if values[better] - found > max(allowed, ORACLE_ROUNDING * np.abs(scores).sum()):
        raise broken(
            "solve_map returns the structure of the highest score <eta_u, m> + <eta_v, n>, because "
            "solutions are proven optimal by it",
            f"{answer.vertex.tolist()} of score {found:.10g}",
            f"at least {values[better]:.10g}, that of {seen[better].tolist()}, which it returned "
            "for other scores",
            oracle.where(scores),
        )
