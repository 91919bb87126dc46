"""Graphs as integer linear programs, for external solvers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import FloatArray, IntArray, Layout
from lpsmap_decode.constraints import of_variables, summed
from lpsmap_decode.solvers.map_solver import Program

__all__ = [
    "WithMasks",
    "as_given",
    "masked_bound",
    "programs",
    "with_masks",
    "without_constraints",
]

DECISIVE = 4.0
"""Negative scores this many times as large as the sum of all smaller absolute scores are masks: any
assignment without them is better. They are excluded from the program, since solvers have
tolerances."""


def masked_bound(program: Program) -> float:
    """Return an upper bound on assignments that use a mask; ``-inf`` without masks."""
    if not program.masks.any():
        return -np.inf
    gains = program.scores[program.scores > 0.0].sum()
    return float(gains + program.masks[program.masks < 0.0].max())


def as_given(program: Program) -> Program:
    """Return the program with the mask scores as ordinary ones."""
    return dataclasses.replace(
        program,
        scores=program.scores + program.masks,
        upper=np.where(program.masks < 0.0, 1.0, program.upper),
        masks=np.zeros(len(program.masks)),
    )


def with_masks(program: Program) -> WithMasks | None:
    """Return the program with masks, if its answer minimises their number; otherwise None.

    Mask scores are as small as possible while they still dominate, since solvers compare other
    scores with them.
    """
    there = program.masks < 0.0
    size = float(-program.masks[there].max(initial=-np.inf))
    rest = np.where(there, program.masks + size, program.scores)
    spread = float(np.abs(rest).sum())
    if not 0.5 * size > spread:
        return None
    counted = min(size, DECISIVE * max(spread, np.finfo(np.float64).tiny))
    scores = np.where(there, rest - counted, rest)
    counting = dataclasses.replace(as_given(program), scores=scores)
    return WithMasks(counting, size, counted, spread)


class WithMasks(NamedTuple):
    """A program in which mask scores are reduced, and all other scores unchanged."""

    program: Program
    size: float
    """The magnitude of a mask score; `counted` is its magnitude in the program."""
    counted: float
    spread: float
    """The sum of all other absolute scores."""

    def bound(self, bound: float) -> float:
        """Return the bound for the original scores, given a bound for the program."""
        if bound == -np.inf:
            return bound
        fewest = max(0.0, np.ceil((-self.spread - bound) / self.counted))
        rounding = 4.0 * np.finfo(np.float64).eps * fewest * self.size
        return float(bound - fewest * (self.size - self.counted) + rounding)


@dataclass(frozen=True)
class _Whole:
    """The program of a whole graph, with the component of every column and row."""

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


def without_constraints(factors: Sequence[Factor]) -> list[str]:
    """Return the names of factor types without linear constraints."""
    names = (type(f).__name__ for f in factors if f.linear_constraints() is None)
    return list(dict.fromkeys(names))


def programs(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
    components: IntArray,
) -> list[Program]:
    """Return the programs of components of a graph.

    Parameters
    ----------
    layout, factors
        The graph; all its factor types have linear constraints.
    scores, additional_scores
        Scores of its variables, and of the additionals of every declaration; ``-inf`` forbids.
    components
        The components.
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
        kept, upper, masks = _without_masks(whole.scores[mine], whole.upper[mine])
        row, column, coefficient = summed(
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
                masks=masks,
            )
        )
    return found


def _whole(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
) -> _Whole:
    """Return the program of a graph; columns are variables, additionals and auxiliaries."""
    n = layout.n_variables
    described = [_described(factor) for factor in factors]
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


def _described(factor: Factor) -> tuple[LinearConstraints, IntArray]:
    """Return the constraints of a declaration over variables, and the variable of each slot."""
    given = factor.linear_constraints()
    assert given is not None
    return of_variables(factor, given)


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
    """Return positions ordered by component, and the offsets of each component."""
    order = np.argsort(component, kind="stable")
    order = order[np.searchsorted(component[order], 0) :]
    return order, np.searchsorted(component[order], np.arange(n + 1))


def _without_masks(
    scores: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Forbid variables with mask scores, and return these scores."""
    magnitude = np.abs(scores)
    order = np.argsort(magnitude, kind="stable")
    smaller = np.append(0.0, np.cumsum(magnitude[order]))[:-1]
    decisive = (smaller > 0.0) & (magnitude[order] > DECISIVE * smaller)
    decisive[: np.flatnonzero(scores[order] > 0.0).max(initial=-1) + 1] = False
    masks = np.zeros(len(scores))
    first = np.flatnonzero(decisive)[:1]
    if first.size:
        masks[order[first[0] :]] = scores[order[first[0] :]]
    return np.where(masks < 0.0, 0.0, scores), np.where(masks < 0.0, 0.0, upper), masks
