"""Means over seeds, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from experiments.records import Record

__all__ = ["Interval", "difference", "interval", "mean_or_best", "seeds", "span"]

CONFIDENCE = 0.95

FEWEST = 3
"""Fewest values with an interval: that of two is 12.7 standard errors to each side."""


@dataclass(frozen=True)
class Interval:
    """A mean, and half the width of its 95 % confidence interval; NaN for fewer than 3 numbers."""

    mean: float
    half: float

    def __str__(self) -> str:
        spread = "" if math.isnan(self.half) else f" ± {self.half:.2f}"
        return f"{self.mean:.2f}{spread}"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values and its confidence interval by Student's t."""
    n = len(values)
    if n < FEWEST:
        return Interval(float(np.mean(values)), math.nan)
    half = t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    return Interval(float(np.mean(values)), float(half))


def seeds(n: int) -> str:
    """Return a number of seeds in words."""
    return "one seed" if n == 1 else f"{n} seeds"


def span(values: Sequence[float]) -> str:
    """Return the smallest and the largest of several values in words; nothing for a single one."""
    return f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""


def difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the mean of `first` minus that of `second`, paired: entry i of both has the same seed.

    Raises
    ------
    ValueError
        If their numbers differ.
    """
    if len(first) != len(second):
        raise ValueError(f"got {len(first)} and {len(second)} values; expected pairs.")
    return interval([a - b for a, b in zip(first, second, strict=True)])


def mean_or_best(records: Sequence[Record], measure: str) -> str:
    """Return the mean test measure of complete runs, or in brackets the best on dev data so far."""
    complete = [r.result["test"][measure] for r in records if r.complete]
    if complete:
        return str(interval(complete))
    known = [point["dev"] for r in records for point in r.result.get("curve", [])]
    return f"({max(known):.2f})" if known else "–"
