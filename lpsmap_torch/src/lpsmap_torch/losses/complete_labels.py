"""Structures given by complete labels, validated by the oracles of the factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import (
    HEADS,
    BoolArray,
    FloatArray,
    Layout,
    check_marginals,
    complete_assignment,
)
from lpsmap_torch.items import Items, Labels

__all__ = ["are_complete", "check_not_forbidden", "given_additionals", "structure_additionals"]


def are_complete(layout: Layout, labels: Labels) -> bool:
    """Return whether all variables in factors are labelled.

    Raises
    ------
    ValueError
        If they are not, but marginals are given.
    """
    if not np.isnan(labels.known[layout.component >= 0]).any():
        return True
    if labels.are_marginals:
        raise ValueError(
            "target: marginals are given for some variables only; expected marginals of all "
            "variables in factors, or labels 0, 1 and NaN."
        )
    return False


def given_additionals(
    layout: Layout,
    factors: Sequence[Factor],
    additional_scores: Sequence[FloatArray],
    labels: Labels,
    items: Items,
) -> list[FloatArray]:
    """Return the (n_factors, n_additionals) additionals of complete labels, by declaration.

    Parameters
    ----------
    layout, factors, additional_scores
        The layout, declarations and additional scores of the graph.
    labels
        The labels, or marginals.
    items
        The items, for error messages.
    """
    known = np.where(items.of_variable >= 0, labels.known, 0.0)
    if labels.are_marginals:
        owners = [items.of_factors(factor) for factor in factors]
        return check_marginals(factors, known, labels.additionals, owners)
    return structure_additionals(layout, factors, additional_scores, known, items)


def structure_additionals(
    layout: Layout,
    factors: Sequence[Factor],
    additional_scores: Sequence[FloatArray],
    known: FloatArray,
    items: Items,
) -> list[FloatArray]:
    """Return the (n_factors, n_additionals) additionals of given structures by declaration.

    Parameters
    ----------
    layout, factors, additional_scores
        The layout, declarations and additional scores of the graph.
    known
        (n_variables,) 0 or 1 for every variable that is in a factor.
    items
        The items, for error messages.

    Raises
    ------
    ValueError
        If a factor does not allow the structures.
    """
    eta_v = [np.where(scores < np.inf, scores, 0.0) for scores in additional_scores]
    completed = complete_assignment(layout, factors, eta_v, known > 0.5)
    for factor, allowed in zip(factors, completed.allowed, strict=True):
        item = items.of_factors(factor)
        wrong = np.flatnonzero(~allowed & (item >= 0))
        if wrong.size:
            convention = f" {HEADS}" if hasattr(factor, "root_arcs") else ""
            raise ValueError(
                f"target: item {item[wrong[0]]} is not a structure that {type(factor).__name__} "
                "allows; expected zeros and ones that all factors allow together, or NaN for "
                f"unlabelled variables.{convention}"
            )
    return completed.additionals


def check_not_forbidden(scores: FloatArray, on: BoolArray, items: Items) -> None:
    """Validate that no forbidden variable is on.

    Raises
    ------
    ValueError
        If a variable is on whose score is -inf.
    """
    wrong = np.flatnonzero(on & np.isneginf(scores) & (items.of_variable >= 0))
    if wrong.size:
        raise ValueError(
            f"target: item {items.of_variable[wrong[0]]} has a variable on whose score is -inf; "
            "expected 0 there, or a finite score."
        )
