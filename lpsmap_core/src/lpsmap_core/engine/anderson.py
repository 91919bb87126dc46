"""Anderson acceleration of components that plain iterations and the polish do not finish soon.

An iteration of the loop maps ``w = lambda + gamma u``, a number a link, to another such point, and
is at a solution where it stays. The latest moves are combined so that they cancel, as far as they
can (Walker & Ni 2011): with g_i the move from w_i to its image F_i, the next point is

    F_k - sum_i theta_i (F_(i+1) - F_i),   theta = argmin ||g_k - sum_i theta_i (g_(i+1) - g_i)||

If the map then moves much farther than from the best point, the loop goes back to F_k. Such
combinations need not converge, so that they have to show what they are good for: where the
residuals do not fall the loop does without for a while, longer and longer. It balances the step
size then, which changes the map.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.problem import ONE, LoopProblem
from lpsmap_jit.arrays import FloatArray, FloatTable, IntArray
from lpsmap_jit.compile import kernel, leaf, summing_leaf

__all__ = [
    "History",
    "accelerate",
    "begin_history",
    "make_history",
    "note_start",
    "review_acceleration",
]

NEVER = 2**62

MOST_LINKS = 100_000
"""Of a component: it takes 150 bytes a link."""

FIRST_ACCELERATED = 25
"""The iteration from which on a component is accelerated: most are finished by then."""

MOST_MOVES = 8
"""Differences of moves that are combined."""

PHASE, FALL = 30, 0.5
"""Iterations after which the residuals have to have fallen to this part."""

FIRST_REST = 20
"""Plain iterations if they did not; twice as many every time."""

SAFEGUARD = 2.0
"""A combined point is given up if it moves this many times as far as the best one before it."""

MOST_WEIGHT = 50.0
"""Of a difference in a combination; larger ones jump to where other faces are."""

RIDGE = 1e-10
"""Relative to the squared differences: moves that are nearly dependent have no large weights."""


class History(NamedTuple):
    """What is known of the component that is being solved; a number for each of its links."""

    point: FloatArray
    """Where the iteration started, as ``w``."""
    image: FloatArray
    """Where the last iteration that counts led; and how far that is from where it started."""
    move: FloatArray
    images: FloatTable
    """(MOST_MOVES, links) differences, each from one iteration to the next; likewise of moves."""
    moves: FloatTable
    products: FloatTable
    """Inner products of the differences of moves, and their Cholesky factor."""
    factor: FloatTable
    weights: FloatArray
    length: FloatArray
    """Of the shortest move."""
    used: IntArray
    """How many iterations in a row have gone into it."""
    component: IntArray
    """Whose history it is; -1 for nobody's."""
    phase: IntArray
    """The next iteration to accelerate; the next one to see what came of it, 0 if none is; and the
    length of the next rest."""
    reference: FloatArray
    """The residual to compare with then."""


@kernel
def make_history(n_links: int) -> History:
    """Return an empty history, which accelerates nothing until `begin_history`."""
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
        component=np.full(1, -1),
        phase=np.array([NEVER, 0, 0]),
        reference=np.zeros(1),
    )


@leaf
def begin_history(c: int, problem: LoopProblem, history: History) -> None:
    """Turn to component `c`."""
    history.component[0] = -1
    allowed = _size(c, problem) <= MOST_LINKS
    history.phase[0] = FIRST_ACCELERATED if allowed else NEVER
    history.phase[1], history.phase[2] = 0, FIRST_REST


@leaf
def _size(c: int, problem: LoopProblem) -> int:
    """Return how many links a component has."""
    first, offsets = problem.blocks.first_variable, problem.links.offsets
    return int(np.int64(offsets[first[c + 1]] - offsets[first[c]]))  # signed, as any int


@kernel
def note_start(c: int, problem: LoopProblem, history: History) -> History:
    """Note where component `c` starts an iteration.

    Returns the history, or a new one if its size is not the component's.
    """
    if history.component[0] != c:
        n_links = _size(c, problem)
        if len(history.point) != n_links:
            history = make_history(n_links)
            begin_history(c, problem, history)
        history.component[0], history.used[0] = c, 0
    _note_point(c, problem, history)
    return history


@leaf
def review_acceleration(c: int, iteration: int, problem: LoopProblem, history: History) -> None:
    """Let the acceleration rest if the residuals have not fallen."""
    progress, phase, reference = problem.progress, history.phase, history.reference
    residual = max(progress.primal_residual[c], progress.dual_residual[c])
    if phase[1] == 0 or iteration >= phase[1] and residual <= FALL * reference[0]:
        reference[0], phase[1] = residual, iteration + PHASE
    elif iteration >= phase[1]:
        phase[0], phase[1] = iteration + phase[2], 0
        phase[2] *= 2


@leaf
def _note_point(c: int, problem: LoopProblem, history: History) -> None:
    """Write ``lambda + gamma u``."""
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    variables = blocks.variable_counting[blocks.first_variable[c] : blocks.first_variable[c + 1]]
    gamma, i = problem.progress.step_size[c], 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            history.point[i] = base + iterate.duals[e]
            i += 1


@leaf
def accelerate(c: int, problem: LoopProblem, history: History) -> None:
    """Move component `c` from where its iteration led to where it should go on.

    Its local scores are stale then. If they are already, something else has moved it, or its step
    size, and the history begins anew.
    """
    count = history.used[0]
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
    """Write the latest differences, and the latest image and move; return the move's length.

    But for a move that is too long, which leaves all as it was.
    """
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    variables = blocks.variable_counting[blocks.first_variable[c] : blocks.first_variable[c + 1]]
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
    """Write the inner products with the latest difference, and those of all with the move."""
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
    """Turn the products with the move into weights; false if they are not to be used."""
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
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    gamma, i = problem.progress.step_size[c], 0
    for v in blocks.variable_counting[blocks.first_variable[c] : blocks.first_variable[c + 1]]:
        lo, hi, total = links.offsets[v], links.offsets[v + ONE], 0.0
        for k in range(int(hi - lo)):
            total += w[i + k]
        mean = total / float(hi - lo)
        iterate.u[v] = mean / gamma
        for e in range(lo, hi):
            iterate.duals[e] = w[i] - mean
            i += 1
    problem.progress.stale[c] = True
