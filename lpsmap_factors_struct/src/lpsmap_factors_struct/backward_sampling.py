"""Sequences at random: states are drawn from the last to the first, after the forward sums."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Structures, interrupted, kernel, largest_arity, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_factors_struct.forward_backward import ChainSums, chain_sums, forward
from lpsmap_factors_struct.viterbi import write_path


@leaf
def _draw(
    weights: FloatArray,
    at: int,
    factors: FloatArray,
    first: int,
    stride: int,
    n: int,
    uniform: float,
) -> int:
    """Draw a number i below n, as likely as ``weights[at + i] * factors[first + i * stride]``."""
    total, chosen = 0.0, 0
    for i in range(n):
        total += weights[at + i] * factors[first + i * stride]
    below = uniform * total
    for i in range(n):
        weight = weights[at + i] * factors[first + i * stride]
        if weight > 0.0:  # the last one, if rounding leaves a remainder
            chosen = i
            if below < weight:
                break
            below -= weight
    return chosen


@leaf
def _sample_path(
    length: int, n_states: int, work: ChainSums, uniform: FloatArray, path: IntArray
) -> None:
    """Draw a sequence, in O(length * n_states), after `forward`.

    Given the state at t + 1, that at t is as likely as its sum over earlier states times the weight
    of the transition. Every second random number is used: a hypergraph has two hyperedges for a
    position, and equal numbers draw equal samples.
    """
    n, last = n_states, length - 1
    path[last] = _draw(work.alpha, last * n, work.final, 0, 1, n, uniform[0])
    for t in range(last - 1, -1, -1):
        number = uniform[2 * (last - t)]
        path[t] = _draw(work.alpha, t * n, work.step, path[t + 1], n, n, number)


@kernel
def sample_sequences(
    rows: IntArray,
    offsets: IntArray,
    n_states: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    n_samples: int,
    uniform: FloatArray,
    structures: Structures,
    in_doubt: BoolArray,
) -> None:
    """Sample sequences of the factors in `rows`, or write that a factor is in doubt.

    Parameters
    ----------
    rows, offsets, n_states, eta_u, eta_v
        As for `forward`, of many factors.
    n_samples
        The number of samples of each factor.
    uniform
        Random numbers in [0, 1): for every factor and sample equally many, at least twice the
        largest number of positions.
    structures
        Output: sample k of factor r has index ``r * n_samples + k``; its size stays as it is if
        every sequence is forbidden.
    in_doubt
        Output: whether the sums of a factor could have underflowed.
    """
    start, entry, value, size = structures
    n_additionals, n_draws = n_states * (n_states + 2), len(uniform) // max(1, len(size))
    longest = largest_arity(rows, offsets) // n_states
    work, counts = chain_sums(longest, n_states), np.zeros(n_states * n_states)
    path = np.empty(longest, dtype=np.int64)
    for r in rows:
        length, high = (offsets[r + 1] - offsets[r]) // n_states, 0.0
        if length > 0:
            extra = eta_v[r * n_additionals : (r + 1) * n_additionals]
            high, _ = forward(eta_u[offsets[r] : offsets[r + 1]], extra, length, n_states, work)
        in_doubt[r] = np.isnan(high)
        for s in range(r * n_samples, (r + 1) * n_samples):
            if not high > -np.inf or interrupted():
                break
            if length > 0:
                drawn = uniform[s * n_draws : (s + 1) * n_draws]
                _sample_path(length, n_states, work, drawn, path)
            size[s] = write_path(
                path, length, n_states, n_additionals, start[s], entry, value, counts
            )
