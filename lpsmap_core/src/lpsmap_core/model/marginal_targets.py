"""Targets of losses that are marginals: points of the convex hull of the structures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear_constraints import LinearConstraints
from lpsmap_core.model.slots import slot_values
from lpsmap_core.model.sums import PartlyConstrained
from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = ["check_marginals", "target_additionals"]

SLACK = 0.01
"""The relative amount by which targets may violate a constraint: rounding of half precision."""


def target_additionals(
    factors: Sequence[Factor], targets: Sequence[npt.NDArray[np.generic]]
) -> list[FloatArray]:
    """Return the (n_factors, n_additionals) additionals of a target by declaration.

    Parameters
    ----------
    factors
        The declarations.
    targets
        An array for each declaration with additionals, in the shape of their scores.

    Raises
    ------
    ValueError
        If their number or a shape does not match, or a value is not finite.
    """
    counts = [factor.n_factors * factor.n_additionals for factor in factors]
    shapes = [np.shape(f.additionals) for f, n in zip(factors, counts, strict=True) if n]
    if [x.shape for x in targets] != [tuple(shape) for shape in shapes]:
        raise ValueError(
            f"target_additionals has shape {', '.join(str(x.shape) for x in targets)}; expected "
            f"{', '.join(str(tuple(x)) for x in shapes) or 'no such argument'}, one array for "
            "every declaration with additionals, in the shape of their scores, as "
            "graph.additionals_of(factor) returns."
        )
    if not all(np.isfinite(x).all() for x in targets):
        raise ValueError("target_additionals is not finite; expected marginals.")
    left = iter(targets)
    return [
        (next(left) if n else np.empty(0))
        .astype(np.float64)
        .reshape(factor.n_factors, factor.n_additionals)
        for factor, n in zip(factors, counts, strict=True)
    ]


def check_marginals(
    factors: Sequence[Factor],
    known: FloatArray,
    additionals: list[FloatArray] | None,
    items: Sequence[IntArray],
    kind: str = "item",
) -> list[FloatArray]:
    """Validate marginals as far as linear constraints of the factors allow.

    Types without such constraints are not checked, and those whose constraints are only necessary
    are checked incompletely.

    Parameters
    ----------
    factors
        The declarations.
    known
        (n_variables,) the marginals, with zeros in padding.
    additionals
        For every declaration, the (n_factors, n_additionals) additionals; None if not given.
    items, kind
        For every declaration, (n_factors,) the number of each factor's item; and what an item is
        called in error messages.

    Returns
    -------
    list of array
        The additionals, which are empty if no factor has any.

    Raises
    ------
    ValueError
        If additionals are missing, or a constraint is violated.
    """
    if additionals is None:
        needed = [type(factor).__name__ for factor in factors if factor.n_additionals]
        if needed:
            raise ValueError(
                f"target: marginals do not determine the additionals of {needed[0]}; expected "
                "target_additionals, their marginals in the shape of their scores, as "
                "graph.additionals_of(factor) returns."
            )
        additionals = [np.empty((factor.n_factors, 0)) for factor in factors]
    for factor, additional, item in zip(factors, additionals, items, strict=True):
        constraints = factor.linear_constraints()
        if constraints is None and isinstance(factor, PartlyConstrained):
            constraints = factor.necessary_constraints()
        if constraints is not None:
            wrong = _first_violated(factor, constraints, _point(factor, known, additional))
            if wrong is not None:
                at, message = wrong
                raise ValueError(f"target: {kind} {item[at]} {message}")
    return additionals


def _point(factor: Factor, known: FloatArray, nu: FloatArray) -> FloatArray:
    """Return the slots and the additionals of a declaration."""
    values = known[slot_values(factor, factor.variables.index)]
    slots = np.where(slot_values(factor, factor.variables.negated), 1.0 - values, values)
    return np.concatenate([slots, nu.reshape(-1)])


def _first_violated(
    factor: Factor, constraints: LinearConstraints, point: FloatArray
) -> tuple[int, str] | None:
    """Return a factor that violates constraints and how; those with auxiliary numbers aside."""
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
        return None
    owner = np.repeat(np.arange(factor.n_factors), np.diff(factor.offsets))
    owner = np.append(owner, np.repeat(np.arange(factor.n_factors), factor.n_additionals))
    first = wrong[0]
    at = owner[column[row == first][0]] if (row == first).any() else 0
    return int(at), (
        f"is no mixture of structures of {type(factor).__name__}: a sum of its marginals is "
        f"{sums[first]:.4g}; expected {low[first]:g} to {high[first]:g}. Use the marginals of a "
        "solve."
    )
