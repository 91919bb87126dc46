"""Anderson acceleration of components that plain iterations and the polish do not finish soon.

An iteration of the loop maps a point ``w = lambda + gamma u``, one number per link, to the next
point. Its fixed points are the solutions. The latest moves are combined so that they cancel as far
as possible (Walker & Ni 2011). With g_i the move from w_i to its image F_i, the next point is

    F_k - sum_i theta_i (F_(i+1) - F_i),   theta = argmin ||g_k - sum_i theta_i (g_(i+1) - g_i)||

If the map then moves much farther than from the best point, the loop goes back to F_k. These
combinations need not converge. If the residuals do not fall, acceleration pauses, for longer each
time. During a pause the loop balances the step size, which changes the map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_jit.arrays import FloatArray, FloatTable, IntArray
from lpsmap_jit.compile import leaf, summing_leaf

__all__ = ["FIRST_ACCELERATED", "MOST_ACCELERATED_LINKS", "MOST_MOVES", "Acceleration"]

MOST_ACCELERATED_LINKS = 100_000
"""Largest component that is accelerated; the history takes 150 bytes per link."""

FIRST_ACCELERATED = 25
"""First accelerated iteration of a component; most components have finished before it."""

MOST_MOVES = 8
"""Number of differences of moves that are combined."""

PHASE, FALL = 30, 0.5
"""Within this many iterations the residuals have to fall to this fraction."""

FIRST_REST = 20
"""Length of the first pause, in iterations; each pause is twice as long as the one before."""

SAFEGUARD = 2.0
"""A combined point is rejected if it moves more than this many times as far as the best one."""

MOST_WEIGHT = 50.0
"""Largest weight of a difference in a combination; larger weights jump to other faces."""

RIDGE = 1e-10
"""Regularisation relative to the squared differences; it keeps nearly dependent moves from getting
large weights."""


class History(NamedTuple):
    """The latest iterations of the component being solved; arrays have one number per link."""

    point: FloatArray
    """The point ``w`` at the start of the iteration."""
    image: FloatArray
    """Image of the last accepted iteration."""
    move: FloatArray
    """Move of that iteration, from its start to its image."""
    images: FloatTable
    """(MOST_MOVES, links) differences between the images of consecutive iterations."""
    moves: FloatTable
    """(MOST_MOVES, links) differences between their moves."""
    products: FloatTable
    """Inner products of the differences of moves."""
    factor: FloatTable
    """Cholesky factor of `products`, scaled to a unit diagonal."""
    weights: FloatArray
    length: FloatArray
    """Length of the shortest move."""
    used: IntArray
    """Number of consecutive iterations in the history."""
    phase: IntArray
    """The next iteration to accelerate; the iteration of the next review, 0 if none is due; the
    length of the next pause."""
    reference: FloatArray
    """The residual that the next review compares with."""


class Acceleration:
    """The acceleration of one component, from its iteration `FIRST_ACCELERATED` on.

    Parameters
    ----------
    component, n_links
        The component and its size.
    problem
        The handle of the problem.
    """

    def __init__(self, component: int, n_links: int, problem: Any) -> None:
        self._component, self._n_links, self._problem = component, n_links, problem
        self._history: History | None = None

    def record(self, iteration: int) -> bool:
        """Record the point at which an iteration starts; return whether it is accelerated."""
        if iteration < FIRST_ACCELERATED or self._n_links > MOST_ACCELERATED_LINKS:
            return False
        if self._history is None:
            self._history = _empty_history(self._n_links)
        if iteration < self._history.phase[0]:
            return False
        _record_point(self._component, self._problem, self._history)
        return True

    def finish(self, iteration: int) -> None:
        """Move the component after an accelerated iteration, and pause if that does not help."""
        assert self._history is not None
        _accelerate(self._component, self._problem, self._history)
        _review(self._component, iteration, self._problem, self._history)


def _empty_history(n_links: int) -> History:
    """Return an empty history of a component."""
    return History(
        point=np.empty(n_links),
        image=np.empty(n_links),
        move=np.empty(n_links),
        images=np.empty((MOST_MOVES, n_links)),
        moves=np.empty((MOST_MOVES, n_links)),
        products=np.empty((MOST_MOVES, MOST_MOVES)),
        factor=np.empty((MOST_MOVES, MOST_MOVES)),
        weights=np.empty(MOST_MOVES),
        length=np.zeros(1),
        used=np.zeros(1, dtype=np.int64),
        phase=np.array([FIRST_ACCELERATED, 0, FIRST_REST]),
        reference=np.zeros(1),
    )


@leaf
def _review(c: int, iteration: int, problem: Any, history: History) -> None:
    """Pause acceleration if the residuals have not fallen."""
    progress, phase, reference = problem_at(problem).progress, history.phase, history.reference
    residual = max(progress.primal_residual[c], progress.dual_residual[c])
    if phase[1] == 0 or iteration >= phase[1] and residual <= FALL * reference[0]:
        reference[0], phase[1] = residual, iteration + PHASE
    elif iteration >= phase[1]:
        phase[0], phase[1] = iteration + phase[2], 0
        phase[2] *= 2


@leaf
def _record_point(c: int, problem: Any, history: History) -> None:
    """Record the point ``lambda + gamma u`` at which a component starts an iteration."""
    record = problem_at(problem)
    links, spans, iterate = record.links, record.spans, record.iterate
    variables = spans.variable_counting[spans.first_variable[c] : spans.first_variable[c + 1]]
    gamma, i = record.progress.step_size[c], 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            history.point[i] = base + iterate.duals[e]
            i += 1


@leaf
def _accelerate(c: int, handle: Any, history: History) -> None:
    """Move component `c` from the image of its iteration to the combined point.

    This makes its local scores stale. If they are stale already, the component has been moved or
    its step size has changed, and the history starts again.
    """
    problem, count = problem_at(handle), history.used[0]
    if problem.progress.stale[c]:
        history.used[0] = 0
        return
    length = _difference(c, problem, history, count)
    if count > 1 and length > SAFEGUARD * history.length[0]:
        _set(c, problem, history.image)
        history.used[0] = 0
        return
    history.length[0] = length if count < 2 else min(length, history.length[0])
    history.used[0] = count + 1
    n_moves = min(count, MOST_MOVES)
    if n_moves == 0:
        return
    _multiply(history, (count - 1) % MOST_MOVES, n_moves)
    if not _solve(history, n_moves):
        history.used[0] = 0
        return
    _combine(history, n_moves)
    _set(c, problem, history.point)


@leaf
def _difference(c: int, problem: LoopProblem, history: History, count: int) -> float:
    """Write the latest differences, image and move; return the length of the move.

    A move that is too long leaves the history unchanged.
    """
    links, spans, iterate = problem.links, problem.spans, problem.iterate
    variables = spans.variable_counting[spans.first_variable[c] : spans.first_variable[c + 1]]
    gamma, square, i = float(problem.progress.step_size[c]), 0.0, 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            move = base + iterate.duals[e] - history.point[i]
            square += move * move
            i += 1
    length = float(np.sqrt(square))
    if count > 1 and length > SAFEGUARD * history.length[0]:
        return length
    place, i = (count - 1) % MOST_MOVES, 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            image = base + iterate.duals[e]
            move = image - history.point[i]
            if count > 0:
                history.images[place, i] = image - history.image[i]
                history.moves[place, i] = move - history.move[i]
            history.image[i], history.move[i] = image, move
            i += 1
    return length


@leaf
def _multiply(history: History, latest: int, n_moves: int) -> None:
    """Write the inner products of all differences with the latest one and with the move."""
    newest, move = history.moves[latest], history.move
    for k in range(n_moves):
        product, with_move = _two_products(newest, move, history.moves[k])
        history.products[latest, k] = history.products[k, latest] = product
        history.weights[k] = with_move


@summing_leaf
def _two_products(x: FloatArray, y: FloatArray, z: FloatArray) -> tuple[float, float]:
    """Return the inner products of two rows with a third."""
    first, second = 0.0, 0.0
    for i in range(np.uint64(len(z))):
        first += x[i] * z[i]
        second += y[i] * z[i]
    return first, second


@leaf
def _solve(history: History, n: int) -> bool:
    """Turn the products with the move into weights; return whether the weights are usable."""
    products, factor, x = history.products, history.factor, history.weights
    for j in range(n):
        for k in range(j + 1):
            scale = np.sqrt(products[j, j]) * np.sqrt(products[k, k])
            if not scale > 0.0:
                return False
            total = products[j, k] / scale + (RIDGE if j == k else 0.0)
            for m in range(k):
                total -= factor[j, m] * factor[k, m]
            if j > k:
                factor[j, k] = total / factor[k, k]
            elif total > 0.0:
                factor[j, j] = np.sqrt(total)
            else:
                return False
    for j in range(n):
        x[j] /= np.sqrt(products[j, j])
        for m in range(j):
            x[j] -= factor[j, m] * x[m]
        x[j] /= factor[j, j]
    for j in range(n - 1, -1, -1):
        for m in range(j + 1, n):
            x[j] -= factor[m, j] * x[m]
        x[j] /= factor[j, j]
    largest = 0.0
    for j in range(n):
        x[j] /= np.sqrt(products[j, j])
        largest = max(largest, abs(x[j]))
    return largest <= MOST_WEIGHT


@leaf
def _combine(history: History, n: int) -> None:
    """Write the next point."""
    point = history.point
    for i in range(len(point)):
        point[i] = history.image[i]
    for k in range(n):
        weight, difference = history.weights[k], history.images[k]
        for i in range(len(point)):
            point[i] -= weight * difference[i]


@leaf
def _set(c: int, problem: LoopProblem, w: FloatArray) -> None:
    """Set means and duals of component `c` from ``lambda + gamma u``."""
    links, spans, iterate = problem.links, problem.spans, problem.iterate
    gamma, i = problem.progress.step_size[c], 0
    for v in spans.variable_counting[spans.first_variable[c] : spans.first_variable[c + 1]]:
        lo, hi, total = links.offsets[v], links.offsets[v + ONE], 0.0
        for k in range(int(hi - lo)):
            total += w[i + k]
        mean = total / float(hi - lo)
        iterate.u[v] = mean / gamma
        for e in range(lo, hi):
            iterate.duals[e] = w[i] - mean
            i += 1
    problem.progress.stale[c] = True
