"""Checks of linear constraints against the structures of a type."""

from __future__ import annotations

import itertools

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear_constraints import (
    LinearConstraints,
    PartlyConstrained,
    constraints_of,
)
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
    constraints = _constraints(factor, "linear_constraints")
    if constraints is None:
        return
    rng, oracles = np.random.default_rng(seed), oracles_of(factor)
    longest = max(oracle.size for oracle in oracles)
    if 2**longest <= MAX_POINTS:
        points = np.array(list(itertools.product([-1.0, 1.0], repeat=longest)))
    else:
        points = rng.choice([-1.0, 1.0], size=(4 * draws, longest))
    for scores in np.concatenate([points, random_scores(rng, draws, longest)]):
        _compare_with_oracles(factor, constraints, oracles, scores)


def _constraints(factor: Factor, method: str) -> LinearConstraints | None:
    """Return what a method returns, if that describes the declaration, or None."""
    try:
        return constraints_of(factor, method)
    except (TypeError, ValueError) as error:
        raise broken(
            f"{method} returns LinearConstraints, whose entries have a row and a column, because "
            "solvers read them as a matrix",
            str(error),
            "constraints on the numbers of the declaration",
            repr(factor),
        ) from error


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
    constraints = _constraints(factor, "necessary_constraints")
    if constraints is None:
        return
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
