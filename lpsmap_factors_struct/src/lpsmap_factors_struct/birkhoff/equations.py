"""The equations of the multipliers of lines, on the support of the marginals.

They are those of a bipartite graph: the equations of the long lines have a diagonal matrix, and are
eliminated. What remains has as many unknowns as there are short lines.
"""

from __future__ import annotations

from lpsmap_core import leaf
from lpsmap_factors_struct.birkhoff.lines import Lines, Sides

MIN_PIVOT = 1e-11
"""A line whose pivot is below this share of its diagonal element depends on others, and rests."""


@leaf
def solve_equations(sides: Sides, damping: float, lines: Lines) -> None:
    """Solve for ``lines.step``, which holds the right-hand side; lines at rest get 0.

    The matrix has the degrees `q` of the entries on the support of `x`. Its diagonal has their sums
    by line, and the `damping`.
    """
    _eliminate_long(sides, damping, lines)
    _solve_short(sides, lines)
    q, x, step, moves, diagonal = lines.q, lines.x, lines.step, lines.moves, lines.diagonal
    n_long, n_short = sides.n_long, sides.n_short
    for i in range(n_long):
        row, total = i * n_short, step[i]
        if moves[i] == 0.0:
            step[i] = 0.0
            continue
        for j in range(n_short):
            if x[row + j] > 0.0:
                total -= q[row + j] * step[n_long + j]
        step[i] = total / diagonal[i]


@leaf
def _eliminate_long(sides: Sides, damping: float, lines: Lines) -> None:
    """Write the equations of the short lines, without the long ones; stops empty lines."""
    q, x, step, moves = lines.q, lines.x, lines.step, lines.moves
    diagonal, matrix, n_long, n_short = lines.diagonal, lines.matrix, sides.n_long, sides.n_short
    for j in range(n_short):
        diagonal[n_long + j] = damping
        for k in range(j, n_short):
            matrix[j, k] = 0.0
    for i in range(n_long):
        row, total = i * n_short, damping
        for j in range(n_short):
            if x[row + j] > 0.0:
                total += q[row + j]
                diagonal[n_long + j] += q[row + j]
        diagonal[i] = total
        if total == 0.0:
            moves[i] = 0.0
        if moves[i] == 0.0:
            continue
        for j in range(n_short):
            if x[row + j] > 0.0:
                share = q[row + j] / total
                step[n_long + j] -= share * step[i]
                for k in range(j, n_short):
                    if x[row + k] > 0.0:
                        matrix[j, k] -= share * q[row + k]
    for j in range(n_short):
        matrix[j, j] += diagonal[n_long + j]


@leaf
def _solve_short(sides: Sides, lines: Lines) -> None:
    """Solve the equations of the short lines in place, by their upper triangle."""
    matrix, step, moves, first = lines.matrix, lines.step, lines.moves, sides.n_long
    n = sides.n_short
    for j in range(n):
        pivot = matrix[j, j]
        if moves[first + j] == 0.0 or not pivot > MIN_PIVOT * lines.diagonal[first + j]:
            matrix[j, j] = 0.0
            continue
        for i in range(j + 1, n):
            factor = matrix[j, i] / pivot
            if factor != 0.0:
                for k in range(i, n):
                    matrix[i, k] -= factor * matrix[j, k]
                step[first + i] -= factor * step[first + j]
    for j in range(n - 1, -1, -1):
        total = step[first + j]
        for i in range(j + 1, n):
            total -= matrix[j, i] * step[first + i]
        step[first + j] = total / matrix[j, j] if matrix[j, j] != 0.0 else 0.0
