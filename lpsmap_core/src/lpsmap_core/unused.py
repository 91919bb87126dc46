"""Scores of entries that no structure has on: whatever they are, they count for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import leaf
from lpsmap_core.factor import Factor

__all__ = ["are_scores", "forget_unused"]

FloatArray = npt.NDArray[np.float64]


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
    mended = list(additionals)
    clean = are_scores(scores)
    for i, (factor, extra) in enumerate(zip(factors, additionals, strict=True)):
        clean_extra = are_scores(extra.reshape(-1))
        if clean and clean_extra:
            continue
        slots, unused = factor.unused()
        if slots is not None and not clean:
            index = factor.links(factor.variables.index)[factor.links(slots)]
            scores[index[~(scores[index] < np.inf)]] = 0.0
        if unused is not None and not clean_extra:
            mended[i] = np.where(unused & ~(extra < np.inf), 0.0, extra)
    return mended


@leaf
def are_scores(values: FloatArray) -> bool:
    """Whether none of some numbers is NaN or +inf."""
    wrong = 0
    for value in values:
        wrong += not value < np.inf  # a NaN is not less
    return wrong == 0
