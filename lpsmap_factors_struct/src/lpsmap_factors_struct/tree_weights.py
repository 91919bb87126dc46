"""What the arcs of a sentence weigh: scores of any size as numbers that sums over trees take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_factors_struct.arc_layout import arc_slot
from lpsmap_factors_struct.tree_elimination import Halves, eliminate_trees, halves_of
from lpsmap_factors_struct.wide_numbers import LOG_RADIX, Numbers, log_from, numbers_of, put_exp

__all__ = ["TreeMemory", "sum_trees", "tree_memory"]

MOST = 1e270
"""Derivatives up to which plain numbers are right: what they round to zero is below 1e-299."""

NEAR = 2.0**40
"""How far below a word's best arc others may be without being brought nearer."""

NEGLIGIBLE = 1000.0
"""By how much, in logarithms, trees outweigh those that do not count beside them."""

MOST_FINITE = float(np.finfo(np.float64).max)


class TreeMemory(NamedTuple):
    """Working memory for sentences of up to `n` words.

    Tables have a row for every word: for its arc from the root, then for those from all words.
    """

    halves: Halves
    inverse: Numbers
    escapes: Numbers
    high: FloatArray
    """By how much arcs score more than their word's best label of an arc, which is mostly less."""
    low: FloatArray
    """What is to be added to that."""
    lift: FloatArray
    """By how much that was brought nearer for wide numbers."""
    change: FloatArray
    """How the arcs' scores change."""
    expected: FloatArray
    """Probabilities of arcs."""
    d_expected: FloatArray
    """How they change; as long as that is asked for."""
    single: BoolArray
    """Whether the trees of a single root are a limit; for wide numbers they are outweighing."""


@kernel
def tree_memory(n: int, moves: bool, wide: bool) -> TreeMemory:
    """Return working memory for up to `n` words; see `numbers_of`."""
    size = n * (n + 1)
    return TreeMemory(
        halves_of(n, moves, wide),
        numbers_of(n, moves, wide),
        numbers_of(n * n, moves, wide),
        np.empty(size),
        np.empty(size),
        np.zeros(size if wide else 0),
        np.zeros(size if moves else 0),
        np.empty(size),
        np.empty(size if moves else 0),
        np.zeros(1, dtype=np.bool_),
    )


@leaf
def sum_trees(
    own: FloatArray,
    d: FloatArray,
    n: int,
    n_labels: int,
    packed: bool,
    single_root: bool,
    memory: TreeMemory,
) -> tuple[float, float, float]:
    """Write the arcs' probabilities, and how they change along `d`.

    Returns
    -------
    tuple of float
        The log-partition function, -inf if there is no tree, NaN where plain numbers do not do;
        what is to be added to it; and what it is beyond the sum of the words' best scores, or -inf.
    """
    wide = len(memory.inverse.power) > 0
    if n == 0:
        return 0.0, 0.0, -np.inf
    memory.single[0] = single_root and not wide
    best, rest = _compare(own, d, n, n_labels, packed, memory)
    apart = _bring_near(n, memory) if wide else 0.0
    apart = apart if single_root else 0.0
    systems = memory.halves.systems
    for at in range(n * (n + 1)):
        change = memory.change[at] if len(memory.change) > 0 else 0.0
        put_exp(systems, at, memory.high[at], memory.low[at], change)
        if wide and at % (n + 1) == 0:
            systems.power[at] -= apart
    log, power = eliminate_trees(n, memory.single[0], memory.halves, memory.inverse, memory.escapes)
    if not (log > -np.inf and _expect(n, memory)):
        return (-np.inf if wide else np.nan), 0.0, -np.inf
    if wide:
        if single_root and _roots(n, memory) > 1.5:
            return -np.inf, 0.0, -np.inf  # no tree has a single root
        best, rest = _lowered(n, best, rest, memory)
    trees = log_from(log, power + apart)
    total, lost = _two_sum(best, trees)
    return total, rest + lost, trees


@leaf
def _roots(n: int, memory: TreeMemory) -> float:
    """Return how many words are expected to hang from the root."""
    total = 0.0
    for word in range(n):
        total += memory.expected[word * (n + 1)]
    return total


@leaf
def _lowered(n: int, best: float, rest: float, memory: TreeMemory) -> tuple[float, float]:
    """Return a sum in two parts less what was added to the arcs that the likely trees have.

    These have equally many of each level, a whole number.
    """
    done = 0.0
    while True:
        lift = 0.0
        for at in range(n * (n + 1)):
            if lift < memory.lift[at] and (done == 0.0 or memory.lift[at] < done):
                lift = memory.lift[at]
        if lift == 0.0:
            return best, rest
        arcs = 0.0
        for at in range(n * (n + 1)):
            arcs += memory.expected[at] if memory.lift[at] == lift else 0.0
        for _ in range(round(arcs)):
            best, lost = _two_sum(best, -lift)
            rest += lost
        done = lift


@leaf
def _compare(
    own: FloatArray, d: FloatArray, n: int, n_labels: int, packed: bool, memory: TreeMemory
) -> tuple[float, float]:
    """Write what arcs score beside their words' best; return what those sum to, in two parts."""
    best = rest = 0.0
    for word in range(n):
        row, chosen = word * (n + 1), word * n * n_labels
        for k in range(chosen, (word + 1) * n * n_labels):
            chosen = k if own[k] > own[chosen] else chosen
        most = own[chosen]
        best, more = _two_sum(best, most)
        rest += more
        memory.high[row + 1 + word], memory.low[row + 1 + word] = -np.inf, 0.0
        for head in range(n):
            slot, at = arc_slot(word, head, n, packed) * n_labels, row + 1 + head
            at = row if head == word else at
            top = own[slot]
            for k in range(slot + 1, slot + n_labels):
                top = max(top, own[k])
            memory.high[at], memory.low[at] = -np.inf, 0.0
            if top > -np.inf:
                memory.high[at], memory.low[at] = _two_sum(top, -most)
            mass = 1.0
            if n_labels > 1 and top > -np.inf:
                mass = 0.0
                for k in range(slot, slot + n_labels):
                    mass += np.exp(own[k] - top)
                memory.low[at] += np.log(mass)
            if len(memory.change) > 0:
                mean = 0.0
                for k in range(slot, slot + n_labels):
                    share = np.exp(own[k] - top) / mass if own[k] > -np.inf else 0.0
                    mean += share * (d[k] - d[chosen]) if share > 0.0 else 0.0
                memory.change[at] = mean
    return best, rest


@leaf
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a sum, and by how much the exact one differs."""
    total = a + b
    if np.isinf(total):
        return total, 0.0
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


@leaf
def _bring_near(n: int, memory: TreeMemory) -> float:
    """Bring arcs that are far below others nearer, so far that they are still outweighed.

    Trees with fewer of them outweigh all others as before, and among trees of as many of them
    nothing changes. Return by how many powers of the radix trees outweigh those of a root more.
    """
    high, low, lift = memory.high, memory.low, memory.lift
    size, reach, behind = n * (n + 1), 0.0, NEAR
    lift[:size] = 0.0
    for at in range(size):
        if high[at] > -NEAR:
            reach = max(reach, abs(high[at]) + abs(low[at]))
    while True:
        nearest = np.inf
        for at in range(size):
            if behind <= -high[at] < nearest:
                nearest = -high[at]
        if nearest == np.inf:
            more = n * (reach + np.log(n + 1.0)) + NEGLIGIBLE
            powers: float = np.ceil(2.0 * more / LOG_RADIX)
            return powers
        last, spread = min(1.5 * nearest, MOST_FINITE), 0.0
        for at in range(size):
            if behind <= -high[at] <= last:
                spread = max(spread, abs(high[at] + nearest) + abs(low[at]))
        distance = min(nearest, 2.0 * n * (reach + spread + np.log(n + 1.0)) + NEGLIGIBLE)
        for at in range(size):
            if behind <= -high[at] <= last and lift[at] == 0.0:
                lift[at] = nearest - distance
                high[at], more = _two_sum(high[at] + nearest, -distance)
                low[at] += more
        reach, behind = distance + spread, np.nextafter(last, np.inf)


@leaf
def _expect(n: int, memory: TreeMemory) -> bool:
    """Write the arcs' probabilities; return whether plain numbers do."""
    arcs, inverse, escapes = memory.halves.systems, memory.inverse, memory.escapes
    moves, wide = len(memory.change) > 0, len(inverse.power) > 0
    for word in range(n):
        for column in range(n + 1):
            at, way = word * (n + 1) + column, (column - 1) * n + word
            memory.expected[at] = 0.0
            if moves:
                memory.d_expected[at] = 0.0
            if column == 1 + word:
                continue
            slope = inverse.value[word] * (escapes.value[way] if column > 0 else 1.0)
            if not (slope < MOST and inverse.value[word] < MOST):
                return False
            p = arcs.value[at] * slope
            if wide:
                power = arcs.power[at] + inverse.power[word]
                p = _plain(p, power + (escapes.power[way] if column > 0 else 0.0))
            memory.expected[at] = p
            if moves and p > 0.0:
                d = memory.change[at] + inverse.tangent[word] / inverse.value[word]
                if column > 0:
                    d += escapes.tangent[way] / escapes.value[way]
                memory.d_expected[at] = p * d
    return True


@leaf
def _plain(value: float, power: float) -> float:
    """Return a wide number of at most one, rounded to zero where it is too small."""
    if power == 0.0:
        return value
    if abs(power) == 1.0:
        return value * (2.0**512 if power > 0.0 else 2.0**-512)
    return 0.0
