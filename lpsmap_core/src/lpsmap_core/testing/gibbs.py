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

SHARP = 1e5
"""Scale of scores at which one structure outweighs all others."""

DECISIVE = 50.0
"""Difference of scores by which one structure outweighs all others; e^-50 is below rounding."""


def has_sums(factor_type: type[Factor]) -> bool:
    """Whether a factor type samples and ranks its structures; see `Factor.inference`."""
    return factor_type.inference is not Factor.inference


def has_log_partition(factor_type: type[Factor]) -> bool:
    """Whether a factor type sums over its structures; see `Factor.log_partition`."""
    return (
        factor_type.log_partition is not Factor.log_partition
        or factor_type.inference is not Factor.inference
    )


class Listed(NamedTuple):
    """All structures of one factor, listed by its k_best, and their scores."""

    oracle: Oracle
    vertices: FloatArray
    scores: FloatArray


def check_log_partition(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Sums count the structures of solve_map once each, and no forbidden one.

    At a scale where the best structure outweighs all others, the sum reveals whether it is counted
    once. Known structures bound the sum from below, with finite scores and with some of -inf.
    """
    rng = np.random.default_rng(seed)
    sums, rows = factor.log_partition(), np.arange(factor.n_factors)
    seen = [vertices_seen(oracle, rng, draws) for oracle in oracles_of(factor)]
    n, extra = int(factor.offsets[-1]), factor.n_factors * factor.n_additionals
    for draw in range(draws):
        scores = Scores(rng.standard_normal(n), rng.standard_normal(extra))
        sharp = Scores(*(SHARP * x for x in scores))
        if draw % 2:
            scores.eta_u[rng.random(n) < 0.2] = -np.inf
        beliefs, at_sharp = sums.beliefs(rows, scores), sums.beliefs(rows, sharp)
        for r, oracle in enumerate(oracles_of(factor)):
            eta = _of_factor(factor, scores, r)
            listed = (np.where(seen[r] != 0.0, eta, 0.0) * seen[r]).sum(axis=1)
            least = np.logaddexp.reduce(listed, initial=-np.inf)
            rounding = SMALL * (1.0 + np.abs(listed[listed > -np.inf]).max(initial=0.0))
            if beliefs.log_partition[r] < least - rounding:
                raise broken(
                    "log_partition is at least that of the known structures, because sums are over "
                    "all structures",
                    float(beliefs.log_partition[r]),
                    f"{least} or more",
                    oracle.where(eta),
                )
            mean = _of_factor(factor, (beliefs.m, beliefs.n), r)
            if (mean[np.isneginf(eta)] != 0.0).any():
                raise broken(
                    "entries with a score of -inf have marginals of 0, because -inf forbids them",
                    mean[np.isneginf(eta)].tolist(),
                    "zeros",
                    oracle.where(eta),
                )
            eta = _of_factor(factor, sharp, r)
            if np.ptp(np.sort(seen[r] @ eta)[-2:]) < DECISIVE and len(seen[r]) > 1:
                continue  # nearly tied
            best = oracle.of(eta).vertex
            mean = _of_factor(factor, (at_sharp.m, at_sharp.n), r)
            above = at_sharp.log_partition[r] - best @ eta
            if abs(above) > SMALL * (1.0 + np.abs(eta).sum()) or (np.abs(mean - best) > 1e-3).any():
                raise broken(
                    "sums at sharp scores are those of solve_map's structure alone, because each "
                    "structure counts once",
                    f"{above} above its score, and the marginals {mean.tolist()}",
                    f"0, and {best.tolist()}",
                    oracle.where(eta),
                )


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
            of_factor = _of_factor(factor, scores, r)
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
                _require_sums(factor, listed, beliefs, r, _of_factor(factor, scores, r))


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
        terms = m * direction.eta_u, n * direction.eta_v
        gains = np.array([_of_factor(factor, terms, r).sum() for r in range(factor.n_factors)])
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
        expected = _of_factor(factor, (beliefs.m, beliefs.n), r)
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
        lists.append(Listed(oracle, vertices, vertices @ _of_factor(factor, scores, r)))
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
    marginals = _of_factor(factor, (beliefs.m, beliefs.n), r)
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


def _of_factor(factor: Factor, numbers: tuple[FloatArray, FloatArray], r: int) -> FloatArray:
    """Return the numbers of factor r, on its slots and then on its additionals, in one array."""
    extra = numbers[1].reshape(factor.n_factors, factor.n_additionals)[r]
    return np.concatenate([numbers[0][slots_of(factor, r)], extra])
