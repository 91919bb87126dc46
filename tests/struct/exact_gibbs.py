"""Gibbs distributions by enumeration in exact arithmetic, and draws of scores to hold them to it.

Scores are whole multiples of the smallest float64: structures sum them without rounding. What is
left are exponentials and logarithms of differences, to fifty digits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from checks import Case

__all__ = ["MASKS", "check_draw", "check_scores"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

MASKS = (-1e4, -1e6, -1e9, -1e16, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min))

RELATIVE = 1e-9
ENTROPY = 1e-12
"""Up to which entropies are right where they are small differences of what is not."""
TINY = 1e-60
"""Probabilities below which there need be no right digits."""

UNIT = 1074
"""The smallest float64 is 2 to minus this."""

_mp = mpmath.mp.clone()
_mp.dps = 50


class Exact(NamedTuple):
    """What a definition gives."""

    log_partition: Fraction
    entropy: Any
    marginals: list[Any]


def units(scores: FloatArray) -> npt.NDArray[np.object_]:
    """Return scores in units of the smallest float64."""
    return np.array([int(Fraction(x) * 2**UNIT) for x in scores.tolist()] + [None], dtype=object)[
        :-1
    ]


def exact_gibbs(on: FloatArray, shown: FloatArray, scores: FloatArray) -> Exact:
    """Return the Gibbs distribution over structures that have `on` on, and marginals of `shown`."""
    own = on.astype(np.int64).astype(object) @ units(scores)
    best = max(own.tolist())
    weights = [_mp.exp(_mp.mpf(x - best) / _mp.mpf(2) ** UNIT) for x in own.tolist()]
    total = _mp.fsum(weights)
    p = [x / total for x in weights]
    entropy = -_mp.fsum(x * _mp.log(x) for x in p if x > 0)
    marginals = [
        _mp.fsum(x * int(y) for x, y in zip(p, column, strict=True) if y) for column in shown.T
    ]
    log = _mp.log(total)
    numerator = int(_mp.nint(log * _mp.mpf(2) ** 150))
    return Exact(Fraction(best, 2**UNIT) + Fraction(numerator, 2**150), entropy, marginals)


def check_draw(case: Case, rng: np.random.Generator) -> None:
    """Hold all that is a sum over structures, and rankings, to the enumeration, for drawn scores.

    Their scale is 1e-6 to 1e6, some of them are masked, and a whole row or column may be; some
    variables are negated.
    """
    scores = 10.0 ** rng.uniform(-6.0, 6.0) * rng.standard_normal(case.m.shape[1])
    extra = 10.0 ** rng.uniform(-6.0, 6.0) * rng.standard_normal(case.n.shape[1])
    negated = rng.random(scores.shape) < rng.choice([0.0, 0.0, 0.4])
    mask = MASKS[rng.integers(len(MASKS) - int(negated.any()))]
    masked = rng.random(scores.shape) < rng.choice([0.0, 0.1, 0.4, 0.8])
    if rng.random() < 0.5:
        axis = rng.integers(len(case.shape))
        index: list[Any] = [slice(None)] * len(case.shape)
        index[axis] = rng.integers(case.shape[axis])
        masked.reshape(case.shape)[tuple(index)] = True
    if rng.random() < 0.3:  # masked scores that keep what they were
        scores[masked] += mask
    else:
        scores[masked] = mask
    check_scores(case, scores, extra, negated)


def check_scores(case: Case, scores: FloatArray, extra: FloatArray, negated: BoolArray) -> None:
    """Hold a factor of given scores to the enumeration."""
    on = np.concatenate([np.where(negated, 1.0 - case.m, case.m), case.n], axis=1)
    shown = np.concatenate([case.m, case.n], axis=1)
    every = np.concatenate([scores, extra])
    truth = exact_gibbs(on, shown, every)
    graph, _, factor = case.graph(scores[None], extra[None], negated)
    gibbs = graph.gibbs(factor)
    seen = f"scores {scores.tolist()}, additionals {extra.tolist()}, negated {negated.tolist()}"
    if abs(truth.log_partition) >= 2**1024 - 2**970:  # rounded, it is infinite
        with pytest.raises(ValueError, match="whose sums overflow float64"):
            _ = gibbs.log_partition
        return
    got = float(gibbs.log_partition[0])
    assert close(got, truth.log_partition), f"log-partition {got} for {seen}"
    got = float(gibbs.entropy[0])
    assert close(got, truth.entropy, ENTROPY), f"entropy {got}, not {truth.entropy}, for {seen}"
    found = np.concatenate([gibbs.marginals.reshape(-1), gibbs.additionals.reshape(-1)])
    for got, p in zip(found.tolist(), truth.marginals, strict=True):
        assert close(got, p, TINY), f"marginal {got}, not {p}, for {seen}"


def close(got: float, expected: Any, slack: float = 0.0) -> bool:
    """Whether a number is right up to its last digits."""
    if isinstance(expected, Fraction):
        return abs(Fraction(got) - expected) <= Fraction(RELATIVE) * abs(expected)
    return bool(abs(_mp.mpf(got) - expected) <= RELATIVE * abs(expected) + slack)
