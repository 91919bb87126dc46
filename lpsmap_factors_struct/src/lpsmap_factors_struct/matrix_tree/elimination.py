"""Sums over all trees of a sentence, by eliminations that never subtract.

The weights of all spanning trees sum to the determinant of a Laplacian (Tutte 1984; for dependency
trees Koo et al. 2007, McDonald & Satta 2007, Smith & Smith 2007). Where two words prefer each
other, this determinant is a small difference of large numbers. Words are therefore eliminated as
the states of Markov chains are by Grassmann, Taksar & Heyman (1985): one by one, with the weights
of the arcs to an eliminated word passed on to the word's heads. Only positive numbers are added.

Following heads from word to word is a random walk, which escapes when it reaches the root. With G
the inverse of the Laplacian and E[h, m] the probability that a walk from h escapes before it
reaches m, an arc from h to m of weight w has the probability ``w G[m, m] E[h, m]``. Elimination of
a word does not change the escapes of the other words. This allows divide and conquer: each half of
the words is eliminated in turn, the escapes among the other half are found recursively, and those
of the eliminated half follow from them. This takes time n^3 and memory n^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.matrix_tree.wide_numbers import (
    Numbers,
    add_multiple,
    fill,
    log_of,
    numbers_of,
    ratio,
)


class Halves(NamedTuple):
    """Workspace for up to `n` words, which are halved until one is left.

    Level 0 has the arcs of all words, and is not modified. Level 1 is a copy that is eliminated.
    """

    systems: Numbers
    """For every level, rows of the words' arcs: from the root, then from each word of the level.

    Once a word is eliminated, the diagonal entry of its row holds the sum of its arcs.
    """
    first: IntArray
    """Start of the system of each level."""
    low: IntArray
    """The first word of each level."""
    size: IntArray
    """The number of words of each level."""
    done: IntArray
    """The number of halves that were kept. For the second, the order of words is reversed."""


@kernel
def halves_of(n: int, moves: bool, wide: bool) -> Halves:
    """Return a workspace for up to `n` words."""
    depth, size, total = 2, n, 2 * n * (n + 1)
    while size > 1:
        size = (size + 1) // 2
        total += size * (size + 1)
        depth += 1
    first = np.empty(depth, dtype=np.int64)
    at, size = 0, n
    for level in range(depth):
        first[level] = at
        at += size * (size + 1)
        size = (size + 1) // 2 if level > 0 else size
    return Halves(numbers_of(total, moves, wide), first, first.copy(), first.copy(), first.copy())


@leaf
def eliminate_trees(
    n: int, single_root: bool, halves: Halves, inverse: Numbers, escapes: Numbers
) -> tuple[float, float]:
    """Write the inverse's diagonal and the escapes; return the logarithm of the sum over trees.

    Parameters
    ----------
    n
        Number of words, at least one.
    single_root
        Whether only trees with one root arc count, as the limit of small weights of root arcs.
    halves
        Level 0 holds the weights of the words' arcs.
    inverse
        The result: (n,)
    escapes
        The result: (n, n) entry [h, m]; the diagonal is undefined.

    Returns
    -------
    tuple of float
        The logarithm in two parts, see `log_of`; -inf if there is no tree, or plain numbers
        underflow.
    """
    low, size, done = halves.low, halves.size, halves.done
    level, total, powers, first_time = 1, 0.0, 0.0, True
    _begin(n, halves)
    for word in range(n):
        fill(escapes, word * n + word, 1, 0.0, 0.0, 0.0)
    while level > 0:
        s, half = size[level], size[level] // 2
        if s == 1:
            at = _row_above(halves, level, low[level])
            if not halves.systems.value[at] > 0.0:
                return -np.inf, 0.0
            _put_inverse(inverse, low[level], halves.systems, at)
            if first_time:
                more, power = log_of(halves.systems, at)
                total, powers, first_time = total + more, powers + power, False
            level -= 1
            continue
        if done[level] > 0:
            _extend_escapes(halves, level, half if done[level] == 1 else s - half, escapes, n)
        if done[level] == 2:
            level -= 1
            continue
        done[level] += 1
        _copy(halves, level)
        kept = half if done[level] == 1 else s - half
        more, power = _eliminate_level(halves, level, kept, single_root)
        if not more > -np.inf:
            return -np.inf, 0.0
        if first_time:
            total, powers = total + more, powers + power
        low[level + 1] = low[level] if done[level] == 1 else low[level] + half
        size[level + 1], done[level + 1] = kept, 0
        level += 1
    return total, powers


@leaf
def _begin(n: int, halves: Halves) -> None:
    """Initialise the first two levels."""
    for level in range(2):
        halves.low[level], halves.size[level], halves.done[level] = 0, n, 1 - level


@leaf
def _local(halves: Halves, level: int, word: int) -> int:
    """Return the number of a word at a level. For the second half, the order is reversed."""
    before: int = word - halves.low[level]
    return before if halves.done[level] < 2 else halves.size[level] - 1 - before


@leaf
def _row_above(halves: Halves, level: int, word: int) -> int:
    """Return the start of a word's row in the system of the previous level."""
    above: int = level - 1
    row = _local(halves, above, word)
    at: int = halves.first[above] + row * (halves.size[above] + 1)
    return at


@leaf
def _copy(halves: Halves, level: int) -> None:
    """Write a level's system in an order that starts with the next half to keep."""
    s, low, systems = halves.size[level], halves.low[level], halves.systems
    for word in range(low, low + s):
        start = _row_above(halves, level, word)
        at = halves.first[level] + _local(halves, level, word) * (s + 1)
        _copy_number(systems, at, start)
        for head in range(low, low + s):
            to = at + 1 + _local(halves, level, head)
            _copy_number(systems, to, start + 1 + _local(halves, level - 1, head))


@leaf
def _copy_number(systems: Numbers, to: int, start: int) -> None:
    systems.value[to] = systems.value[start]
    if len(systems.tangent) > 0:
        systems.tangent[to] = systems.tangent[start]
    if len(systems.power) > 0:
        systems.power[to] = systems.power[start]


@leaf
def _put_inverse(to: Numbers, at: int, of: Numbers, i: int) -> None:
    """Write the reciprocal of a number."""
    value = 1.0 / of.value[i]
    tangent = -value * (value * of.tangent[i]) if len(of.tangent) > 0 else 0.0
    fill(to, at, 1, value, tangent, -of.power[i] if len(of.power) > 0 else 0.0)


@leaf
def _pivot(systems: Numbers, row: int, k: int, single_root: bool) -> None:
    """Write the sum of the arcs of the last of `k + 1` words to the diagonal of its row."""
    fill(systems, row + k + 1, 1, 0.0, 0.0, 0.0)
    for j in range(1 if single_root and k > 0 else 0, k + 1):
        add_multiple(systems, row + k + 1, systems, row + j, 1, (1.0, 0.0, 0.0))


@leaf
def _eliminate_level(
    halves: Halves, level: int, kept: int, single_root: bool
) -> tuple[float, float]:
    """Eliminate all but the first `kept` words of a level; return the logarithm of the pivots."""
    systems, first, width = halves.systems, halves.first[level], halves.size[level] + 1
    total = powers = 0.0
    for k in range(halves.size[level] - 1, kept - 1, -1):
        row = first + k * width
        _pivot(systems, row, k, single_root)
        if not systems.value[row + k + 1] > 0.0 or interrupted():
            return -np.inf, 0.0
        more, power = log_of(systems, row + k + 1)
        total, powers = total + more, powers + power
        for i in range(k):
            at = first + i * width
            if systems.value[at + k + 1] > 0.0:
                share = ratio(systems, at + k + 1, systems, row + k + 1)
                add_multiple(systems, at, systems, row, k + 1, share)
    return total, powers


@leaf
def _extend_escapes(halves: Halves, level: int, kept: int, escapes: Numbers, n: int) -> None:
    """Write the escapes of a level's eliminated words, from those of the words that were kept."""
    systems, s, low = halves.systems, halves.size[level], halves.low[level]
    forward = halves.done[level] < 2
    least = low if forward else low + s - kept
    for k in range(kept, s):
        row = halves.first[level] + k * (s + 1)
        at = (low + k if forward else low + s - 1 - k) * n + least
        if interrupted():
            return
        value, tangent, power = ratio(systems, row, systems, row + k + 1)
        fill(escapes, at, kept, value, tangent, power)
        for j in range(k):
            if systems.value[row + 1 + j] > 0.0:
                head = low + j if forward else low + s - 1 - j
                share = ratio(systems, row + 1 + j, systems, row + k + 1)
                add_multiple(escapes, at, escapes, head * n + least, kept, share)


@leaf
def eliminate_words(n: int, single_root: bool, halves: Halves) -> None:
    """Eliminate all words but the first at level 1, from the last one on.

    There, the row of word k then holds its arcs from the root and from the words before it at the
    time of its elimination, their sum on the diagonal, and behind it the arcs from every later word
    at the time of that word's elimination.

    Parameters
    ----------
    n, single_root, halves
        As for `eliminate_trees`.
    """
    _begin(n, halves)
    _copy(halves, 1)
    _eliminate_level(halves, 1, 1, single_root)


@leaf
def entropy_of_trees(n: int, single_root: bool, halves: Halves, entropies: FloatArray) -> float:
    """Return the entropy of the distribution over trees, by a separate elimination.

    Each number W of the elimination is a sum over paths of arcs. The paths have a distribution,
    proportional to their terms of W, with an entropy: log W minus the mean score of a path. The
    entropies of the pivots sum to the entropy of trees. Scores do not enter the computation, so
    that large scores cannot cancel.

    Parameters
    ----------
    n, single_root, halves
        As for `eliminate_trees`.
    entropies
        (n, n + 1) the entropies of the arcs' labels. Overwritten.
    """
    systems, width, entropy = halves.systems, n + 1, 0.0
    _begin(n, halves)
    _copy(halves, 1)
    first = halves.first[1]
    for k in range(n - 1, -1, -1):
        row, own = first + k * width, 0.0
        _pivot(systems, row, k, single_root)
        if not systems.value[row + k + 1] > 0.0 or interrupted():
            return 0.0
        for j in range(1 if single_root and k > 0 else 0, k + 1):
            own += _entropy_term(
                _share(systems, row + j, systems, row + k + 1), entropies[k * width + j]
            )
        entropy += own
        for i in range(k):
            if systems.value[first + i * width + k + 1] > 0.0:
                into = entropies[i * width + k + 1] - own
                _pass_weight_on(systems, entropies, first, i * width, k * width, k, into)
    return entropy


@leaf
def _pass_weight_on(
    systems: Numbers, entropies: FloatArray, first: int, at: int, row: int, k: int, into: float
) -> None:
    """Pass the weight of an arc to the eliminated word on to that word's heads, with entropies.

    The place of the arc to the eliminated word serves as temporary storage.
    """
    spare = first + at + k + 1
    share = ratio(systems, spare, systems, first + row + k + 1)
    for j in range(k + 1):
        cell, power = first + at + j, 0.0
        before = systems.value[cell]
        if len(systems.power) > 0:
            power = systems.power[cell]
            if before > 0.0 and share[2] + systems.power[first + row + j] < power - 2.0:
                continue  # the added weight is negligible
        if systems.value[first + row + j] > 0.0:
            fill(systems, spare, 1, 0.0, 0.0, 0.0)
            add_multiple(systems, spare, systems, first + row + j, 1, share)
            add_multiple(systems, cell, systems, first + row + j, 1, share)
            passed = _share(systems, spare, systems, cell)
            fill(systems, spare, 1, before, 0.0, power)
            kept = _share(systems, spare, systems, cell)
            entropies[at + j] = _entropy_term(kept, entropies[at + j])
            entropies[at + j] += _entropy_term(passed, into + entropies[row + j])


@leaf
def _share(a: Numbers, i: int, b: Numbers, j: int) -> float:
    """Return the quotient of a number and a number that is not smaller."""
    value, _, power = ratio(a, i, b, j)
    if power == 0.0:
        return value
    return value * 2.0**512 if power == 1.0 else value * 2.0**-512 if power == -1.0 else 0.0


@leaf
def _entropy_term(share: float, entropy: float) -> float:
    """Return the contribution of a part of a sum to the sum's entropy."""
    return share * (entropy - np.log(share)) if share > 0.0 else 0.0
