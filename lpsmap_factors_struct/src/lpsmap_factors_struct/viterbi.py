"""Viterbi's (1967) algorithm: the best sequence of states, and its steps for variants of it."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray


@leaf
def step_stride(n_additionals: int, n_states: int) -> int:
    """Return the distance between the transition scores of two steps of a sequence.

    It is 0 if all steps share one matrix. The additionals are then the initial scores, the matrix,
    and the final scores. A sequence of one step has as many, for which the distance does not
    matter.
    """
    return 0 if n_additionals == n_states * (n_states + 2) else n_states * n_states


@leaf
def n_step_scores(n_additionals: int, length: int, n_states: int) -> int:
    """Return the number of transition scores that a sequence of some length uses."""
    shared = step_stride(n_additionals, n_states) == 0
    return n_states * n_states * (1 if shared else length - 1)


@leaf
def most_states(rows: IntArray, factors: Factors) -> int:
    """Return the largest number of states of the sequences `rows`, 0 without sequences."""
    most = 0
    for r in rows:
        most = max(most, int(factors.parameters[r, 0]))
    return most


@leaf
def most_positions(rows: IntArray, factors: Factors) -> int:
    """Return the largest number of positions of the sequences `rows`, 0 without sequences."""
    most, offsets = 0, factors.offsets
    for r in rows:
        n_states = max(1, int(factors.parameters[r, 0]))
        most = max(most, (offsets[r + 1] - offsets[r]) // n_states)
    return most


@leaf
def best_arrivals(
    source: FloatArray,
    at: int,
    transitions: FloatArray,
    step: int,
    n_states: int,
    target: FloatArray,
    to: int,
) -> None:
    """Write ``target[to + j] = max_i source[at + i] + transitions[step + i * n_states + j]``.

    Four source states are processed at a time, to read and write the target less often; the last
    four may repeat one. The arguments are whole arrays, and indices are unsigned: slices, and
    indices that may wrap around, would prevent vectorisation. So would a last comparison with the
    target: to keep a number is to skip its store, and masked stores take longer than all else.
    """
    n, first, row, here = np.uint64(n_states), np.uint64(at), np.uint64(step), np.uint64(to)
    one, two, three, last = np.uint64(1), np.uint64(2), np.uint64(3), n - np.uint64(1)
    for j in range(n):
        target[here + j] = -np.inf
    for i in range(np.uint64(0), n, np.uint64(4)):
        i_b, i_c, i_d = min(i + one, last), min(i + two, last), min(i + three, last)
        a, b, c, d = (
            source[first + i],
            source[first + i_b],
            source[first + i_c],
            source[first + i_d],
        )
        row_a, row_b, row_c, row_d = row + i * n, row + i_b * n, row + i_c * n, row + i_d * n
        for j in range(n):
            p, q = a + transitions[row_a + j], b + transitions[row_b + j]
            r, s = c + transitions[row_c + j], d + transitions[row_d + j]
            most = target[here + j]
            p = p if p > q else q
            r = r if r > s else s
            p = p if p > most else most
            target[here + j] = p if p > r else r


@leaf
def best_source(
    source: FloatArray, at: int, transitions: FloatArray, step: int, n_states: int, j: int
) -> int:
    """Return the first i that attains the maximum of `best_arrivals` at j."""
    n, first = np.uint64(n_states), np.uint64(at)
    row, best = np.uint64(step + j), first
    most = source[first] + transitions[row]
    for i in range(first + np.uint64(1), first + n):
        row += n
        score = source[i] + transitions[row]
        best = np.uint64(i) if score > most else best
        most = score if score > most else most
    return np.int64(best - first)  # type: ignore[return-value]  # int() of it is unsigned


@leaf
def reduced_position(scores: FloatArray, t: int, n_states: int, target: FloatArray) -> None:
    """Write the scores of the states at position t, reduced to a maximum of 0.

    This does not change the best sequence. Without it, the huge score of a forced state would cost
    all sums their precision.
    """
    n, here, two = np.uint64(n_states), np.uint64(t * n_states), np.uint64(2)
    even = n - n % two
    a = b = scores[here + n - np.uint64(1)]
    for s in range(np.uint64(0), even, two):  # two independent chains of comparisons
        p, q = scores[here + s], scores[here + s + np.uint64(1)]
        a = p if p > a else a
        b = q if q > b else b
    most = a if a > b else b
    for s in range(n):
        target[s] = scores[here + s] - most


@leaf
def viterbi(
    scores: FloatArray,
    additionals: FloatArray,
    length: int,
    n_states: int,
    reduced: FloatArray,
    prefix: FloatArray,
    path: IntArray,
) -> None:
    """Find the best sequence of states, in ``O(length * n_states^2)``.

    Viterbi's (1967) dynamic program, without back pointers: backtracking repeats comparisons.

    Parameters
    ----------
    scores
        ``length * n_states`` scores of the states.
    additionals
        ``[initial, transitions, final]`` scores, with transitions for every step or one matrix for
        all; transitions beyond `length` are not used.
    length, n_states
        Shape of `scores`; at least one each.
    reduced
        Workspace of `n_states` numbers.
    prefix
        Workspace of the size of `scores`.
    path
        The result: `length` states.
    """
    reduced_position(scores, 0, n_states, reduced)
    stride = step_stride(len(additionals), n_states)
    for s in range(n_states):
        prefix[s] = additionals[s] + reduced[s]
    for t in range(1, length):
        step = n_states + (t - 1) * stride
        here, before = t * n_states, (t - 1) * n_states
        best_arrivals(prefix, before, additionals, step, n_states, prefix, here)
        reduced_position(scores, t, n_states, reduced)
        for s in range(np.uint64(n_states)):
            prefix[np.uint64(here) + s] += reduced[s]
    final = len(additionals) - n_states
    last = (length - 1) * n_states
    path[length - 1] = 0
    most = -np.inf
    for s in range(n_states):
        score = prefix[last + s] + additionals[final + s]
        if score > most:
            path[length - 1], most = s, score
    for t in range(length - 1, 0, -1):
        step = n_states + (t - 1) * stride
        before = (t - 1) * n_states
        path[t - 1] = best_source(prefix, before, additionals, step, n_states, path[t])


@leaf
def write_path(
    path: IntArray,
    length: int,
    n_states: int,
    n_additionals: int,
    start: int,
    entry: IndexArray,
    value: FloatArray,
    counts: FloatArray,
) -> int:
    """Write the nonzeros of a sequence from position `start`; return their number.

    Transitions that steps share are counted in `counts`, at least ``n_states ** 2`` zeros, which
    this restores.
    """
    if length == 0:
        return 0
    arity = length * n_states
    at = start
    for t in range(length):
        entry[at], value[at] = t * n_states + path[t], 1.0
        at += 1
    entry[at], value[at] = arity + path[0], 1.0
    at += 1
    stride = step_stride(n_additionals, n_states)
    for t in range(1, length):
        pair = path[t - 1] * n_states + path[t]
        if stride == 0:
            counts[pair] += 1.0
        else:
            entry[at], value[at] = arity + n_states + (t - 1) * stride + pair, 1.0
            at += 1
    if stride == 0 and length > 1:
        for pair in range(n_states * n_states):
            if counts[pair] > 0.0:
                entry[at], value[at] = arity + n_states + pair, counts[pair]
                counts[pair] = 0.0
                at += 1
    entry[at], value[at] = arity + n_additionals - n_states + path[length - 1], 1.0
    return at + 1 - start
