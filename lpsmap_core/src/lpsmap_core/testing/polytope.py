"""Checks of linear constraints against the structures of a type."""

from __future__ import annotations

import itertools

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear_constraints import LinearConstraints, PartlyConstrained
from lpsmap_core.model.slots import slots_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.linear_program import best_point
from lpsmap_core.testing.oracle import Oracle, oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray, IntArray

ROUNDING = 1e-9
"""Allowed difference of scores and sums, as a multiple of their summed magnitudes."""

MAX_POINTS = 256
"""Maximum number of 0/1 points to enumerate; for larger factors, points are drawn."""


def check_linear_constraints(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """For any scores, the best point within `linear_constraints` has the best structure's score.

    Scores of 1 and -1 reveal whether a 0/1 point is a structure. If there are few such points, all
    are tried.
    """
    constraints = factor.linear_constraints()
    if constraints is None:
        return
    _check_entries(factor, "linear_constraints", constraints)
    rng, oracles = np.random.default_rng(seed), oracles_of(factor)
    longest = max(oracle.size for oracle in oracles)
    if 2**longest <= MAX_POINTS:
        points = np.array(list(itertools.product([-1.0, 1.0], repeat=longest)))
    else:
        points = rng.choice([-1.0, 1.0], size=(4 * draws, longest))
    for scores in np.concatenate([points, random_scores(rng, draws, longest)]):
        _compare_with_oracles(factor, constraints, oracles, scores)


def _check_entries(factor: Factor, method: str, constraints: LinearConstraints) -> None:
    """Validate that a method returned constraints whose entries have a row and a column."""
    rule = f"{method} returns LinearConstraints, whose entries have a row and a column, "
    rule += "because solvers read them as a matrix"
    if not isinstance(constraints, LinearConstraints):
        expected = "lpsmap_core.LinearConstraints, or None"
        raise broken(rule, repr(constraints), expected, repr(factor))
    row, column, n_rows = constraints.row, constraints.column, len(constraints.low)
    if row.shape != column.shape:
        sizes = f"row of shape {row.shape} and column of shape {column.shape}"
        raise broken(rule, sizes, "equal shapes", repr(factor))
    n_slots, n_additionals = int(factor.offsets[-1]), factor.n_factors * factor.n_additionals
    n_columns = n_slots + n_additionals + constraints.n_auxiliary
    if not (_within(row, n_rows) and _within(column, n_columns)):
        raise broken(
            rule,
            f"rows from {row.min()} to {row.max()}, columns from {column.min()} to {column.max()}",
            f"rows below {n_rows}, the number of bounds, and columns below {n_columns}: {n_slots} "
            f"slots, {n_additionals} additionals and {constraints.n_auxiliary} auxiliary numbers",
            repr(factor),
        )


def _within(index: IntArray, n: int) -> bool:
    return not index.size or bool(index.min() >= 0 and index.max() < n)


def _compare_with_oracles(
    factor: Factor, constraints: LinearConstraints, oracles: list[Oracle], scores: FloatArray
) -> None:
    """Compare the best point for scores, the same for all factors, with the best structures."""
    n_columns = int(factor.offsets[-1]) + factor.n_factors * factor.n_additionals
    columns = [_columns(factor, oracle) for oracle in oracles]
    of_columns = np.zeros(n_columns + constraints.n_auxiliary)
    for oracle, index in zip(oracles, columns, strict=True):
        of_columns[index] = scores[: oracle.size]
    point = best_point(constraints, of_columns)
    for oracle, index in zip(oracles, columns, strict=True):
        of_factor = scores[: oracle.size]
        vertex = oracle.of(of_factor).vertex
        expected = float(of_factor @ vertex)
        score = -np.inf if point is None else float(of_factor @ point[index])
        got = "no point" if point is None else f"{point[index].tolist()}, score {score:.10g}"
        if not abs(score - expected) <= ROUNDING * np.abs(scores).sum():
            raise broken(
                "the solutions of linear_constraints are the hull of the structures, because "
                "solves start from them and solvers of whole graphs use only them",
                got,
                f"{vertex.tolist()}, score {expected:.10g}",
                oracle.where(of_factor),
            )


def _columns(factor: Factor, oracle: Oracle) -> IntArray:
    """Return the columns of a factor's slots and additionals."""
    slots, n = slots_of(factor, oracle.i), factor.n_additionals
    first = int(factor.offsets[-1]) + oracle.i * n
    columns: IntArray = np.r_[slots.start : slots.stop, first : first + n]
    return columns


def check_necessary_constraints(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Every structure meets those `necessary_constraints` that are on slots alone."""
    if not isinstance(factor, PartlyConstrained):
        return
    constraints = factor.necessary_constraints()
    _check_entries(factor, "necessary_constraints", constraints)
    low, high, n_rows = constraints.low, constraints.high, len(constraints.low)
    rng, n_slots = np.random.default_rng(seed), int(factor.offsets[-1])
    on_slots = np.ones(n_rows, dtype=bool)
    on_slots[constraints.row[constraints.column >= n_slots]] = False
    for oracle in oracles_of(factor):
        slots = slots_of(factor, oracle.i)
        entries = (constraints.column >= slots.start) & (constraints.column < slots.stop)
        entries &= on_slots[constraints.row]
        rows, column = constraints.row[entries], constraints.column[entries] - slots.start
        of_factor = np.isin(np.arange(n_rows), rows)
        for scores in random_scores(rng, draws, oracle.size):
            vertex = oracle.of(scores).vertex
            sums = np.bincount(rows, constraints.coefficient[entries] * vertex[column], n_rows)
            feasible = (sums >= low - ROUNDING) & (sums <= high + ROUNDING)
            wrong = np.flatnonzero(of_factor & ~feasible)
            if wrong.size:
                r = wrong[0]
                raise broken(
                    "necessary_constraints hold for every structure, because searches use them",
                    f"{vertex.tolist()}, whose sum in constraint {r} is {sums[r]:g}",
                    f"{low[r]:g} to {high[r]:g}",
                    oracle.where(scores),
                )
