"""The structures that complete labels are, checked by the factors' own oracles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.decoding.assignments import best_additionals
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.layout.layout import Layout, Part
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
    part = layout.part
    eta_v = part.by_bucket(additional_scores, factors)
    eta_v = np.where(eta_v < np.inf, eta_v, 0.0)
    allowed, v = best_additionals(part, eta_v, known[part.variables] > 0.5)
    counted = items.of_component[part.blocks.component] >= 0
    wrong = np.flatnonzero(~allowed & counted)
    if wrong.size:
        item = items.of_component[part.blocks.component[wrong[0]]]
        raise ValueError(
            f"target: item {item} is none that {_name(part, int(wrong[0]))} allows; expected zeros "
            "and ones that all factors agree with, or NaN for what is not known."
        )
    return part.by_declaration(v, factors)


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


def _name(part: Part, number: int) -> str:
    """Return the type of a factor, numbered over all buckets."""
    for bucket in part.buckets:
        if number < bucket.n_factors:
            return type(bucket.declarations[0]).__name__
        number -= bucket.n_factors
    raise IndexError(number)
