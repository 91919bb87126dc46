"""Kernels for the matchings of a bucket: active sets while these are small, then projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import (
    OPTIMAL,
    RUNNING,
    UNTIL_SOLVED,
    FloatArray,
    IntArray,
    LocalProblem,
    by_address,
    call_oracle,
    iteration_limit,
    multiply_by,
    problem_of,
    set_of,
    solve_by,
    status_of,
    stopped,
)
from lpsmap_factors_struct.birkhoff.lines import Lines, Sides, lines_workspace, sides_of
from lpsmap_factors_struct.birkhoff.matching_projection import (
    mark_tight_lines,
    move_on_face,
    project,
)
from lpsmap_factors_struct.birkhoff.matching_records import (
    DENSE,
    DENSE_KERNELS,
    NO_PROJECTION,
    SET_KERNELS,
    SMALL,
    SOLVED,
    block_of,
    matchings_at,
)
from lpsmap_factors_struct.methods import has_forced, rows_with

__all__ = [
    "multiply_matchings",
    "multiply_projections",
    "solve_matchings",
    "solve_projections",
]

MOST_STRUCTURES = 4
"""Limit of the structures of an active set. Larger ones are replaced by projections, which take
less time from about three structures on."""


# -------------------------------------------------------------------- whole solves


@kernel
def solve_matchings(
    matchings: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    """Solve the local problems of `rows`; the limit of iterations only applies to active sets."""
    small = rows_with(matchings_at(matchings).methods, rows, SMALL)
    dense = rows_with(matchings_at(matchings).methods, rows, DENSE)
    if len(dense) > 0:
        solve_by(matchings, DENSE_KERNELS, dense, a, eta_v, z, v, UNTIL_SOLVED)
    if len(small) > 0 and not stopped():
        allowed = iteration_limit(max_iterations, matchings, small, problem_of(matchings, a, eta_v))
        limit = min(allowed, MOST_STRUCTURES)
        solve_by(matchings, SET_KERNELS, small, a, eta_v, z, v, limit)
        grown = _beyond_limit(matchings, small, allowed >= MOST_STRUCTURES)
        if len(grown) > 0:
            if stopped() or not call_oracle(matchings, grown):
                return
            solve_by(matchings, DENSE_KERNELS, grown, a, eta_v, z, v, UNTIL_SOLVED)
    others = rows_with(matchings_at(matchings).methods, rows, NO_PROJECTION)
    if len(others) > 0 and not stopped():
        solve_by(matchings, SET_KERNELS, others, a, eta_v, z, v, max_iterations)


@kernel
def multiply_matchings(
    matchings: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of `rows`."""
    for method in (SMALL, NO_PROJECTION, DENSE):
        chosen = rows_with(matchings_at(matchings).methods, rows, method)
        if len(chosen) > 0:
            kernels = DENSE_KERNELS if method == DENSE else SET_KERNELS
            multiply_by(matchings, kernels, chosen, d_u, d_v, out_u, out_v)


@kernel
def _beyond_limit(matchings: Any, rows: IntArray, had_all: bool) -> IntArray:
    """Return the rows that are not solved and have reached the limit of their active set."""
    status, kept, n = status_of(matchings), np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        full = set_of(matchings, f).active[0] >= MOST_STRUCTURES
        if status[f] == RUNNING and (had_all or full):
            kept[n] = f
            n += 1
    return kept[:n]


@kernel
def solve_projections(
    matchings: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    """Solve the local problems of matchings by projections, without a limit of iterations.

    An interrupted projection leaves the last solution: that of the active set before the first one.
    """
    problem, lines = problem_of(matchings, a, eta_v), _workspace(matchings, rows)
    record, status = matchings_at(matchings), status_of(matchings)
    for f in rows:
        status[f] = RUNNING
        if stopped():
            return
        if has_forced(f, problem):
            record.methods[f] = NO_PROJECTION
            set_of(matchings, f).active[0] = 0  # structures without the pair have to go
            continue
        sides = sides_of(record.rows[f], record.columns[f], record.full[f] != 0)
        if _project(f, sides, problem, lines, block_of(matchings, f), z):
            status[f], record.methods[f] = OPTIMAL, DENSE
        elif not stopped():
            record.methods[f] = NO_PROJECTION


@kernel
def multiply_projections(
    matchings: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of matchings that are projected."""
    problem, lines = problem_of(matchings, d_u, d_v), _workspace(matchings, rows)
    record = matchings_at(matchings)
    for f in rows:
        sides = sides_of(record.rows[f], record.columns[f], record.full[f] != 0)
        _multiply(f, sides, problem, lines, block_of(matchings, f), out_u)


@kernel
def _workspace(matchings: Any, rows: IntArray) -> Lines:
    """Return a workspace that some matchings share."""
    record, long, short, entries = matchings_at(matchings), 0, 0, 0
    for f in rows:
        m, n = record.rows[f], record.columns[f]
        long, short, entries = max(long, m, n), max(short, min(m, n)), max(entries, m * n)
    return lines_workspace(long, short, entries)


# -------------------------------------------------------------------- one matching


@leaf
def _project(
    f: int,
    sides: Sides,
    problem: LocalProblem,
    workspace: Lines,
    block: FloatArray,
    z: FloatArray,
) -> bool:
    """Solve a matching's problem from the multipliers in its block; return whether it is solved."""
    lines, n_lines = by_address(workspace), sides.n_long + sides.n_short
    _read(f, sides, problem, lines)
    warm = block[SOLVED] == 1.0
    if warm:
        for k in range(n_lines):
            lines.multiplier[k] = block[1 + k]
    if not project(sides, warm, lines) and not (warm and project(sides, False, lines)):
        return False
    for k in range(n_lines):
        block[1 + k] = lines.multiplier[k]
    for e in range(sides.n_long * sides.n_short):
        block[1 + n_lines + e] = lines.x[e]
    block[SOLVED] = 1.0
    _write(f, sides, problem, lines.x, z)
    return True


@leaf
def _multiply(
    f: int,
    sides: Sides,
    problem: LocalProblem,
    workspace: Lines,
    block: FloatArray,
    out_u: FloatArray,
) -> None:
    """Multiply a matching's Jacobian."""
    lines, n_lines = by_address(workspace), sides.n_long + sides.n_short
    for k in range(n_lines):
        lines.multiplier[k] = block[1 + k]
    _read(f, sides, problem, lines)
    for e in range(sides.n_long * sides.n_short):
        lines.x[e] = block[1 + n_lines + e]
    mark_tight_lines(sides, lines)
    move_on_face(sides, lines)
    _write(f, sides, problem, lines.y, out_u)


@leaf
def _read(f: int, sides: Sides, problem: LocalProblem, lines: Lines) -> None:
    """Read the scaled scores, or a vector, and the degrees, by long line."""
    lo, e = problem.offsets[f], 0
    for i in range(sides.n_long):
        for j in range(sides.n_short):
            slot = lo + i * sides.along_long + j * sides.along_short
            inverse = problem.inverse_delta[slot]
            lines.y[e], lines.q[e] = problem.a[slot] / inverse, 1.0 / (inverse * inverse)
            e += 1


@leaf
def _write(f: int, sides: Sides, problem: LocalProblem, x: FloatArray, z: FloatArray) -> None:
    """Write numbers by slot, divided by the roots of the degrees."""
    lo, e = problem.offsets[f], 0
    for i in range(sides.n_long):
        for j in range(sides.n_short):
            slot = lo + i * sides.along_long + j * sides.along_short
            z[slot] = x[e] * problem.inverse_delta[slot]
            e += 1
