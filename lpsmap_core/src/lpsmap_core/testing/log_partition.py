"""The check of types that sum over structures, and do not list them."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.records import Scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import slots_of
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

__all__ = ["check_log_partition", "has_log_partition"]

SHARP = 1e5
"""What scores are multiplied with for one structure to outweigh all others."""

SMALL = 1e-9
"""What sums may differ by, as a multiple of 1 plus the sum of the scores' magnitudes."""


def has_log_partition(factor_type: type[Factor]) -> bool:
    """Whether a factor type sums over its structures: see `Factor.log_partition`."""
    return (
        factor_type.log_partition is not Factor.log_partition
        or factor_type.inference is not Factor.inference
    )


def check_log_partition(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Sums count what solve_map returns, once each, and what is forbidden not at all.

    Scores so sharp that the best structure outweighs all others tell whether it is counted once;
    those seen so far bound the sum from below, with plain scores and with some of -inf.
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
        found, decided = sums.beliefs(rows, scores), sums.beliefs(rows, sharp)
        for r, oracle in enumerate(oracles_of(factor)):
            own, slots = _own(factor, scores, r), slots_of(factor, r)
            listed = (np.where(seen[r] != 0.0, own, 0.0) * seen[r]).sum(axis=1)
            least = np.logaddexp.reduce(listed, initial=-np.inf)
            rounding = SMALL * (1.0 + np.abs(listed[listed > -np.inf]).max(initial=0.0))
            if found.log_partition[r] < least - rounding:
                raise broken(
                    "log_partition is no less than that of some structures, because all count",
                    float(found.log_partition[r]),
                    f"{least} or more",
                    oracle.where(own),
                )
            mine = np.concatenate([found.m[slots], found.n.reshape(factor.n_factors, -1)[r]])
            if (mine[np.isneginf(own)] != 0.0).any():
                raise broken(
                    "what a score of -inf forbids has no probability",
                    mine[np.isneginf(own)].tolist(),
                    "zeros",
                    oracle.where(own),
                )
            own = _own(factor, sharp, r)
            best = oracle.of(own).vertex
            mine = np.concatenate([decided.m[slots], decided.n.reshape(factor.n_factors, -1)[r]])
            above = decided.log_partition[r] - best @ own
            if abs(above) > SMALL * (1.0 + np.abs(own).sum()) or (np.abs(mine - best) > 1e-3).any():
                raise broken(
                    "sharp scores leave solve_map's answer alone, because each structure counts "
                    "once",
                    f"{above} above its score, and the marginals {mine.tolist()}",
                    f"0, and {best.tolist()}",
                    oracle.where(own),
                )


def _own(factor: Factor, scores: Scores, r: int) -> FloatArray:
    """Return all scores of a factor in one array."""
    extra = scores.eta_v.reshape(factor.n_factors, factor.n_additionals)[r]
    return np.concatenate([scores.eta_u[slots_of(factor, r)], extra])
