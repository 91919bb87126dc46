"""Graphs as integer linear programs: what solvers of whole graphs are handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lpsmap_core.kernels.arrays import BoolArray, FloatArray, IntArray
from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear import LinearConstraints, LinearlyConstrained

__all__ = ["Program", "programs", "without_description"]

LARGE = 1e7
"""Scores below minus this are masks: solvers, which compare up to tolerances, leave them out."""


@dataclass(frozen=True)
class Program:
    """``maximise <scores, x>`` over ``low <= A x <= high`` and ``0 <= x <= upper``.

    Attributes
    ----------
    variables
        The graph's numbers of the component's variables: the first columns, which are 0 or 1.
    scores, upper
        For each column. Behind the variables come the additionals of their factors, which are 0 or
        1 as well where the variables are, and auxiliary columns.
    n_auxiliary
        How many of these there are.
    row, column, coefficient
        The entries of A, row by row, one for a place.
    low, high
        For each row.
    masked
        What no assignment scores more than that uses what was left out as a mask; ``-inf`` if
        nothing was.
    """

    variables: IntArray
    scores: FloatArray
    upper: FloatArray
    n_auxiliary: int
    row: IntArray
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    masked: float


@dataclass(frozen=True)
class _Whole:
    """The program of a whole graph, whose columns and rows are told apart by components."""

    scores: FloatArray
    upper: FloatArray
    component: IntArray
    n_plain: int
    row: IntArray
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    row_component: IntArray


def without_description(factors: Sequence[Factor]) -> list[str]:
    """Return the names of the types that have no linear constraints."""
    names = (type(f).__name__ for f in factors if not isinstance(f, LinearlyConstrained))
    return list(dict.fromkeys(names))


def programs(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
    components: IntArray,
) -> list[Program]:
    """Return the programs of some components of a graph.

    Parameters
    ----------
    layout, factors
        The graph, all of whose types have linear constraints.
    scores, additional_scores
        Those of its variables, and of every declaration's additionals; ``-inf`` forbids.
    components
        Which components.
    """
    whole = _whole(layout, factors, scores, additional_scores)
    columns, first_column = _grouped(whole.component, layout.n_components)
    rows, first_row = _grouped(whole.row_component, layout.n_components)
    entries, first_entry = _grouped(whole.row_component[whole.row], layout.n_components)
    place = np.empty(len(whole.component), dtype=np.int64)
    row_place = np.empty(len(whole.row_component), dtype=np.int64)
    place[columns], row_place[rows] = np.arange(len(columns)), np.arange(len(rows))
    found = []
    for c in components.tolist():
        mine, own = columns[first_column[c] : first_column[c + 1]], slice(*first_row[c : c + 2])
        some = entries[first_entry[c] : first_entry[c + 1]]
        variables = mine[mine < layout.n_variables]
        kept, upper, masked = _without_masks(whole.scores[mine], whole.upper[mine])
        row, column, coefficient = _summed(
            row_place[whole.row[some]] - first_row[c],
            place[whole.column[some]] - first_column[c],
            whole.coefficient[some],
            len(mine),
        )
        found.append(
            Program(
                variables=variables,
                scores=kept,
                upper=upper,
                n_auxiliary=int((mine >= whole.n_plain).sum()),
                row=row,
                column=column,
                coefficient=coefficient,
                low=whole.low[rows[own]],
                high=whole.high[rows[own]],
                masked=masked,
            )
        )
    return found


def _whole(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
) -> _Whole:
    """Return the program of a graph: its variables, all additionals, all auxiliary columns."""
    n = layout.n_variables
    described = [_of_variables(factor) for factor in factors]
    n_additionals = [f.n_factors * f.n_additionals for f in factors]
    n_plain = n + sum(n_additionals)
    n_columns = n_plain + sum(constraints.n_auxiliary for constraints, _ in described)
    component = np.full(n_columns, -1)
    component[:n] = layout.component
    gains = [scores, *(x.reshape(-1) for x in additional_scores), np.zeros(n_columns - n_plain)]
    row, column, at, auxiliary, first_row = [], [], n, n_plain, 0
    for factor, (constraints, index), extra in zip(factors, described, n_additionals, strict=True):
        owner = np.full(factor.n_factors, -1)
        filled = np.diff(factor.offsets) > 0
        owner[filled] = layout.component[index[factor.offsets[:-1][filled]]]
        component[at : at + extra] = np.repeat(owner, factor.n_additionals)
        ids = [index, np.arange(at, at + extra)]
        ids.append(np.arange(auxiliary, auxiliary + constraints.n_auxiliary))
        row.append(constraints.row + first_row)
        column.append(np.concatenate(ids)[constraints.column])
        at, auxiliary = at + extra, auxiliary + constraints.n_auxiliary
        first_row += len(constraints.low)
    rows, columns = np.concatenate([_NONE, *row]), np.concatenate([_NONE, *column])
    row_component = _spread(rows, columns, component, first_row)
    flat, forbidden = np.concatenate(gains), np.isneginf(np.concatenate(gains))
    return _Whole(
        scores=np.where(forbidden, 0.0, flat),
        upper=np.where(forbidden, 0.0, 1.0),
        component=component,
        n_plain=n_plain,
        row=rows,
        column=columns,
        coefficient=np.concatenate([np.empty(0), *(c.coefficient for c, _ in described)]),
        low=np.concatenate([np.empty(0), *(c.low for c, _ in described)]),
        high=np.concatenate([np.empty(0), *(c.high for c, _ in described)]),
        row_component=row_component,
    )


_NONE = np.empty(0, dtype=np.int64)


def _of_variables(factor: Factor) -> tuple[LinearConstraints, IntArray]:
    """Return a declaration's constraints in terms of variables, and the variable of every slot.

    A negated slot is 1 less its variable.
    """
    assert isinstance(factor, LinearlyConstrained)
    given = factor.linear_constraints()
    slots = np.zeros(
        int(factor.offsets[-1]) + factor.n_factors * factor.n_additionals + given.n_auxiliary, bool
    )
    slots[: factor.offsets[-1]] = factor.links(factor.variables.negated)
    flipped: BoolArray = slots[given.column]
    shift = np.bincount(
        given.row, np.where(flipped, given.coefficient, 0.0), minlength=len(given.low)
    )
    mirrored = LinearConstraints(
        given.row,
        given.column,
        np.where(flipped, -given.coefficient, given.coefficient),
        given.low - shift,
        given.high - shift,
        given.n_auxiliary,
    )
    return mirrored, factor.links(factor.variables.index)


def _spread(rows: IntArray, columns: IntArray, component: IntArray, n_rows: int) -> IntArray:
    """Return the component of every row, and write that of auxiliary columns."""
    of_row = np.full(n_rows, -1)
    while True:
        np.maximum.at(of_row, rows, component[columns])
        unknown = (component[columns] < 0) & (of_row[rows] >= 0)
        if not unknown.any():
            return of_row
        component[columns[unknown]] = of_row[rows[unknown]]


def _grouped(component: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return positions ordered by component, and where each component's begin among them."""
    order = np.argsort(component, kind="stable")
    order = order[np.searchsorted(component[order], 0) :]
    return order, np.searchsorted(component[order], np.arange(n + 1))


def _summed(
    row: IntArray, column: IntArray, coefficient: FloatArray, n_columns: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return entries row by row, one a place: a variable may be in several slots of a factor."""
    places, which = np.unique(row * n_columns + column, return_inverse=True)
    summed: FloatArray = np.bincount(which, coefficient, len(places)).astype(np.float64)
    return places // n_columns, places % n_columns, summed


def _without_masks(scores: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Forbid what is hugely negative; return what assignments that use it score at most."""
    masks = scores < -LARGE
    if not masks.any():
        return scores, upper, -np.inf
    most = float(scores[scores > 0.0].sum() + scores[masks].max())
    return np.where(masks, 0.0, scores), np.where(masks, 0.0, upper), most
