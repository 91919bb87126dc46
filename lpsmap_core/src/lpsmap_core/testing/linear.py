"""Checks of what a type says about its structures by linear constraints."""

from __future__ import annotations

import itertools

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear import LinearConstraints
from lpsmap_core.model.slots import slots_of
from lpsmap_core.model.sums import PartlyConstrained
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.linear_program import best_point
from lpsmap_core.testing.oracle import Oracle, oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = ["check_linear_constraints", "check_necessary_constraints"]

ROUNDING = 1e-9
"""By how much scores and sums may differ, as a multiple of their summed magnitudes."""

MOST_POINTS = 256
"""Patterns of zeros and ones to try; of larger factors some are drawn."""


def check_linear_constraints(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The best point within `linear_constraints` scores as the best structure, for any scores.

    Scores of 1 and -1 tell of each 0/1 point whether it is a structure: all are tried where they
    are few.
    """
    known = factor.linear_constraints()
    if known is None:
        return
    rng, oracles = np.random.default_rng(seed), oracles_of(factor)
    longest = max(oracle.size for oracle in oracles)
    if 2**longest <= MOST_POINTS:
        points = np.array(list(itertools.product([-1.0, 1.0], repeat=longest)))
    else:
        points = rng.choice([-1.0, 1.0], size=(4 * draws, longest))
    for of_all in np.concatenate([points, random_scores(rng, draws, longest)]):
        _hold_to_oracles(factor, known, oracles, of_all)


def _hold_to_oracles(
    factor: Factor, known: LinearConstraints, oracles: list[Oracle], scores: FloatArray
) -> None:
    """Compare the best point for scores, the same for all factors, with the best structures."""
    n_slots = int(factor.offsets[-1])
    columns = [_columns(factor, oracle) for oracle in oracles]
    of_column = np.zeros(n_slots + factor.n_factors * factor.n_additionals + known.n_auxiliary)
    for oracle, mine in zip(oracles, columns, strict=True):
        of_column[mine] = scores[: oracle.size]
    point = best_point(known, of_column)
    for oracle, mine in zip(oracles, columns, strict=True):
        own = scores[: oracle.size]
        vertex = oracle.of(own).vertex
        expected = float(own @ vertex)
        found = -np.inf if point is None else float(own @ point[mine])
        got = "no point" if point is None else f"{point[mine].tolist()}, score {found:.10g}"
        if not abs(found - expected) <= ROUNDING * np.abs(scores).sum():
            raise broken(
                "linear_constraints have the hull of the structures for their solutions, because "
                "solves start from them and solvers of whole graphs know nothing else",
                got,
                f"{vertex.tolist()}, score {expected:.10g}",
                oracle.where(own),
            )


def _columns(factor: Factor, oracle: Oracle) -> IntArray:
    """Return which columns a factor's slots and additionals are."""
    slots, n = slots_of(factor, oracle.i), factor.n_additionals
    first = int(factor.offsets[-1]) + oracle.i * n
    columns: IntArray = np.r_[slots.start : slots.stop, first : first + n]
    return columns


def check_necessary_constraints(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Every structure meets `necessary_constraints`, as far as they are about slots alone."""
    if not isinstance(factor, PartlyConstrained):
        return
    known = factor.necessary_constraints()
    rng, n_slots = np.random.default_rng(seed), int(factor.offsets[-1])
    others = np.zeros(len(known.low), dtype=bool)
    others[known.row[known.column >= n_slots]] = True
    shown = ~others[known.row]
    for oracle in oracles_of(factor):
        slots = slots_of(factor, oracle.i)
        mine = shown & (known.column >= slots.start) & (known.column < slots.stop)
        rows, column = known.row[mine], known.column[mine] - slots.start
        asked = np.isin(np.arange(len(known.low)), rows)
        for scores in random_scores(rng, draws, oracle.size):
            vertex = oracle.of(scores).vertex
            sums = np.bincount(rows, known.coefficient[mine] * vertex[column], len(known.low))
            fits = (sums >= known.low - ROUNDING) & (sums <= known.high + ROUNDING)
            wrong = np.flatnonzero(asked & ~fits)
            if wrong.size:
                r = wrong[0]
                raise broken(
                    "necessary_constraints hold for every structure, because plan() relies on them",
                    f"{vertex.tolist()}, of which row {r} has the sum {sums[r]:g}",
                    f"{known.low[r]:g} to {known.high[r]:g}",
                    oracle.where(scores),
                )
