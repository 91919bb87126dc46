"""Derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def central_difference(
    f: Callable[[FloatArray], npt.ArrayLike], x: npt.ArrayLike, h: float = 1e-5
) -> FloatArray:
    """Return the derivative of `f`, of shape ``f(x).shape + x.shape``, by central differences."""
    point = np.array(x, dtype=np.float64)
    columns = []
    for i in np.ndindex(point.shape):
        up, down = point.copy(), point.copy()
        up[i] += h
        down[i] -= h
        rise = np.asarray(f(up), dtype=np.float64) - np.asarray(f(down), dtype=np.float64)
        columns.append(rise / (up[i] - down[i]))
    shape = columns[0].shape if columns else np.shape(f(point))
    return np.stack(columns, axis=-1).reshape(shape + point.shape)


def directional_derivative(
    f: Callable[[FloatArray], npt.ArrayLike],
    x: npt.ArrayLike,
    d: npt.ArrayLike,
    h: float = 1e-5,
    tolerance: float = 1e-6,
) -> tuple[FloatArray, bool]:
    """Return the derivative of `f` at `x` along `d`, and whether no kink lies within ``h * d``.

    If there is a kink within the step, either the central differences over h and h/2 differ, or the
    one-sided differences do not converge as h shrinks. Both effects cannot cancel at once.

    Parameters
    ----------
    f
        Function from an array of any shape to an array of any shape.
    x, d
        Point and direction.
    h
        Step length.
    tolerance
        Allowed difference, relative to ``max(1, |derivative|)``. It must exceed the rounding error
        of ``f`` divided by h.
    """
    point, direction = np.asarray(x, dtype=np.float64), np.asarray(d, dtype=np.float64)

    def at(t: float) -> FloatArray:
        return np.asarray(f(point + t * direction), dtype=np.float64)

    here = at(0.0)
    central, gap = [], []
    for step in (h, h / 2):
        forward, backward = (at(step) - here) / step, (here - at(-step)) / step
        central.append((forward + backward) / 2)
        gap.append(forward - backward)
    allowed = tolerance * max(1.0, float(np.abs(central[1]).max(initial=0.0)))
    drift = np.abs(central[0] - central[1]).max(initial=0.0)
    opening = np.abs(gap[0] - 2 * gap[1]).max(initial=0.0)
    return central[1], bool(drift <= allowed and opening <= allowed)
