"""The check of sums over structures for types that need not list them."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.records import Scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import slots_of
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

SHARP = 1e5
"""Scale of scores at which one structure outweighs all others."""

DECISIVE = 50.0
"""Difference of scores by which one structure outweighs all others; e^-50 is below rounding."""

SMALL = 1e-9
"""Allowed difference of sums, as a multiple of 1 plus the sum of the scores' magnitudes."""


def has_log_partition(factor_type: type[Factor]) -> bool:
    """Whether a factor type sums over its structures; see `Factor.log_partition`."""
    return (
        factor_type.log_partition is not Factor.log_partition
        or factor_type.inference is not Factor.inference
    )


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
            eta, slots = _scores_of(factor, scores, r), slots_of(factor, r)
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
            mean = np.concatenate([beliefs.m[slots], beliefs.n.reshape(factor.n_factors, -1)[r]])
            if (mean[np.isneginf(eta)] != 0.0).any():
                raise broken(
                    "entries with a score of -inf have marginals of 0, because -inf forbids them",
                    mean[np.isneginf(eta)].tolist(),
                    "zeros",
                    oracle.where(eta),
                )
            eta = _scores_of(factor, sharp, r)
            if np.ptp(np.sort(seen[r] @ eta)[-2:]) < DECISIVE and len(seen[r]) > 1:
                continue  # nearly tied
            best = oracle.of(eta).vertex
            mean = np.concatenate([at_sharp.m[slots], at_sharp.n.reshape(factor.n_factors, -1)[r]])
            above = at_sharp.log_partition[r] - best @ eta
            if abs(above) > SMALL * (1.0 + np.abs(eta).sum()) or (np.abs(mean - best) > 1e-3).any():
                raise broken(
                    "sums at sharp scores are those of solve_map's structure alone, because each "
                    "structure counts once",
                    f"{above} above its score, and the marginals {mean.tolist()}",
                    f"0, and {best.tolist()}",
                    oracle.where(eta),
                )


def _scores_of(factor: Factor, scores: Scores, r: int) -> FloatArray:
    """Return all scores of factor r in one array."""
    extra = scores.eta_v.reshape(factor.n_factors, factor.n_additionals)[r]
    return np.concatenate([scores.eta_u[slots_of(factor, r)], extra])
