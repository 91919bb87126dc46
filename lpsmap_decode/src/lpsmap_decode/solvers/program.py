"""Graphs as integer linear programs, for external solvers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import FloatArray, IntArray, Layout, Part, constraints_of
from lpsmap_decode.constraints import FactorRows, factor_rows
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
    part = layout.part
    rows = factor_rows(part, constraints_of)
    of_row, of_column = _components(rows, part)
    columns, first_column = _grouped(of_column, layout.n_components)
    some_rows, first_row = _grouped(of_row, layout.n_components)
    entries, first_entry = _grouped(of_row[rows.row], layout.n_components)
    column_place, row_place = np.empty_like(of_column), np.empty_like(of_row)
    column_place[columns], row_place[some_rows] = np.arange(len(columns)), np.arange(len(some_rows))
    n_plain = part.n_variables + part.n_additionals
    gains = np.zeros(rows.n_columns)
    gains[: part.n_variables] = part.of_graph(scores)
    gains[part.n_variables : n_plain] = part.by_bucket(additional_scores, factors)
    found = []
    for c in components.tolist():
        mine, own = columns[first_column[c] : first_column[c + 1]], slice(*first_row[c : c + 2])
        some = entries[first_entry[c] : first_entry[c + 1]]
        kept, upper, masks = _without_masks(gains[mine])
        found.append(
            Program(
                variables=part.variables[mine[mine < part.n_variables]],
                scores=kept,
                upper=upper,
                n_auxiliary=int((mine >= n_plain).sum()),
                row=row_place[rows.row[some]] - first_row[c],
                column=column_place[rows.column[some]] - first_column[c],
                coefficient=rows.coefficient[some],
                low=rows.low[some_rows[own]],
                high=rows.high[some_rows[own]],
                masks=masks,
            )
        )
    return found


def _components(rows: FactorRows, part: Part) -> tuple[IntArray, IntArray]:
    """Return the components of all rows and columns; auxiliary numbers have that of their rows."""
    of_row, of_column = np.full(len(rows.low), -1), np.full(rows.n_columns, -1)
    of_column[: part.n_variables + part.n_additionals] = part.component_of_numbers
    while True:
        np.maximum.at(of_row, rows.row, of_column[rows.column])
        unknown = (of_column[rows.column] < 0) & (of_row[rows.row] >= 0)
        if not unknown.any():
            return of_row, of_column
        of_column[rows.column[unknown]] = of_row[rows.row[unknown]]


def _grouped(component: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return positions ordered by component, and the offsets of each component."""
    order = np.argsort(component, kind="stable")
    order = order[np.searchsorted(component[order], 0) :]
    return order, np.searchsorted(component[order], np.arange(n + 1))


def _without_masks(scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return scores and upper bounds where masks are forbidden, and the scores of masks."""
    upper = np.where(np.isneginf(scores), 0.0, 1.0)
    scores = np.where(upper == 0.0, 0.0, scores)
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
