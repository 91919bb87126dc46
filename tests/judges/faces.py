"""The directions of a face of a polytope that is known by its best vertices only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

Best = Callable[[FloatArray, FloatArray], Any]
"""Returns a tuple that ends with the variables and the additionals of the best vertex."""

TILTS = 1e-9, 1e-11, 1e-12
"""Changes of the scores that choose among tied vertices, relative to the scores."""

ROUNDING = 3e-13
"""Of a score, relative to the magnitudes of its terms."""

FAILURES = 3
"""Directions in a row, of both signs, that lead to no further vertex at the end."""


def face_directions(
    best: Best, eta_u: FloatArray, eta_v: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return an orthonormal basis of the directions of the optimal face, as columns.

    The face holds the vertices that maximise ``<eta_u - mean, m> + <eta_v, n>``. If `mean` is the
    projection of `eta_u` and lies inside of the face, the derivative of the projection is the
    projection onto these directions.
    """
    rng, gradient = np.random.default_rng(0), eta_u - mean
    *_, first, extra = best(gradient, eta_v)
    top = gradient @ first + eta_v @ extra
    basis, failures = np.zeros((len(eta_u), 0)), 0
    while failures < FAILURES and basis.shape[1] < len(eta_u):
        wave = _off(basis, rng.standard_normal(len(eta_u)))
        found = False
        wave *= (1.0 + np.max(np.abs(gradient))) / np.max(np.abs(wave))
        for tilt in (*TILTS, *(-tilt for tilt in TILTS)):
            *_, m, n = best(gradient + tilt * wave, eta_v)
            magnitude = 1.0 + (np.abs(eta_u) + np.abs(mean)) @ np.abs(m) + np.abs(eta_v) @ np.abs(n)
            if gradient @ m + eta_v @ n < top - ROUNDING * magnitude:
                continue
            step = _off(basis, m - first)
            if np.linalg.norm(step) > 1e-6 * max(1.0, float(np.linalg.norm(m - first))):
                basis = np.column_stack([basis, step / np.linalg.norm(step)])
                found = True
                break
        failures = 0 if found else failures + 1
    return basis


def _off(basis: FloatArray, x: FloatArray) -> FloatArray:
    """Return the part of x that is orthogonal to the basis, orthogonalised twice."""
    x = x - basis @ (basis.T @ x)
    return x - basis @ (basis.T @ x)
