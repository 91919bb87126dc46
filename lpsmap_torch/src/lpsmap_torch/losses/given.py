"""The structures that complete labels are, checked by the factors' own oracles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, FloatArray, Layout, complete_assignment
from lpsmap_torch.losses.labels import Items

__all__ = ["given_additionals", "refuse_forbidden"]


def given_additionals(
    layout: Layout,
    factors: Sequence[Factor],
    additional_scores: Sequence[FloatArray],
    known: FloatArray,
    items: Items,
) -> list[FloatArray]:
    """Return the additionals of given structures, for every declaration (n_factors, n_additionals).

    Parameters
    ----------
    layout, factors, additional_scores
        Of the graph.
    known
        (n_variables,) 0 or 1 for every variable that is in a factor.
    items
        For messages.

    Raises
    ------
    ValueError
        If a factor does not allow them.
    """
    eta_v = [np.where(scores < np.inf, scores, 0.0) for scores in additional_scores]
    completed = complete_assignment(layout, factors, eta_v, known > 0.5)
    for factor, allowed in zip(factors, completed.allowed, strict=True):
        item = items.of_rows(factor)
        wrong = np.flatnonzero(~allowed & (item >= 0))
        if wrong.size:
            raise ValueError(
                f"target: item {item[wrong[0]]} is none that {type(factor).__name__} allows; "
                "expected zeros and ones that all factors agree with, or NaN for what is not known."
            )
    return completed.additionals


def refuse_forbidden(scores: FloatArray, on: BoolArray, items: Items) -> None:
    """Refuse structures that are forbidden.

    Raises
    ------
    ValueError
        If a variable is on whose score is -inf.
    """
    wrong = np.flatnonzero(on & np.isneginf(scores) & (items.of_variable >= 0))
    if wrong.size:
        raise ValueError(
            f"target: item {items.of_variable[wrong[0]]} has a variable on that a score of -inf "
            "forbids; expected 0 there, or a finite score."
        )
