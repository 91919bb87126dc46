"""Sums over all trees of a sentence, by eliminations that never subtract.

The weights of all spanning trees sum to the determinant of a Laplacian (Tutte 1984; for dependency
trees Koo et al. 2007, McDonald & Satta 2007, Smith & Smith 2007). Where two words prefer each
other, that determinant is a small difference of large numbers. So it is eliminated as Grassmann,
Taksar & Heyman (1985) eliminate Markov chains: words leave one by one, and what led to a word goes
on to the heads that it had. Sums of positive numbers remain.

Heads make a random walk from word to word until it escapes to the root. With G the inverse of the
Laplacian and E[h, m] the probability that a walk from h escapes before it comes to m, the arc from
h to m weighs w and has the probability ``w G[m, m] E[h, m]``. To leave a word keeps the escapes of
those that stay. So both halves of the words leave, one after the other, each before all is done
within the half that stays, and their escapes follow from those: time n^3, memory n^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.wide_numbers import (
    Numbers,
    add_multiple,
    fill,
    log_of,
    numbers_of,
    ratio,
)

__all__ = ["Halves", "eliminate_trees", "entropy_of_trees", "halves_of"]


class Halves(NamedTuple):
    """Working memory for up to `n` words, which are halved until one is left.

    Level 0 has all words, and stays as it is; level 1 has them again, to be worked on.
    """

    systems: Numbers
    """For every level, rows of the words' arcs: from the root, then from each word of the level.

    Once a word has left, its own place in its row holds what its arcs summed to.
    """
    first: IntArray
    """Where the system of each level begins."""
    low: IntArray
    """The first word of each level."""
    size: IntArray
    """How many words each has."""
    done: IntArray
    """How many of its halves were kept; the second one in reverse order, so that it leads too."""


@kernel
def halves_of(n: int, moves: bool, wide: bool) -> Halves:
    """Return working memory for up to `n` words."""
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
    """Write the inverse's diagonal and the escapes; return the logarithm of the summed weights.

    Parameters
    ----------
    n
        Number of words, at least one.
    single_root
        Count trees of one root only, in the limit of small weights of the root.
    halves
        Its level 0 is what a word's arcs weigh.
    inverse
        The result: (n,)
    escapes
        The result: (n, n) entry [h, m]; meaningless on the diagonal.

    Returns
    -------
    tuple of float
        In two parts, as of `log_of`; -inf where there is no tree, or plain numbers underflow.
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
    """Number the words of the first two levels."""
    for level in range(2):
        halves.low[level], halves.size[level], halves.done[level] = 0, n, 1 - level


@leaf
def _local(halves: Halves, level: int, word: int) -> int:
    """Return the number of a word at a level, where the second half to be kept is reversed."""
    before: int = word - halves.low[level]
    return before if halves.done[level] < 2 else halves.size[level] - 1 - before


@leaf
def _row_above(halves: Halves, level: int, word: int) -> int:
    """Return where the row of a word begins in the system of the level before."""
    above: int = level - 1
    row = _local(halves, above, word)
    at: int = halves.first[above] + row * (halves.size[above] + 1)
    return at


@leaf
def _copy(halves: Halves, level: int) -> None:
    """Write a level's system, in the order in which its next half to be kept leads."""
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
    """Write one divided by a number."""
    value = 1.0 / of.value[i]
    tangent = -value * value * of.tangent[i] if len(of.tangent) > 0 else 0.0
    fill(to, at, 1, value, tangent, -of.power[i] if len(of.power) > 0 else 0.0)


@leaf
def _pivot(systems: Numbers, row: int, k: int, single_root: bool) -> None:
    """Write what the arcs of the last of `k + 1` words sum to, in its own place of its row."""
    fill(systems, row + k + 1, 1, 0.0, 0.0, 0.0)
    for j in range(1 if single_root and k > 0 else 0, k + 1):
        add_multiple(systems, row + k + 1, systems, row + j, 1, (1.0, 0.0, 0.0))


@leaf
def _eliminate_level(
    halves: Halves, level: int, kept: int, single_root: bool
) -> tuple[float, float]:
    """Let all words of a level but the first ones leave; return the logarithm of the pivots."""
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
    """Write the escapes of the words of a level that left, from those of the words that stayed."""
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
def entropy_of_trees(n: int, single_root: bool, halves: Halves, doubts: FloatArray) -> float:
    """Return the entropy of the distribution over trees, by an elimination of its own.

    Each number W of the elimination is a sum over paths of arcs, and has a doubt: the logarithm of
    W less the mean of what the paths score, whose weights are W's parts. The doubts of the pivots
    sum to the entropy. Scores never come up, and so do not cancel, however large they are.

    Parameters
    ----------
    n, single_root, halves
        As of `eliminate_trees`.
    doubts
        (n, n + 1) those of the arcs, the entropies of their labels. Overwritten.
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
            own += _doubt_term(
                _share(systems, row + j, systems, row + k + 1), doubts[k * width + j]
            )
        entropy += own
        for i in range(k):
            if systems.value[first + i * width + k + 1] > 0.0:
                into = doubts[i * width + k + 1] - own
                _pass_weight_on(systems, doubts, first, i * width, k * width, k, into)
    return entropy


@leaf
def _pass_weight_on(
    systems: Numbers, doubts: FloatArray, first: int, at: int, row: int, k: int, into: float
) -> None:
    """Hand what led from a word to the one that leaves on to the latter's heads, with doubts.

    What is added, and what it is added to, stand for a while in the place of the arc to the word
    that leaves.
    """
    spare = first + at + k + 1
    share = ratio(systems, spare, systems, first + row + k + 1)
    for j in range(k + 1):
        cell, power = first + at + j, 0.0
        before = systems.value[cell]
        if len(systems.power) > 0:
            power = systems.power[cell]
            if before > 0.0 and share[2] + systems.power[first + row + j] < power - 2.0:
                continue  # what is added is nothing beside it
        if systems.value[first + row + j] > 0.0:
            fill(systems, spare, 1, 0.0, 0.0, 0.0)
            add_multiple(systems, spare, systems, first + row + j, 1, share)
            add_multiple(systems, cell, systems, first + row + j, 1, share)
            passed = _share(systems, spare, systems, cell)
            fill(systems, spare, 1, before, 0.0, power)
            kept = _share(systems, spare, systems, cell)
            doubts[at + j] = _doubt_term(kept, doubts[at + j])
            doubts[at + j] += _doubt_term(passed, into + doubts[row + j])


@leaf
def _share(a: Numbers, i: int, b: Numbers, j: int) -> float:
    """Return the quotient of a number and one that is no smaller."""
    value, _, power = ratio(a, i, b, j)
    if power == 0.0:
        return value
    return value * 2.0**512 if power == 1.0 else value * 2.0**-512 if power == -1.0 else 0.0


@leaf
def _doubt_term(share: float, doubt: float) -> float:
    """Return what a part of a sum adds to the sum's doubt."""
    return share * (doubt - np.log(share)) if share > 0.0 else 0.0
