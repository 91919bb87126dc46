"""Sums over the sequences of a chain whose steps share transitions: the forward-backward algorithm.

The weights of states and transitions are exponentials of scores, relative to the largest score of
a position or of the matrix (Rabiner 1989). Those of transitions are computed once, so that a step
is a product with a matrix. Forward sums are normalised at every position. Weights stay so far from
the smallest numbers that a sum is zero only if no allowed sequence leads there, see `SPAN`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray
from lpsmap_dynamic import POLL_PERIOD, two_sum

SPAN = 150.0
"""A score that is farther below the largest of its position, or matrix, has a weight of 0 in a
lower bound on the sum, and of `MIN_WEIGHT` in an upper bound. If both are equal, so is the sum."""

MIN_WEIGHT = float(np.exp(-SPAN))
"""The smallest weight of a score that is not forbidden."""

MIN_FORWARD_SUM = 1e-150
"""Smaller forward sums, relative to their position, are in doubt: products with two weights could
underflow."""

SMALL_ENTROPY = 1e-3
"""Smaller entropies, for each position, are summed over states: a difference has lost digits."""

AGREEMENT = 1e-13
"""Largest difference of the logarithms of equal bounds: the share of the sequences between them."""


class ChainSums(NamedTuple):
    """Workspace for the sums of chains up to some size: L positions and S states.

    Attributes
    ----------
    step, back
        (S, S) the weights of transitions, by their first and by their second states.
    initial, final
        (S,) the weights of first and last states.
    state
        (L, S) the weights of states.
    alpha
        (L, S) the shares of a position's states in the sum over sequences up to the position.
    scale
        (L + 1,) the factors by which this sum grows, and that of the end.
    beta, gamma
        (S,) sums over the rest of sequences, from a position, and from the transitions to it.
    """

    step: FloatArray
    back: FloatArray
    initial: FloatArray
    final: FloatArray
    state: FloatArray
    alpha: FloatArray
    scale: FloatArray
    beta: FloatArray
    gamma: FloatArray


@kernel
def chain_sums(longest: int, n_states: int) -> ChainSums:
    """Return a workspace for chains up to some size."""
    square, nodes = n_states * n_states, longest * n_states
    return ChainSums(
        np.empty(square),
        np.empty(square),
        np.empty(n_states),
        np.empty(n_states),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(longest + 1),
        np.empty(n_states),
        np.empty(n_states),
    )


# -------------------------------------------------------------------- products with matrices


@leaf
def _combine_rows(
    factors: FloatArray, at: int, table: FloatArray, n_states: int, target: FloatArray, to: int
) -> None:
    """Write ``target[to + j] = sum_i factors[at + i] * table[i * n_states + j]``.

    Rows are read four at a time, as in `lpsmap_factors_struct.viterbi.best_arrivals`.
    """
    n, four = np.uint64(n_states), np.uint64(4)
    first, row, here = np.uint64(at), np.uint64(0), np.uint64(to)
    for j in range(n):
        target[here + j] = 0.0
    last = first + n
    whole = last - n % four
    while first < whole:
        a, b = factors[first], factors[first + np.uint64(1)]
        c, d = factors[first + np.uint64(2)], factors[first + np.uint64(3)]
        row_b, row_c, row_d = row + n, row + n + n, row + n + n + n
        for j in range(n):
            p = a * table[row + j] + b * table[row_b + j]
            q = c * table[row_c + j] + d * table[row_d + j]
            target[here + j] += p + q
        first += four
        row = row_d + n
    while first < last:
        for j in range(n):
            target[here + j] += factors[first] * table[row + j]
        first += np.uint64(1)
        row += n


@leaf
def _add_products(
    factors: FloatArray, at: int, row: FloatArray, n_states: int, target: FloatArray, to: int
) -> None:
    """Add ``factors[at + i] * row[j]`` to ``target[to + i * n_states + j]``."""
    n, here = np.uint64(n_states), np.uint64(to)
    for i in range(np.uint64(at), np.uint64(at) + n):
        factor = factors[i]
        if factor != 0.0:
            for j in range(n):
                target[here + j] += factor * row[j]
        here += n


@leaf
def _transpose(table: FloatArray, n_states: int, target: FloatArray) -> None:
    for i in range(n_states):
        for j in range(n_states):
            target[j * n_states + i] = table[i * n_states + j]


# -------------------------------------------------------------------- the sums


@leaf
def _weigh(
    scores: FloatArray, at: int, n: int, lowest: float, weights: FloatArray, to: int
) -> tuple[float, bool]:
    """Write the weights of scores; return the largest score, and whether finite ones are far below.

    Those get the weight `lowest`. A score of +inf counts 0 and forbids all others.
    """
    most, n_forced, is_far = -np.inf, 0, False
    for k in range(at, at + n):
        most = max(most, scores[k])
        n_forced += int(scores[k] == np.inf)
    if n_forced > 0 or most == -np.inf:
        for k in range(n):
            weights[to + k] = 1.0 if scores[at + k] == np.inf and n_forced == 1 else 0.0
        return 0.0, False
    for k in range(n):
        less = scores[at + k] - most
        if less >= -SPAN:
            weights[to + k] = np.exp(less)
        elif less == -np.inf:
            weights[to + k] = 0.0
        else:
            weights[to + k], is_far = lowest, True
    return most, is_far


@leaf
def forward(
    eta_u: FloatArray, eta_v: FloatArray, length: int, n_states: int, work: ChainSums
) -> tuple[float, float]:
    """Return the log-partition function and its rounding error.

    Parameters
    ----------
    eta_u, eta_v
        Scores of the states, and ``[initial, transitions, final]`` scores; -inf forbids, and a
        state of +inf is forced, and counts 0.
    length, n_states
        Shape of the states; at least one each.
    work
        Workspace, of which all but `back`, `beta` and `gamma` are written.

    Returns
    -------
    tuple
        The log-partition function, -inf without sequences, NaN if it is in doubt; and its rounding
        error.
    """
    high, low, is_far = _forward(eta_u, eta_v, length, n_states, MIN_WEIGHT, work)
    if not is_far or high == -np.inf:
        return high, low
    bound, rest = high, low
    high, low, _ = _forward(eta_u, eta_v, length, n_states, 0.0, work)
    if not (bound - high) + (rest - low) <= AGREEMENT:
        high = np.nan
    return high, low


@leaf
def _forward(
    eta_u: FloatArray,
    eta_v: FloatArray,
    length: int,
    n_states: int,
    lowest: float,
    work: ChainSums,
) -> tuple[float, float, bool]:
    """Return the results of `forward`, and whether a weight is the `lowest`; see `_weigh`."""
    n, square, alpha, state = n_states, n_states * n_states, work.alpha, work.state
    high, is_far = _weigh(eta_v, 0, n, lowest, work.initial, 0)
    of_step, far = _weigh(eta_v, n, square, lowest, work.step, 0)
    of_end, far_end = _weigh(eta_v, n + square, n, lowest, work.final, 0)
    is_far, low, poll_at = is_far | far | far_end, 0.0, POLL_PERIOD
    for t in range(length):
        here, total = t * n, 0.0
        most, far = _weigh(eta_u, here, n, lowest, state, here)
        is_far |= far
        if t > 0:
            _combine_rows(alpha, here - n, work.step, n, alpha, here)
            most += of_step
        for j in range(n):
            alpha[here + j] = state[here + j] * (alpha[here + j] if t > 0 else work.initial[j])
            total += alpha[here + j]
        if total == 0.0:
            return -np.inf, 0.0, is_far
        work.scale[t] = total
        for k in range(here, here + n):
            alpha[k] /= total
            if 0.0 < alpha[k] < MIN_FORWARD_SUM:
                return np.nan, 0.0, is_far
        high, lost = two_sum(high, most)
        high, more = two_sum(high, np.log(total))
        low += lost + more
        if (t + 1) * square > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                return -np.inf, 0.0, False
    total = 0.0
    for j in range(n):
        total += alpha[(length - 1) * n + j] * work.final[j]
    if total == 0.0:
        return -np.inf, 0.0, is_far
    work.scale[length] = total
    high, lost = two_sum(high, of_end)
    high, more = two_sum(high, np.log(total))
    return high, low + lost + more, is_far


@leaf
def backward(length: int, n_states: int, work: ChainSums, m: FloatArray, v: FloatArray) -> None:
    """Write the marginals of states and the expected counts of additionals, after `forward`.

    States that no allowed sequence leads to are left out; sums over the rest of their sequences
    could overflow.
    """
    n, square, last = n_states, n_states * n_states, (length - 1) * n_states
    alpha, beta, gamma = work.alpha, work.beta, work.gamma
    _transpose(work.step, n, work.back)
    v[:] = 0.0
    for j in range(n):
        beta[j] = work.final[j] / work.scale[length]
    poll_at = POLL_PERIOD
    for t in range(length - 1, -1, -1):
        here = t * n
        for j in range(n):
            k = here + j
            alive = alpha[k] > 0.0
            m[k] = min(alpha[k] * beta[j], 1.0) if alive else 0.0
            gamma[j] = work.state[k] * beta[j] / work.scale[t] if alive else 0.0
        if t > 0:
            _add_products(alpha, here - n, gamma, n, v, n)
            _combine_rows(gamma, 0, work.back, n, beta, 0)
        if (length - t) * square > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                return
    for k in range(square):
        v[n + k] *= work.step[k]
    for j in range(n):
        v[j], v[n + square + j] = m[j], m[last + j]


@leaf
def entropy_of(length: int, n_states: int, work: ChainSums, m: FloatArray, v: FloatArray) -> float:
    """Return the entropy after `backward`: ``log Z`` minus the expected score.

    Little remains of this difference if one sequence is almost certain. A small entropy is
    therefore summed over the states, from the last to the first, given the next one.
    """
    n, square, total = n_states, n_states * n_states, 0.0
    for t in range(length + 1):
        total += np.log(work.scale[t])
    for k in range(length * n):
        total -= m[k] * np.log(work.state[k]) if m[k] > 0.0 else 0.0
    for k in range(square):
        total -= v[n + k] * np.log(work.step[k]) if v[n + k] > 0.0 else 0.0
    for j in range(n):
        total -= v[j] * np.log(work.initial[j]) if v[j] > 0.0 else 0.0
        at_end = v[n + square + j]
        total -= at_end * np.log(work.final[j]) if at_end > 0.0 else 0.0
    if total >= SMALL_ENTROPY * length:
        return total
    total, weights = _entropy_of_weights(m, (length - 1) * n, n), work.gamma
    for t in range(1, length):
        for j in range(n):
            if m[t * n + j] > 0.0:
                for i in range(n):
                    weights[i] = work.alpha[(t - 1) * n + i] * work.step[i * n + j]
                total += m[t * n + j] * _entropy_of_weights(weights, 0, n)
    return total


@leaf
def _entropy_of_weights(weights: FloatArray, at: int, n: int) -> float:
    """Return the entropy of n weights, with all digits if one of them outweighs the others."""
    likeliest = at
    for k in range(at, at + n):
        if weights[k] > weights[likeliest]:
            likeliest = k
    rest, expected = 0.0, 0.0
    for k in range(at, at + n):
        ratio = weights[k] / weights[likeliest] if weights[likeliest] > 0.0 else 0.0
        if k != likeliest and ratio > 0.0:
            rest += ratio
            expected -= ratio * np.log(ratio)
    return float(np.log1p(rest) + expected / (1.0 + rest))


# -------------------------------------------------------------------- their second derivatives


@kernel
def multiply_hessian(
    d_u: FloatArray,
    d_v: FloatArray,
    length: int,
    n_states: int,
    work: ChainSums,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Write the tangents of the results of `backward` along a direction, after `forward`.

    Parameters
    ----------
    d_u, d_v
        The direction of the scores.
    length, n_states, work
        As for `forward`.
    out_u, out_v
        The results.
    """
    n, square, last = n_states, n_states * n_states, (length - 1) * n_states
    d_step, d_back = np.empty(square), np.empty(square)
    for k in range(square):
        d_step[k] = work.step[k] * d_v[n + k] if work.step[k] > 0.0 else 0.0
    _transpose(work.step, n, work.back)
    _transpose(d_step, n, d_back)
    d_alpha, d_scale = np.empty(length * n), np.empty(length)
    _forward_tangents(d_u, d_v, length, n, work, d_step, d_alpha, d_scale)
    alpha, beta, gamma = work.alpha, work.beta, work.gamma
    d_beta, d_gamma, row = np.empty(n), np.empty(n), np.empty(n)
    change = 0.0
    for j in range(n):
        beta[j] = work.final[j] / work.scale[length]
        d_beta[j] = beta[j] * d_v[n + square + j] if beta[j] > 0.0 else 0.0
        change += d_alpha[last + j] * beta[j] + alpha[last + j] * d_beta[j]
    for j in range(n):
        d_beta[j] -= beta[j] * change
    counts = np.zeros(square)
    out_v[:] = 0.0
    for t in range(length - 1, -1, -1):
        here = t * n
        for j in range(n):
            k = here + j
            out_u[k] = gamma[j] = d_gamma[j] = 0.0
            if alpha[k] > 0.0:
                out_u[k] = d_alpha[k] * beta[j] + alpha[k] * d_beta[j]
                share = work.state[k] / work.scale[t]
                gamma[j] = share * beta[j]
                d_gamma[j] = share * (d_beta[j] + beta[j] * (d_u[k] - d_scale[t]))
        if t == 0 or interrupted():
            break
        _add_products(alpha, here - n, gamma, n, counts, 0)
        _add_products(d_alpha, here - n, gamma, n, out_v, n)
        _add_products(alpha, here - n, d_gamma, n, out_v, n)
        _combine_rows(d_gamma, 0, work.back, n, d_beta, 0)
        _combine_rows(gamma, 0, d_back, n, row, 0)
        _combine_rows(gamma, 0, work.back, n, beta, 0)
        for i in range(n):
            d_beta[i] += row[i]
    for k in range(square):
        out_v[n + k] = out_v[n + k] * work.step[k] + counts[k] * d_step[k]
    for j in range(n):
        out_v[j], out_v[n + square + j] = out_u[j], out_u[last + j]


@kernel
def _forward_tangents(
    d_u: FloatArray,
    d_v: FloatArray,
    length: int,
    n_states: int,
    work: ChainSums,
    d_step: FloatArray,
    d_alpha: FloatArray,
    d_scale: FloatArray,
) -> None:
    """Write the tangents of `ChainSums.alpha`, and of the logarithms of `ChainSums.scale`."""
    n, alpha, row = n_states, work.alpha, np.empty(n_states)
    for t in range(length):
        here, change = t * n, 0.0
        if t > 0:
            _combine_rows(d_alpha, here - n, work.step, n, d_alpha, here)
            _combine_rows(alpha, here - n, d_step, n, row, 0)
        for j in range(n):
            k = here + j
            if alpha[k] == 0.0:
                d_alpha[k] = 0.0
                continue
            arriving = d_alpha[k] + row[j] if t > 0 else work.initial[j] * d_v[j]
            d_alpha[k] = alpha[k] * d_u[k] + work.state[k] * arriving / work.scale[t]
            change += d_alpha[k]
        for k in range(here, here + n):
            d_alpha[k] -= alpha[k] * change
        d_scale[t] = change
        if interrupted():
            return
