"""The distribution over paths that makes a flow."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf
from lpsmap_core.local.flows.chain import carve_flow, make_room
from lpsmap_core.local.vertices import Vertices

__all__ = ["read_paths"]

ROUNDING = 1e-13
"""Flow that is left when paths of less are."""


def read_paths(
    block: FloatArray, factor: int, length: int, n_states: int, n_additionals: int
) -> Vertices:
    """Return paths whose flows add up to a chain's, by the widest first.

    Parameters
    ----------
    block
        Of the chain's flow.
    factor
        The chain's number.
    length, n_states, n_additionals
        Its layers, the states in each, and its additionals.
    """
    paths, weight = _peel(block, length, n_states)
    steps = np.arange(length)
    arity = length * n_states
    into = arity + n_states + (steps[1:] - 1) * n_states**2
    entry = np.concatenate(
        [
            steps * n_states + paths,
            arity + paths[:, :1],
            into + paths[:, :-1] * n_states + paths[:, 1:],
            arity + n_additionals - n_states + paths[:, -1:],
        ],
        axis=1,
    )
    n, size = entry.shape
    return Vertices(
        np.full(n, factor),
        weight / weight.sum(),
        size * np.arange(n + 1),
        entry.ravel(),
        np.ones(n * size),
    )


@kernel
def _peel(block: FloatArray, length: int, n_states: int) -> tuple[IntArray, FloatArray]:
    """Return paths, states by layer, and how wide each is, until no flow is left."""
    flow = carve_flow(block, length, n_states, make_room(1, n_states))
    left, on = flow.e.copy(), 1
    for k in range(len(left)):
        on += left[k] > 0.0
    paths, weight = np.empty((on, length), dtype=np.int64), np.empty(on)
    width, source = np.empty(length * n_states), np.empty(length * n_states, dtype=np.int64)
    n = 0
    while n < on:
        weight[n] = _widest(left, length, n_states, width, source, paths[n])
        if weight[n] <= ROUNDING:
            break
        for t in range(length - 1):
            left[(t * n_states + paths[n, t + 1]) * n_states + paths[n, t]] -= weight[n]
        n += 1
    return paths[:n], weight[:n]


@leaf
def _widest(
    left: FloatArray,
    length: int,
    n_states: int,
    width: FloatArray,
    source: IntArray,
    path: IntArray,
) -> float:
    """Write the path whose least flow is largest; return that."""
    for k in range(n_states):
        width[k] = np.inf
    for k in range(n_states, length * n_states):
        first, row = (k // n_states - 1) * n_states, (k - n_states) * n_states
        width[k], source[k] = 0.0, 0
        for i in range(n_states):
            least = min(width[first + i], left[row + i])
            if least > width[k]:
                width[k], source[k] = least, i
    last = (length - 1) * n_states
    path[length - 1] = np.argmax(width[last : last + n_states])
    for t in range(length - 1, 0, -1):
        path[t - 1] = source[t * n_states + path[t]]
    return width[last + path[length - 1]]  # type: ignore[no-any-return]
