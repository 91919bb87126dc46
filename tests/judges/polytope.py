"""The projection onto a polytope of listed vertices, in high precision."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def project_polytope(
    vertices_m: npt.ArrayLike,
    vertices_n: npt.ArrayLike,
    a: npt.ArrayLike,
    eta_v: npt.ArrayLike,
    delta: npt.ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Solve a factor's local problem by an active set in decimal arithmetic of 60 or more digits.

    ``z = argmin 1/2 ||z - a||^2 - <eta_v, N^T p>`` subject to ``delta * z = M^T p`` and ``p`` in
    the simplex. On the vertices of positive weight the problem has only equality constraints, and
    is solved by Gaussian elimination. A vertex of positive reduced cost joins, and a vertex whose
    weight reaches zero leaves. Every join improves the objective, so that no face repeats.

    Parameters
    ----------
    vertices_m
        (Y, K) the variables of every vertex.
    vertices_n
        (Y, A) the additionals of every vertex.
    a, delta
        (K,) finite scores and positive scales.
    eta_v
        (A,) scores of the additionals.

    Returns
    -------
    z
        (K,) the unique scaled marginals, exact to rounding.
    p
        (Y,) weights of the vertices; one choice if they are not unique.

    Raises
    ------
    ArithmeticError
        If the result violates the optimality conditions.
    """
    scale = max(1.0, np.abs(np.append(a, eta_v)).max(initial=0.0))
    with localcontext(Context(prec=60 + 2 * int(np.ceil(np.log10(scale))))):
        w = _decimals(vertices_m) / _decimals(delta)
        centre = _decimals(a)
        gain = _dot(w, centre) + _dot(_decimals(vertices_n), _decimals(eta_v))
        support, p = _active_set(w, gain)
        z = _dot(w[support].T, p)
        reduced = gain - _dot(w, z)
        violation = max(reduced) - min(reduced[support])
        if violation > 2 * TINY or min(p) < 0 or abs(sum(p) - 1) > TINY:
            raise ArithmeticError(f"project_polytope: reduced cost {violation}, weights {p}")
        weights = np.zeros(len(w))
        weights[support] = p.astype(np.float64)
        return z.astype(np.float64), weights


TINY = Decimal("1e-40")
"""Magnitude that is treated as zero. The numbers have absolute errors far below 1e-50."""


def _active_set(w: Any, gain: Any) -> tuple[list[int], Any]:
    """Maximise ``<gain, p> - 1/2 ||w^T p||^2`` over the simplex; return support and weights."""
    support = [int(np.argmax(gain - (w * w).sum(axis=1) / 2))]
    p = _decimals([1.0])
    for _ in range(1000 + 100 * len(w)):
        direction, level = _towards_optimum(w[support], gain[support], p)
        falling = direction < -TINY
        ratios = p[falling] / -direction[falling]
        if level is None or (len(ratios) and min(ratios) < 1):
            p = p + min(ratios) * direction
            finished = False
        else:
            p = p + direction
            finished = True
        kept = p > TINY
        support, p = [y for y, keep in zip(support, kept, strict=True) if keep], p[kept]
        if finished:
            reduced = gain - _dot(w, _dot(w[support].T, p)) - level
            joining = int(np.argmax(reduced))
            if reduced[joining] <= TINY:
                return support, p
            support, p = [*support, joining], np.append(p, _decimals([0.0]))
    raise ArithmeticError("project_polytope: the active set does not end")


def _towards_optimum(w: Any, gain: Any, p: Any) -> tuple[Any, Any]:
    """Return the step to a face's optimum, and the multiplier of ``sum p = 1`` at the optimum.

    For affinely dependent vertices the step is a dependency that does not lower the objective, and
    the multiplier is None.
    """
    bordered = np.full((len(p) + 1, len(p) + 2), Decimal(1), dtype=object)
    bordered[0, 0], bordered[0, -1] = Decimal(0), Decimal(1)
    bordered[1:, 1:-1], bordered[1:, -1] = _dot(w, w.T), gain
    solution, unique = _eliminate(bordered)
    if unique:
        return solution[1:] - p, solution[0]
    dependency = solution[1:]
    return (dependency if _dot(gain, dependency) >= 0 else -dependency), None


def _eliminate(augmented: Any) -> tuple[Any, bool]:
    """Solve a square system, augmented by its right side, or return a null vector and False."""
    table, n = augmented.copy(), len(augmented)
    for column in range(n):
        pivot = column + int(np.argmax(np.abs(table[column:, column])))
        if abs(table[pivot, column]) <= TINY:
            null = np.full(n, Decimal(0), dtype=object)
            null[:column], null[column] = -table[:column, column], Decimal(1)
            return null, False
        table[[column, pivot]] = table[[pivot, column]]
        table[column] = table[column] / table[column, column]
        factors = table[:, column].copy()
        factors[column] = Decimal(0)
        table = table - np.multiply.outer(factors, table[column])
    return table[:, -1], True


def _decimals(values: npt.ArrayLike) -> Any:
    """Convert floats to decimals without rounding."""
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    out.reshape(-1)[:] = [Decimal(x) for x in array.reshape(-1).tolist()]
    return out


def _dot(left: Any, right: Any) -> Any:
    """Multiply arrays of decimals; an empty sum is zero."""
    return (left @ right) + Decimal(0) if left.shape[-1] else left.sum(axis=-1) + Decimal(0)
