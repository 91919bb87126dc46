"""Sums over all trees of a sentence: the matrix-tree theorem, without a subtraction.

The weights of all spanning trees sum to the determinant of a Laplacian (Tutte 1984; for dependency
trees Koo et al. 2007, McDonald & Satta 2007, Smith & Smith 2007). Where two words prefer each
other, that determinant is a small difference of large numbers. So it is eliminated as Grassmann,
Taksar & Heyman (1985) eliminate Markov chains: words leave one by one, and what led to a word goes
on to the heads that it had. Sums of positive numbers remain, and their logarithms, which neither
cancel nor overflow, whatever the scores.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Beliefs, Factors, Scores, kernel, leaf
from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.interrupts import interruptible
from lpsmap_factors_struct.arc_layout import arc_slot, n_words

__all__ = ["MatrixTree"]

NEGLIGIBLE = 50.0
"""By how much, in logarithms, trees of one root outweigh all others where these do not count."""


class MatrixTree:
    """Log-partition functions of dependency trees that may cross; see `LogPartition`.

    Parameters
    ----------
    offsets, parameters
        Of the factors, as kernels get them.
    """

    def __init__(self, offsets: IntArray, parameters: FloatArray) -> None:
        n = len(parameters)
        self._factors = Factors(
            offsets,
            np.zeros(n + 1, dtype=np.int64),
            parameters,
            np.empty(0),
            np.empty(0, dtype=np.int64),
            np.zeros((n, 2), dtype=np.int64),
        )

    @interruptible
    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""
        n = len(self._factors.parameters)
        found = Beliefs(np.zeros(n), np.zeros(n), np.zeros(len(scores.eta_u)), np.empty(0))
        _beliefs(rows, self._factors, scores, *found[:3])
        return found

    @interruptible
    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Return how the marginals change along a change of the scores."""
        product = np.zeros(len(scores.eta_u))
        _hessian_products(rows, self._factors, scores, direction.eta_u, product)
        return Scores(product, np.empty(0))


@kernel
def _beliefs(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    log_partition: FloatArray,
    entropy: FloatArray,
    m: FloatArray,
) -> None:
    """Write log-partition functions, entropies and marginals of factors."""
    offsets, parameters = factors.offsets, factors.parameters
    longest, largest = 0, 0
    for r in rows:
        arity = offsets[r + 1] - offsets[r]
        longest, largest = max(longest, n_words(arity, parameters[r, 3])), max(largest, arity)
    slots, pivots = np.empty(largest), np.empty(longest)
    states, expected = np.empty(_first_of(longest)), np.empty(longest * (longest + 1))
    for r in rows:
        own, mine = slots[: offsets[r + 1] - offsets[r]], m[offsets[r] : offsets[r + 1]]
        packed, n_labels = parameters[r, 0] != 0, int(parameters[r, 3])
        n = n_words(len(own), parameters[r, 3])
        _decide(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, packed, own)
        shift = _arcs(own, n, n_labels, packed, parameters[r, 2] != 0, states)
        total = _eliminate(n, states, pivots)
        entropy[r], mine[:] = 0.0, 0.0
        if total > -np.inf:
            _expect(n, states, pivots, expected)
            if shift > 0.0 and _roots(n, expected) > 1.5:
                total = -np.inf  # no tree has a single root
        log_partition[r] = total + shift
        if total > -np.inf:
            _spread(expected, own, n, n_labels, packed, mine)
            entropy[r] = log_partition[r]
            for k in range(len(own)):
                if mine[k] > 0.0:
                    entropy[r] -= mine[k] * own[k]
            entropy[r] = max(entropy[r], 0.0)


@kernel
def _hessian_products(
    rows: IntArray, factors: Factors, scores: Scores, direction: FloatArray, product: FloatArray
) -> None:
    """Write the products of a direction with the Hessians of log-partition functions."""
    offsets, parameters = factors.offsets, factors.parameters
    longest, largest = 0, 0
    for r in rows:
        arity = offsets[r + 1] - offsets[r]
        longest, largest = max(longest, n_words(arity, parameters[r, 3])), max(largest, arity)
    slots, pivots, d_pivots = np.empty(largest), np.empty(longest), np.empty(longest)
    states, d_states = np.empty(_first_of(longest)), np.empty(_first_of(longest))
    expected = np.empty(longest * (longest + 1))
    d_expected = np.empty(longest * (longest + 1))
    for r in rows:
        own = slots[: offsets[r + 1] - offsets[r]]
        d, mine = direction[offsets[r] : offsets[r + 1]], product[offsets[r] : offsets[r + 1]]
        packed, n_labels = parameters[r, 0] != 0, int(parameters[r, 3])
        n = n_words(len(own), parameters[r, 3])
        _decide(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, packed, own)
        shift = _arcs(own, n, n_labels, packed, parameters[r, 2] != 0, states)
        mine[:] = 0.0
        if _eliminate(n, states, pivots) > -np.inf:
            _mean_direction(own, d, n, n_labels, packed, states, d_states)
            _eliminate_tangent(n, states, pivots, d_states, d_pivots)
            _expect_tangent(n, states, pivots, d_states, d_pivots, expected, d_expected)
            if shift == 0.0 or _roots(n, expected) <= 1.5:
                _spread_tangent(expected, d_expected, own, d, n, n_labels, packed, mine)


# -------------------------------------------------------------------- states of the elimination


@leaf
def _first_of(k: int) -> int:
    """Return where the state of `k + 1` words begins.

    That of the words 0 to k is a table of k + 1 rows of k + 2 columns: the logarithms of what their
    arcs from each other weigh, and, in the last column, from the root. The diagonal means nothing.
    """
    return k * (k + 1) * (k + 2) // 3


@leaf
def _decide(eta_u: FloatArray, n: int, n_labels: int, packed: bool, own: FloatArray) -> None:
    """Write scores in which what a score of +inf forces is all that is left of a word's."""
    for word in range(n):
        forced = 0
        for k in range(word * n * n_labels, (word + 1) * n * n_labels):
            if eta_u[k] == np.inf:
                forced += 1
        for k in range(word * n * n_labels, (word + 1) * n * n_labels):
            own[k] = eta_u[k]
            if forced > 0:
                own[k] = 0.0 if forced == 1 and eta_u[k] == np.inf else -np.inf


@leaf
def _arcs(
    own: FloatArray, n: int, n_labels: int, packed: bool, single_root: bool, states: FloatArray
) -> float:
    """Write the state of all words; return what was taken off the root's scores.

    For a single root, so much that trees of several weigh nothing.
    """
    first, width, span = _first_of(n - 1) if n > 0 else 0, n + 1, 0.0
    for word in range(n):
        low, high = np.inf, -np.inf
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            weight = own[slot]
            for k in range(1, n_labels):
                weight = _log_sum(weight, own[slot + k])
            states[first + word * width + (n if head == word else head)] = weight
            if weight > -np.inf:
                low, high = min(low, weight), max(high, weight)
        states[first + word * width + word] = -np.inf
        span += max(high - low, 0.0)
    if not single_root or n == 0:
        return 0.0
    shift: float = span + n * np.log(n + 1.0) + NEGLIGIBLE
    for word in range(n):
        states[first + word * width + n] -= shift
    return shift


@leaf
def _log_sum(x: float, y: float) -> float:
    """Return ``log(exp(x) + exp(y))``."""
    most, least = max(x, y), min(x, y)
    return most if least == -np.inf else most + np.log1p(np.exp(least - most))


@leaf
def _eliminate(n: int, states: FloatArray, pivots: FloatArray) -> float:
    """Write all smaller states and the pivots; return the log-partition function.

    A word that leaves hands what led to it on to its own heads, in proportion to their weights, but
    for what would lead back.
    """
    total = 0.0
    for k in range(n - 1, -1, -1):
        old, new = _first_of(k), _first_of(k - 1) if k > 0 else 0
        gone = old + k * (k + 2)
        pivot = states[gone + k + 1]
        for j in range(k):
            pivot = _log_sum(pivot, states[gone + j])
        pivots[k] = pivot
        if pivot == -np.inf:
            return -np.inf
        total += pivot
        for i in range(k):
            into = states[old + i * (k + 2) + k] - pivot
            for j in range(k + 1):
                before = old + i * (k + 2) + (j if j < k else k + 1)
                passed = into + states[gone + (j if j < k else k + 1)]
                states[new + i * (k + 1) + j] = (
                    -np.inf if j == i else _log_sum(states[before], passed)
                )
    return total


@leaf
def _eliminate_tangent(
    n: int, states: FloatArray, pivots: FloatArray, d_states: FloatArray, d_pivots: FloatArray
) -> None:
    """Write how the states and the pivots change along a change of the first."""
    for k in range(n - 1, -1, -1):
        old, new = _first_of(k), _first_of(k - 1) if k > 0 else 0
        gone = old + k * (k + 2)
        d_pivots[k] = 0.0
        for j in range(k + 2):
            if j != k:
                d_pivots[k] += np.exp(states[gone + j] - pivots[k]) * d_states[gone + j]
        for i in range(k):
            at = old + i * (k + 2)
            for j in range(k + 1):
                column = j if j < k else k + 1
                after = states[new + i * (k + 1) + j]
                d = 0.0
                if after > -np.inf:
                    passed = states[at + k] + states[gone + column] - pivots[k]
                    d = np.exp(states[at + column] - after) * d_states[at + column]
                    d += np.exp(passed - after) * (
                        d_states[at + k] + d_states[gone + column] - d_pivots[k]
                    )
                d_states[new + i * (k + 1) + j] = d


# -------------------------------------------------------------------- back to the first state


@leaf
def _expect(n: int, states: FloatArray, pivots: FloatArray, expected: FloatArray) -> None:
    """Write the probabilities of all arcs, a table like the first state.

    They are the derivatives of the log-partition function, by going back through the states.
    """
    width = n + 1
    expected[: n * width] = 0.0
    for k in range(n):
        old, new = _first_of(k), _first_of(k - 1) if k > 0 else 0
        gone, whole = old + k * (k + 2), 1.0
        for i in range(k):
            at = old + i * (k + 2)
            for j in range(k + 1):
                after, cell = states[new + i * (k + 1) + j], i * width + (j if j < k else n)
                if expected[cell] == 0.0 or after == -np.inf:
                    continue
                passed = states[at + k] + states[gone + (j if j < k else k + 1)] - pivots[k]
                share = expected[cell] * np.exp(passed - after)
                expected[cell] -= share
                expected[i * width + k] += share
                expected[k * width + (j if j < k else n)] += share
                whole -= share
        for j in range(k + 1):
            q = np.exp(states[gone + (j if j < k else k + 1)] - pivots[k])
            expected[k * width + (j if j < k else n)] += whole * q


@leaf
def _expect_tangent(
    n: int,
    states: FloatArray,
    pivots: FloatArray,
    d_states: FloatArray,
    d_pivots: FloatArray,
    expected: FloatArray,
    d_expected: FloatArray,
) -> None:
    """Do what `_expect` does, and write how the probabilities change."""
    width = n + 1
    expected[: n * width] = 0.0
    d_expected[: n * width] = 0.0
    for k in range(n):
        old, new = _first_of(k), _first_of(k - 1) if k > 0 else 0
        gone, whole, d_whole = old + k * (k + 2), 1.0, 0.0
        for i in range(k):
            at = old + i * (k + 2)
            for j in range(k + 1):
                after, cell = states[new + i * (k + 1) + j], i * width + (j if j < k else n)
                if after == -np.inf:
                    continue
                column, mine = j if j < k else k + 1, k * width + (j if j < k else n)
                ratio = np.exp(states[at + k] + states[gone + column] - pivots[k] - after)
                d_ratio = d_states[at + k] + d_states[gone + column] - d_pivots[k]
                d_ratio = ratio * (d_ratio - d_states[new + i * (k + 1) + j])
                share = expected[cell] * ratio
                d_share = d_expected[cell] * ratio + expected[cell] * d_ratio
                expected[cell] -= share
                d_expected[cell] -= d_share
                expected[i * width + k] += share
                d_expected[i * width + k] += d_share
                expected[mine] += share
                d_expected[mine] += d_share
                whole -= share
                d_whole -= d_share
        for j in range(k + 1):
            column, mine = j if j < k else k + 1, k * width + (j if j < k else n)
            q = np.exp(states[gone + column] - pivots[k])
            expected[mine] += whole * q
            d_expected[mine] += (d_whole + whole * (d_states[gone + column] - d_pivots[k])) * q


@leaf
def _roots(n: int, expected: FloatArray) -> float:
    """Return how many words are expected to hang from the root."""
    total = 0.0
    for word in range(n):
        total += expected[word * (n + 1) + n]
    return total


# -------------------------------------------------------------------- slots


@leaf
def _spread(
    expected: FloatArray, own: FloatArray, n: int, n_labels: int, packed: bool, m: FloatArray
) -> None:
    """Write the marginals of slots: an arc's probability, shared by its labels."""
    for word in range(n):
        for head in range(n):
            p = expected[word * (n + 1) + (n if head == word else head)]
            slot = arc_slot(word, head, n, packed) * n_labels
            weight = _arc_weight(own, slot, n_labels)
            for k in range(slot, slot + n_labels):
                if own[k] > -np.inf:
                    m[k] = min(max(p * np.exp(own[k] - weight), 0.0), 1.0)


@leaf
def _spread_tangent(
    expected: FloatArray,
    d_expected: FloatArray,
    own: FloatArray,
    d: FloatArray,
    n: int,
    n_labels: int,
    packed: bool,
    product: FloatArray,
) -> None:
    """Write how the marginals of slots change."""
    for word in range(n):
        for head in range(n):
            arc = word * (n + 1) + (n if head == word else head)
            slot = arc_slot(word, head, n, packed) * n_labels
            weight, mean = _arc_weight(own, slot, n_labels), 0.0
            for k in range(slot, slot + n_labels):
                if own[k] > -np.inf:
                    mean += np.exp(own[k] - weight) * d[k]
            for k in range(slot, slot + n_labels):
                if own[k] > -np.inf:
                    share = np.exp(own[k] - weight)
                    product[k] = share * (d_expected[arc] + expected[arc] * (d[k] - mean))


@leaf
def _arc_weight(own: FloatArray, slot: int, n_labels: int) -> float:
    """Return the logarithm of what all labels of an arc weigh."""
    weight: float = own[slot]
    for k in range(slot + 1, slot + n_labels):
        weight = _log_sum(weight, own[k])
    return weight


@leaf
def _mean_direction(
    own: FloatArray,
    d: FloatArray,
    n: int,
    n_labels: int,
    packed: bool,
    states: FloatArray,
    d_states: FloatArray,
) -> None:
    """Write how the first state changes along a change of the slots' scores."""
    first = _first_of(n - 1) if n > 0 else 0
    for word in range(n):
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            weight, mean = _arc_weight(own, slot, n_labels), 0.0
            for k in range(slot, slot + n_labels):
                if own[k] > -np.inf:
                    mean += np.exp(own[k] - weight) * d[k]
            d_states[first + word * (n + 1) + (n if head == word else head)] = mean
        d_states[first + word * (n + 1) + word] = 0.0
