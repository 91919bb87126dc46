"""Targets that are marginals: points of the convex hull of the structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import (
    FloatArray,
    PartlyConstrained,
    real_numbers,
    slot_values,
)
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.items import Items, Labels
from lpsmap_torch.tensors import numbers

__all__ = ["check_marginals", "read_additionals"]

SLACK = 0.01
"""The relative amount by which targets may violate a constraint: rounding of half precision."""


def read_additionals(graph: TorchFactorGraph, given: Any) -> list[FloatArray] | None:
    """Return the (n_factors, n_additionals) additionals of a target by declaration; None without.

    Parameters
    ----------
    graph
        The graph.
    given
        For the only declaration with additionals, a tensor in the shape of their scores; for
        several, a list of such tensors in the order of the declarations; or None.

    Raises
    ------
    ValueError
        If their number or a shape does not match, or a value is not finite.
    """
    if given is None:
        return None
    parts = list(given) if isinstance(given, (list, tuple)) else [given]
    shapes = [tuple(x.shape) for x in graph._additionals if x is not None and x.numel()]
    arrays = [
        numbers(x) if isinstance(x, Tensor) else real_numbers("target_additionals", x)
        for x in parts
    ]
    if [x.shape for x in arrays] != shapes:
        raise ValueError(
            f"target_additionals has shape {', '.join(str(x.shape) for x in arrays)}; expected "
            f"{', '.join(map(str, shapes)) or 'no such argument'}, one tensor for every "
            "declaration with additionals, in the shape of their scores, as "
            "graph.additionals_of(factor) returns."
        )
    if not all(np.isfinite(x).all() for x in arrays):
        raise ValueError("target_additionals is not finite; expected marginals.")
    left = iter(arrays)
    return [
        (next(left) if x is not None and x.numel() else np.empty(0))
        .astype(np.float64)
        .reshape(factor.n_factors, factor.n_additionals)
        for factor, x in zip(graph.factors, graph._additionals, strict=True)
    ]


def check_marginals(
    factors: Sequence[Factor], labels: Labels, known: FloatArray, items: Items
) -> list[FloatArray]:
    """Validate marginals as far as linear constraints of the factors allow.

    Types without such constraints are not checked, and those whose constraints are only necessary
    are checked incompletely.

    Parameters
    ----------
    factors
        The declarations.
    labels
        The target.
    known
        (n_variables,) its marginals, with zeros in padding.
    items
        The items, for error messages.

    Returns
    -------
    list of array
        For every declaration, the (n_factors, n_additionals) additionals.

    Raises
    ------
    ValueError
        If additionals are missing, or a constraint is violated.
    """
    nu = labels.additionals
    if nu is None:
        needed = [type(factor).__name__ for factor in factors if factor.n_additionals]
        if needed:
            raise ValueError(
                f"target: marginals do not determine the additionals of {needed[0]}; expected "
                "target_additionals, their marginals in the shape of their scores, as "
                "graph.additionals_of(factor) returns."
            )
        nu = [np.empty((factor.n_factors, 0)) for factor in factors]
    for factor, own in zip(factors, nu, strict=True):
        constraints = factor.linear_constraints()
        if constraints is None and isinstance(factor, PartlyConstrained):
            constraints = factor.necessary_constraints()
        if constraints is not None:
            _check(factor, constraints, _point(factor, known, own), items)
    return nu


def _point(factor: Factor, known: FloatArray, nu: FloatArray) -> FloatArray:
    """Return the slots and the additionals of a declaration."""
    values = known[slot_values(factor, factor.variables.index)]
    slots = np.where(slot_values(factor, factor.variables.negated), 1.0 - values, values)
    return np.concatenate([slots, nu.reshape(-1)])


def _check(factor: Factor, constraints: LinearConstraints, point: FloatArray, items: Items) -> None:
    """Validate that a point meets constraints, those with auxiliary numbers aside."""
    row, column = constraints.row, constraints.column
    n = len(constraints.low)
    open_rows = np.zeros(n, dtype=bool)
    open_rows[row[column >= len(point)]] = True
    inside = column < len(point)
    row, column = row[inside], column[inside]
    terms = constraints.coefficient[inside] * point[column]
    sums = np.bincount(row, terms, n)
    slack = SLACK * (1.0 + np.bincount(row, np.abs(terms), n))
    low, high = constraints.low, constraints.high
    wrong = np.flatnonzero(~open_rows & ((sums < low - slack) | (sums > high + slack)))
    if not wrong.size:
        return
    owner = np.repeat(np.arange(factor.n_factors), np.diff(factor.offsets))
    owner = np.append(owner, np.repeat(np.arange(factor.n_factors), factor.n_additionals))
    first = wrong[0]
    at = owner[column[row == first][0]] if (row == first).any() else 0
    raise ValueError(
        f"target: item {items.of_factors(factor)[at]} is no mixture of structures of "
        f"{type(factor).__name__}: a sum of its marginals is {sums[first]:.4g}; expected "
        f"{low[first]:g} to {high[first]:g}. Use the marginals of a solve."
    )
