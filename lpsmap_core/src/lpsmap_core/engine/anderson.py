"""Anderson acceleration of components that plain iterations and the polish do not finish soon.

An iteration of the loop maps a point ``w = lambda + gamma u``, one number per link, to the next
point. Its fixed points are the solutions. The latest moves are combined so that they cancel as far
as possible (Walker & Ni 2011). With g_i the move from w_i to its image F_i, the next point is

    F_k - sum_i theta_i (F_(i+1) - F_i),   theta = argmin ||g_k - sum_i theta_i (g_(i+1) - g_i)||

Combinations with large weights, which need not be near a solution, are dropped. A polish or a new
step size changes the map, so the history starts again.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.state import PartState
from lpsmap_jit.arrays import FloatArray, FloatTable

MAX_ACCELERATED_LINKS = 100_000
"""Maximum number of links of a component that is accelerated; the history has 150 bytes per link.
"""

FIRST_ACCELERATED = 25
"""First accelerated iteration of a component; most components have finished before it."""

MAX_MOVES = 8
"""Maximum number of differences of moves that are combined."""

MAX_WEIGHT = 50.0
"""Maximum weight of a difference in a combination; larger weights jump to other faces."""

RIDGE = 1e-10
"""Regularisation relative to the squared differences; it keeps nearly dependent moves from getting
large weights."""


class Acceleration:
    """The acceleration of one component.

    Parameters
    ----------
    component
        The component.
    state
        The state of the loop.
    """

    def __init__(self, component: int, state: PartState) -> None:
        self.component, self._problem = component, state.problem
        first, end = state.part.first_variable[component : component + 2].tolist()
        offsets = state.part.variable_offsets[first : end + 1]
        self._variables, self._links = slice(first, end), slice(offsets[0], offsets[-1])
        self._starts, self._degree = offsets[:-1] - offsets[0], np.diff(offsets)
        self._n_recorded = 0
        """Number of consecutive iterations in the history."""
        self._images, self._moves = np.empty((2, MAX_MOVES, offsets[-1] - offsets[0]))
        """Differences between the images of consecutive iterations, one per row, and between their
        moves."""
        self._products = np.empty((MAX_MOVES, MAX_MOVES))
        """Inner products of the differences of moves."""
        self._point = self._image = self._move = np.empty(0)
        """Start of the latest iteration, its image, and the difference of both."""

    def record(self) -> None:
        """Record the point at which an iteration starts."""
        self._point = self._current_point()

    def finish(self) -> None:
        """Move the component after an accelerated iteration.

        If the polish has moved the component or its step size has changed, which makes its local
        scores stale, the history starts again.
        """
        is_stale = self._problem.progress.stale[self.component]
        with np.errstate(all="ignore"):  # a faulty type may return infinite local solutions
            point = None if is_stale else self._next_point()
        if point is None:
            self._n_recorded = 0
        elif point is not self._image:
            self._set_point(point)

    def _current_point(self) -> FloatArray:
        """Return the point ``lambda + gamma u``."""
        iterate, gamma = self._problem.iterate, self._problem.progress.step_size[self.component]
        means = np.repeat(gamma * iterate.u[self._variables], self._degree)
        return means + iterate.duals[self._links]

    def _set_point(self, point: FloatArray) -> None:
        """Set means and duals from ``lambda + gamma u``; the duals of a variable sum to zero."""
        iterate, progress = self._problem.iterate, self._problem.progress
        mean = np.add.reduceat(point, self._starts) / self._degree
        iterate.u[self._variables] = mean / progress.step_size[self.component]
        iterate.duals[self._links] = point - np.repeat(mean, self._degree)
        progress.stale[self.component] = True

    def _next_point(self) -> FloatArray | None:
        """Return the combined point, the image if there is no history, or None to start again."""
        image, n = self._current_point(), self._n_recorded
        move = image - self._point
        if n:
            latest = (n - 1) % MAX_MOVES
            self._images[latest], self._moves[latest] = image - self._image, move - self._move
            products = _inner_products(self._moves[:n], self._moves[latest])
            self._products[latest, :n] = self._products[:n, latest] = products
        self._image, self._move, self._n_recorded = image, move, n + 1
        if not n:
            return image
        products = self._products[:n, :n]
        weights = combination_weights(products, _inner_products(self._moves[:n], move))
        return None if weights is None else image - np.einsum("i,ij", weights, self._images[:n])


def combination_weights(products: FloatTable, with_move: FloatArray) -> FloatArray | None:
    """Return the theta that minimise ``||move - theta moves||``; None if they are too large.

    The arguments are the inner products of the moves with each other, and with the latest move.
    """
    scale = np.sqrt(products.diagonal())
    if not scale.all():
        return None
    products = products / np.outer(scale, scale) + RIDGE * np.eye(len(scale))
    weights: FloatArray = np.linalg.solve(products, with_move / scale) / scale
    return weights if np.abs(weights).max() <= MAX_WEIGHT else None


def _inner_products(rows: FloatTable, x: FloatArray) -> FloatArray:
    """Return the products with every row by einsum, which starts no threads, unlike BLAS."""
    products: FloatArray = np.einsum("ij,j", rows, x)
    return products
