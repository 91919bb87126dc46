"""Scores of entries that no structure has on: whatever they are, they count for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.model.factor import Factor

__all__ = ["MAGNITUDE", "are_scores", "forget_unused", "largest_magnitude"]

MAGNITUDE = np.int64(2**63 - 1)
"""All bits of a number but its sign."""


def forget_unused(
    factors: Sequence[Factor], scores: FloatArray, additionals: Sequence[FloatArray]
) -> list[FloatArray]:
    """Write zeros for NaN and +inf where factors say that the score is not used.

    Parameters
    ----------
    factors
        The declarations of a graph.
    scores
        (n_variables,) scores, written into.
    additionals
        For every declaration the (n_factors, n_additionals) scores of its additionals.

    Returns
    -------
    list
        The additionals, copies of those that changed.
    """
    clean, mended = are_scores(scores), list(additionals)
    wrong = [i for i, x in enumerate(mended) if x.size and not are_scores(x.reshape(-1))]
    for i in wrong if clean else range(len(mended)):
        slots, unused = factors[i].unused()
        if slots is not None and not clean:
            index = factors[i].links(factors[i].variables.index)[factors[i].links(slots)]
            scores[index[~(scores[index] < np.inf)]] = 0.0
        if unused is not None and i in wrong:
            mended[i] = np.where(unused & ~(mended[i] < np.inf), 0.0, mended[i])
    return mended


@leaf
def are_scores(values: FloatArray) -> bool:
    """Whether none of some numbers is NaN or +inf."""
    wrong = 0
    for value in values:
        wrong += not value < np.inf  # a NaN is not less
    return wrong == 0


@leaf
def largest_magnitude(values: FloatArray) -> float:
    """Return the largest magnitude of some numbers, 0 for none, NaN if one is.

    Bits, read as integers, are in the order of the magnitudes, and vector instructions compare
    them, which for numbers that may be NaN compilers do not let them do.
    """
    most = np.int64(0)
    for bits in values.view(np.int64):
        most = max(most, bits & MAGNITUDE)
    found = np.int64(most)  # numba has views of numbers that are assigned once
    magnitude: float = found.view(np.float64)
    return magnitude
