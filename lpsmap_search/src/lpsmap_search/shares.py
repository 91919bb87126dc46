"""Boxes of shares, that is, probabilities that are ratios of counts.

Counts are integers, and the total of a block is in a range for all structures. The shares ``f_m /
F_c`` are therefore fractions with few denominators, and a box can be shrunk to the fractions at its
ends. A block with total zero has no shares; by convention, its first parameter has the share one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.viterbi import best_counts, new_workspace

SUM_TOLERANCE = 1e-9
"""Tolerance for rounding errors of sums of probabilities."""

MAX_TOTAL = 100
"""Above this, a total that is not fixed has too many fractions to search."""


class Totals(NamedTuple):
    """The range of the sum of counts of each block, over all structures."""

    least: IntArray
    """(C,)."""
    most: IntArray
    """(C,)."""


@leaf
def phi(p: float) -> float:
    """Return ``p log p``."""
    return p * np.log(p) if p > 0.0 else 0.0


def totals(corpus: Corpus) -> Totals:
    """Return the ranges of the totals of blocks."""
    model = corpus.model
    weights = np.eye(len(model.first) - 1)[:, model.block]
    return Totals(*count_ranges(corpus, weights))


def first_box(corpus: Corpus, totals: Totals) -> FloatArray:
    """Return the root box: (2 M,) lower, then upper bounds of the shares of all structures."""
    model = corpus.model
    least, most = count_ranges(corpus, np.eye(model.n_parameters))
    total_least, total_most = totals.least[model.block], totals.most[model.block]
    low = np.where(total_least > 0, least / np.maximum(total_most, 1), 0.0)
    high = np.where(total_least > 0, np.minimum(most / np.maximum(total_least, 1), 1.0), 1.0)
    return np.concatenate([low, high])


def count_ranges(corpus: Corpus, weights: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the minimum and maximum of ``<weights, counts>`` for each row of weights.

    Parameters
    ----------
    corpus
        The sentences.
    weights
        (K, M) integers.
    """
    derivations, n = corpus.derivations, corpus.model.n_parameters
    workspace, counts = new_workspace(derivations), np.empty(n)
    ends = [
        [round(sign * best_counts(derivations, sign * row, workspace, counts)) for row in weights]
        for sign in (-1.0, 1.0)
    ]
    return np.array(ends[0], dtype=np.int64), np.array(ends[1], dtype=np.int64)


@leaf
def tighten(first: IntArray, totals: Totals, low: FloatArray, high: FloatArray) -> bool:
    """Tighten a box; return whether it holds shares."""
    if not (shrink(first, low, high) and _snap(first, totals, low, high)):
        return False
    return bool(shrink(first, low, high))


@leaf
def shrink(first: IntArray, low: FloatArray, high: FloatArray) -> bool:
    """Tighten a box by the sums of its blocks; return whether it holds parameters."""
    for c in range(len(first) - 1):
        least = most = 0.0
        for m in range(first[c], first[c + 1]):
            least += low[m]
            most += high[m]
        if least > 1.0 + SUM_TOLERANCE or most < 1.0 - SUM_TOLERANCE:
            return False
        for m in range(first[c], first[c + 1]):
            # sums of the others, from the old bounds: looser only by rounding
            top, bottom = 1.0 - (least - low[m]), 1.0 - (most - high[m])
            high[m] = max(min(high[m], top), low[m])
            low[m] = min(max(low[m], bottom), high[m])
    return True


@leaf
def _snap(first: IntArray, totals: Totals, low: FloatArray, high: FloatArray) -> bool:
    """Move the ends of a box to fractions inside it; return whether it contains any."""
    for c in range(len(first) - 1):
        for m in range(first[c], first[c + 1]):
            bottom = -fraction_below(-low[m], totals.least[c], totals.most[c])
            top = fraction_below(high[m], totals.least[c], totals.most[c])
            if bottom > top + SUM_TOLERANCE:
                return False
            low[m], high[m] = min(bottom, top), top
    return True


@leaf
def fraction_below(x: float, least: int, most: int) -> float:
    """Return the largest fraction up to x with a denominator in a range.

    Returns x itself if the range is too large.
    """
    if most == 0 or (most > MAX_TOTAL and most > least):
        return x
    fraction = -np.inf
    for total in range(max(least, 1), most + 1):
        fraction = max(fraction, np.floor((x + SUM_TOLERANCE) * total) / total)
    return fraction


@leaf
def fraction_above(x: float, least: int, most: int) -> float:
    """Return the smallest fraction above x with a denominator in a range; x if it is too large."""
    if most == 0 or (most > MAX_TOTAL and most > least):
        return x
    fraction = np.inf
    for total in range(max(least, 1), most + 1):
        fraction = min(fraction, (np.floor((x + SUM_TOLERANCE) * total) + 1.0) / total)
    return fraction
