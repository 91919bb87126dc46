"""Checks of sums over structures: they count each structure once, with its weight."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.kernels.records import Scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import slots_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

MAX_STRUCTURES = 1000
"""Maximum number of listed structures of a factor; checks with a list skip larger factors."""

SAMPLES, DEVIATIONS = 400, 6.0
"""Samples of a factor, and the allowed error of their mean in standard deviations."""

SMALL = 1e-9
"""Allowed difference of sums, as a multiple of 1 plus the largest score of a structure."""

STEP = 1e-4
"""Step of central differences."""


def has_sums(factor_type: type[Factor]) -> bool:
    """Whether a factor type samples and ranks its structures; see `Factor.inference`."""
    return factor_type.inference is not Factor.inference


class Listed(NamedTuple):
    """All structures of one factor, listed by its k_best, and their scores."""

    oracle: Oracle
    vertices: FloatArray
    scores: FloatArray


def check_structures_once(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The k best are all structures, each once, agree with count(), and include solve_map's."""
    rng = np.random.default_rng(seed)
    counts = factor.inference().count(_scores(factor, np.random.default_rng(seed), 1.0))
    for listed, count in zip(_listed(factor, rng), counts, strict=True):
        oracle, vertices = listed.oracle, listed.vertices
        if len(vertices) != min(count, MAX_STRUCTURES):
            raise broken(
                "k_best lists as many structures as count() returns, because both cover all "
                "structures",
                len(vertices),
                min(count, MAX_STRUCTURES),
                oracle.name,
            )
        different = {tuple(vertex) for vertex in vertices}
        if len(different) < len(vertices):
            twice = next(v for v in vertices if (vertices == v).all(axis=1).sum() > 1)
            raise broken(
                "a structure has one derivation, because sums would count it twice",
                f"several for {twice.tolist()}",
                "one",
                oracle.name,
            )
        for vertex in vertices:
            best = oracle.beaten_by(vertex)
            if best is not None:
                raise broken(
                    "every derivation is a structure, which solve_map returns for the scores that "
                    "select it (1 where a slot is on, -1 elsewhere, and less for additionals), "
                    "because sums and solves are over the same structures",
                    f"{best.tolist()}",
                    f"{vertex.tolist()}",
                    oracle.name,
                )
        for vertex in vertices_seen(oracle, rng, draws) if count <= MAX_STRUCTURES else ():
            if tuple(vertex) not in different:
                raise broken(
                    "every structure has a derivation, because sums are over derivations",
                    f"no derivation of {vertex.tolist()}, which solve_map returns",
                    "one",
                    oracle.name,
                )


def check_best_derivation(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The best of the k best has the score of solve_map's structure."""
    rng = np.random.default_rng(seed)
    inference, oracles = factor.inference(), oracles_of(factor)
    for decades in np.linspace(0.0, 3.0, draws):
        scores = _scores(factor, rng, 10.0 ** rng.uniform(-decades, decades))
        best = inference.k_best(np.arange(factor.n_factors), scores, 1)
        for r, oracle in enumerate(oracles):
            of_factor = _scores_of(factor, scores, r)
            score = oracle.of(of_factor).vertex @ of_factor
            if abs(best.score[r] - score) > SMALL * np.abs(of_factor).sum():
                raise broken(
                    "k_best and solve_map agree on the best score, because their structures are "
                    "the same",
                    float(best.score[r]),
                    float(score),
                    oracle.where(of_factor),
                )


def check_sums(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Log-partition functions, entropies and marginals agree with a list of all structures.

    Some scores are -inf, which forbids some structures.
    """
    rng = np.random.default_rng(seed)
    sums, rows, lists = factor.log_partition(), np.arange(factor.n_factors), _listed(factor)
    for draw in range(draws):
        scores = _scores(factor, rng, 10.0 ** rng.uniform(-2.0, 2.0))
        if draw % 3 == 2:
            scores.eta_u[rng.random(scores.eta_u.shape) < 0.2] = -np.inf
        beliefs = sums.beliefs(rows, scores)
        for r, listed in enumerate(lists):
            if len(listed.vertices) < MAX_STRUCTURES:
                _require_sums(factor, listed, beliefs, r, _scores_of(factor, scores, r))


def check_hessian(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Marginals are the gradient of log-partition functions, and hessian_product their derivative.

    The check compares them with central differences along a direction.
    """
    rng = np.random.default_rng(seed)
    sums, rows = factor.log_partition(), np.arange(factor.n_factors)
    for _ in range(max(1, draws // 3)):
        scores, direction = _scores(factor, rng, 1.0), _scores(factor, rng, 1.0)

        def at(
            t: float, scores: Scores = scores, direction: Scores = direction
        ) -> tuple[FloatArray, FloatArray, FloatArray]:
            moved = (x + t * d for x, d in zip(scores, direction, strict=True))
            beliefs = sums.beliefs(rows, Scores(*moved))
            return beliefs.m, beliefs.n, beliefs.log_partition

        product = sums.hessian_product(rows, scores, direction)
        m, n, _ = at(0.0)
        gains = (n * direction.eta_v).reshape(factor.n_factors, factor.n_additionals).sum(axis=1)
        gains += [_slots(factor, m * direction.eta_u, r).sum() for r in range(factor.n_factors)]
        expected: tuple[FloatArray, ...] = (*product, gains)
        for name, up, down, got in zip(
            ("marginals", "additionals", "log-partition functions"),
            at(STEP),
            at(-STEP),
            expected,
            strict=True,
        ):
            slope = (up - down) / (2.0 * STEP)
            wrong = np.abs(slope - got) > 1e-5 * (1.0 + np.abs(slope).max(initial=0.0))
            if wrong.any():
                i = int(np.argmax(wrong))
                raise broken(
                    "marginals are the gradient of log-partition functions, and hessian_product is "
                    "the derivative of marginals, because models are trained with them",
                    f"{got[i]} for entry {i} of all {name}",
                    f"{slope[i]}",
                    repr(factor),
                )


def check_samples(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Samples are structures, their mean is the marginals, and they repeat with their seed.

    Each factor gets `draws` times `SAMPLES` samples.
    """
    rng = np.random.default_rng(seed)
    inference, rows, n = factor.inference(), np.arange(factor.n_factors), SAMPLES * draws
    scores = _scores(factor, rng, 1.0)
    beliefs = inference.beliefs(rows, scores)
    samples, again = (inference.sample(rows, scores, n, np.random.default_rng(seed)) for _ in "ab")
    for r, listed in enumerate(_listed(factor)):
        oracle, drawn = listed.oracle, _vertices(factor, samples, r, n)
        if (drawn != _vertices(factor, again, r, n)).any():
            raise broken(
                "equal random numbers draw equal samples, because a seed repeats a run",
                "other samples in the second run",
                "the same samples",
                oracle.name,
            )
        if len(listed.vertices) < MAX_STRUCTURES:
            structures = {tuple(vertex) for vertex in listed.vertices}
            unlisted = [vertex for vertex in drawn if tuple(vertex) not in structures]
            if unlisted:
                raise broken(
                    "samples are structures, because they are drawn among the structures",
                    unlisted[0].tolist(),
                    "one of the structures that k_best lists",
                    oracle.name,
                )
        expected = np.concatenate([_slots(factor, beliefs.m, r), _extra(factor, beliefs.n, r)])
        mean, spread = drawn.mean(axis=0), drawn.std(axis=0) + 1.0 / np.sqrt(n)
        wrong = np.abs(mean - expected) > DEVIATIONS * spread / np.sqrt(n)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise broken(
                "the mean of samples tends to the marginals, because structures are drawn with "
                "their probabilities",
                f"{mean[i]} for entry {i} in {n} samples",
                f"{expected[i]}",
                oracle.name,
            )


# -------------------------------------------------------------------- lists of structures


def _listed(factor: Factor, rng: np.random.Generator | None = None) -> list[Listed]:
    """Return the structures of every factor, up to `MAX_STRUCTURES` of each."""
    scores = _scores(factor, rng or np.random.default_rng(0), 1.0)
    best = factor.inference().k_best(np.arange(factor.n_factors), scores, MAX_STRUCTURES)
    lists = []
    for r, oracle in enumerate(oracles_of(factor)):
        vertices = _vertices(factor, best, r, MAX_STRUCTURES)
        lists.append(Listed(oracle, vertices, vertices @ _scores_of(factor, scores, r)))
    return lists


def _vertices(factor: Factor, ranking: Any, r: int, k: int) -> FloatArray:
    """Return the structures of factor r in a result of inference as (n, size) numbers."""
    start, entry, value, size = ranking.structures
    arity = int(np.diff(factor.offsets)[r])
    rows = []
    for s in range(r * k, (r + 1) * k):
        if size[s] >= 0:
            vertex = np.zeros(arity + factor.n_additionals)
            place = slice(start[s], start[s] + size[s])
            vertex[entry[place]] = value[place]
            rows.append(vertex)
    return np.array(rows).reshape(len(rows), arity + factor.n_additionals)


def _require_sums(
    factor: Factor, listed: Listed, beliefs: Any, r: int, of_factor: FloatArray
) -> None:
    """Require that beliefs agree with their definition over the listed structures."""
    vertices = listed.vertices
    scores = (vertices * np.where(vertices != 0.0, of_factor, 0.0)).sum(axis=1)
    most = scores.max(initial=-np.inf)
    weights = np.exp(scores - most) if most > -np.inf else np.zeros(len(scores))
    p = weights / max(weights.sum(), 1.0)
    log_p = np.log(p, where=p > 0.0, out=np.zeros_like(p))
    log_z = most + np.log(weights.sum()) if most > -np.inf else -np.inf
    marginals = np.concatenate([_slots(factor, beliefs.m, r), _extra(factor, beliefs.n, r)])
    rounding = SMALL * (1.0 + np.abs(scores[scores > -np.inf]).max(initial=0.0))
    for name, got, expected in (
        ("log_partition is the log of the summed exponentials", beliefs.log_partition[r], log_z),
        ("entropy is that of exp(score) / Z", beliefs.entropy[r], -(p * log_p).sum()),
        ("m and n are the means of structures", marginals, p @ vertices),
    ):
        if not np.allclose(got, expected, rtol=0.0, atol=rounding):
            raise broken(
                f"{name} over all structures, because each structure counts with its weight",
                np.asarray(got).tolist(),
                np.asarray(expected).tolist(),
                listed.oracle.where(of_factor),
            )


def _scores(factor: Factor, rng: np.random.Generator, scale: float) -> Scores:
    n, extra = int(factor.offsets[-1]), factor.n_factors * factor.n_additionals
    drawn = random_scores(rng, 1, n + extra, decades=0.0)[0]
    return Scores(*np.split(scale * (drawn + 1e-3 * rng.standard_normal(n + extra)), [n]))


def _slots(factor: Factor, numbers: FloatArray, r: int) -> FloatArray:
    return numbers[slots_of(factor, r)]


def _extra(factor: Factor, numbers: FloatArray, r: int) -> FloatArray:
    return numbers.reshape(factor.n_factors, -1)[r] if factor.n_additionals else np.empty(0)


def _scores_of(factor: Factor, scores: Scores, r: int) -> FloatArray:
    """Return all scores of factor r in one array."""
    return np.concatenate([_slots(factor, scores.eta_u, r), _extra(factor, scores.eta_v, r)])
