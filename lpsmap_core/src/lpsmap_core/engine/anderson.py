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

from lpsmap_core.engine.state import ONE, Problem
from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf

__all__ = ["Memory", "accelerate", "begin", "make_memory", "prepare", "review"]

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


class Memory(NamedTuple):
    """What is known of the component that is being solved; a number for each of its links."""

    point: FloatArray
    """Where the iteration started, as ``w``."""
    image: FloatArray
    """Where the last iteration that counts led; and how far that is from where it started."""
    move: FloatArray
    images: FloatArray
    """(MOST_MOVES, links) differences, each from one iteration to the next; likewise of moves."""
    moves: FloatArray
    products: FloatArray
    """Inner products of the differences of moves, and their Cholesky factor."""
    factor: FloatArray
    weights: FloatArray
    length: FloatArray
    """Of the shortest move."""
    used: IntArray
    """How many iterations in a row have gone into it."""
    component: IntArray
    """Whose memory it is; -1 for nobody's."""
    phase: IntArray
    """The next iteration to accelerate; the next one to see what came of it, 0 if none is; and the
    length of the next rest."""
    reference: FloatArray
    """The residual to compare with then."""


@kernel
def make_memory(n_links: int) -> Memory:
    """Return an empty memory, which accelerates nothing until `begin`."""
    return Memory(
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
def begin(c: int, problem: Problem, memory: Memory) -> None:
    """Turn to component `c`."""
    memory.component[0] = -1
    allowed = _size(c, problem) <= MOST_LINKS
    memory.phase[0] = FIRST_ACCELERATED if allowed else NEVER
    memory.phase[1], memory.phase[2] = 0, FIRST_REST


@leaf
def _size(c: int, problem: Problem) -> int:
    """Return how many links a component has."""
    variables, offsets = problem.blocks.variables, problem.links.offsets
    return int(np.int64(offsets[variables[c + 1]] - offsets[variables[c]]))  # signed, as any int


@kernel
def prepare(c: int, problem: Problem, memory: Memory) -> Memory:
    """Note where component `c` starts an iteration.

    Returns the memory, or a new one if its size is not the component's.
    """
    if memory.component[0] != c:
        n_links = _size(c, problem)
        if len(memory.point) != n_links:
            memory = make_memory(n_links)
            begin(c, problem, memory)
        memory.component[0], memory.used[0] = c, 0
    _note_point(c, problem, memory)
    return memory


@leaf
def review(c: int, iteration: int, problem: Problem, memory: Memory) -> None:
    """Let the acceleration rest if the residuals have not fallen."""
    progress, phase, reference = problem.progress, memory.phase, memory.reference
    residual = max(progress.primal[c], progress.change[c])
    if phase[1] == 0 or iteration >= phase[1] and residual <= FALL * reference[0]:
        reference[0], phase[1] = residual, iteration + PHASE
    elif iteration >= phase[1]:
        phase[0], phase[1] = iteration + phase[2], 0
        phase[2] *= 2


@leaf
def _note_point(c: int, problem: Problem, memory: Memory) -> None:
    """Write ``lambda + gamma u``."""
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    variables = blocks.variable_counting[blocks.variables[c] : blocks.variables[c + 1]]
    gamma, i = problem.progress.gamma[c], 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            memory.point[i] = base + iterate.dual[e]
            i += 1


@leaf
def accelerate(c: int, problem: Problem, memory: Memory) -> None:
    """Move component `c` from where its iteration led to where it should go on.

    Its local scores are stale then. If they are already, something else has moved it, or its step
    size, and the memory begins anew.
    """
    count = memory.used[0]
    if problem.progress.stale[c]:
        memory.used[0] = 0
        return
    length = _difference(c, problem, memory, count)
    if count > 1 and length > SAFEGUARD * memory.length[0]:
        _set(c, problem, memory.image)
        memory.used[0] = 0
        return
    memory.length[0] = length if count < 2 else min(length, memory.length[0])
    memory.used[0] = count + 1
    n_moves = min(count, MOST_MOVES)
    if n_moves == 0:
        return
    _multiply(memory, (count - 1) % MOST_MOVES, n_moves)
    if not _solve(memory, n_moves):
        memory.used[0] = 0
        return
    _combine(memory, n_moves)
    _set(c, problem, memory.point)


@leaf
def _difference(c: int, problem: Problem, memory: Memory, count: int) -> float:
    """Write the latest differences, and the latest image and move; return the move's length.

    But for a move that is too long, which leaves all as it was.
    """
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    variables = blocks.variable_counting[blocks.variables[c] : blocks.variables[c + 1]]
    gamma, square, i = float(problem.progress.gamma[c]), 0.0, 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            move = base + iterate.dual[e] - memory.point[i]
            square += move * move
            i += 1
    length = float(np.sqrt(square))
    if count > 1 and length > SAFEGUARD * memory.length[0]:
        return length
    place, i = (count - 1) % MOST_MOVES, 0
    for v in variables:
        base = gamma * iterate.u[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            image = base + iterate.dual[e]
            move = image - memory.point[i]
            if count > 0:
                memory.images[place, i] = image - memory.image[i]
                memory.moves[place, i] = move - memory.move[i]
            memory.image[i], memory.move[i] = image, move
            i += 1
    return length


@leaf
def _multiply(memory: Memory, latest: int, n_moves: int) -> None:
    """Write the inner products with the latest difference, and those of all with the move."""
    newest, move = memory.moves[latest], memory.move
    for k in range(n_moves):
        other, product, with_move = memory.moves[k], 0.0, 0.0
        for i in range(len(move)):
            product += newest[i] * other[i]
            with_move += move[i] * other[i]
        memory.products[latest, k] = memory.products[k, latest] = product
        memory.weights[k] = with_move


@leaf
def _solve(memory: Memory, n: int) -> bool:
    """Turn the products with the move into weights; false if they are not to be used."""
    products, factor, x = memory.products, memory.factor, memory.weights
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
def _combine(memory: Memory, n: int) -> None:
    """Write the next point."""
    point = memory.point
    for i in range(len(point)):
        point[i] = memory.image[i]
    for k in range(n):
        weight, difference = memory.weights[k], memory.images[k]
        for i in range(len(point)):
            point[i] -= weight * difference[i]


@leaf
def _set(c: int, problem: Problem, w: FloatArray) -> None:
    """Set means and duals of component `c` from ``lambda + gamma u``."""
    links, blocks, iterate = problem.links, problem.blocks, problem.iterate
    gamma, i = problem.progress.gamma[c], 0
    for v in blocks.variable_counting[blocks.variables[c] : blocks.variables[c + 1]]:
        lo, hi, total = links.offsets[v], links.offsets[v + ONE], 0.0
        for k in range(int(hi - lo)):
            total += w[i + k]
        mean = total / float(hi - lo)
        iterate.u[v] = mean / gamma
        for e in range(lo, hi):
            iterate.dual[e] = w[i] - mean
            i += 1
    problem.progress.stale[c] = True
