"""Kernels for the matchings of a bucket that are projected."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import (
    OPTIMAL,
    RUNNING,
    FloatArray,
    IntArray,
    LocalProblem,
    by_address,
    problem_of,
    set_of,
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
    NO_PROJECTION,
    SOLVED,
    block_of,
    matchings_at,
)

# -------------------------------------------------------------------- whole solves


@kernel
def solve_projections(
    matchings: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
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
        if _has_forced(f, problem):
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
def _has_forced(f: int, problem: LocalProblem) -> bool:
    """Return whether a variable of a factor must be on."""
    for slot in range(problem.offsets[f], problem.offsets[f + 1]):
        if problem.a[slot] == np.inf:
            return True
    return False


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
