"""Weights of the arcs of a sentence: exponentials of scores of any magnitude."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_dynamic import two_sum
from lpsmap_factors_struct.arc_layout import arc_slot
from lpsmap_factors_struct.matrix_tree.duals import (
    UNIT,
    ReducedScores,
    reduce_tree_scores,
    tree_scores_workspace,
)
from lpsmap_factors_struct.matrix_tree.elimination import Halves, eliminate_trees, halves_of
from lpsmap_factors_struct.matrix_tree.expansions import Expansion, plus
from lpsmap_factors_struct.matrix_tree.inverse import Inverse, expect_by_inverse, inverse_of
from lpsmap_factors_struct.matrix_tree.wide_numbers import (
    LOG_RADIX,
    Numbers,
    log_from,
    numbers_of,
    put_exp,
)

MAX_DERIVATIVE = 1e270
"""Largest derivative for which plain numbers are accurate: they round terms below 1e-299 to 0."""

NEGLIGIBLE_LOG = 1000.0
"""Logarithm of the ratio of weights beyond which the lighter trees are negligible."""


class TreeWorkspace(NamedTuple):
    """Workspace for sentences of up to `n` words.

    Tables have a row for every word: its arc from the root, then the arcs from all words.
    """

    laplacian: Inverse
    halves: Halves
    inverse: Numbers
    escapes: Numbers
    near: ReducedScores
    """For wide numbers, the scores of arcs relative to their word's best; otherwise empty."""
    change: FloatArray
    """Changes of the arcs' scores."""
    expected: FloatArray
    """Probabilities of arcs."""
    d_expected: FloatArray
    """Changes of the probabilities; empty if they are not needed."""
    single: BoolArray
    """Whether a single root is enforced as a limit. Wide numbers enforce it by the weights."""


@kernel
def tree_workspace(n: int, moves: bool, wide: bool) -> TreeWorkspace:
    """Return a workspace for up to `n` words; see `numbers_of`."""
    size = n * (n + 1)
    return TreeWorkspace(
        inverse_of(0 if wide else n, moves),
        halves_of(n, moves, wide),
        numbers_of(n, moves, wide),
        numbers_of(n * n, moves, wide),
        tree_scores_workspace(n if wide else 0),
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
    workspace: TreeWorkspace,
) -> tuple[float, float, float]:
    """Write the arcs' probabilities, and their changes along `d`.

    Returns
    -------
    tuple of float
        The log-partition function, -inf if there is no tree, NaN if plain numbers do not suffice;
        its rounding error; and its excess over the sum of the words' best scores, or -inf.
    """
    wide = len(workspace.inverse.power) > 0
    if n == 0:
        return 0.0, 0.0, -np.inf
    workspace.single[0] = single_root and not wide
    best = _weigh(own, d, n, n_labels, packed, workspace)
    behind = back = 0.0
    if wide:
        found, more, behind, back = _weigh_near(n, single_root, workspace)
        if not found:
            return -np.inf, 0.0, -np.inf
        best = plus(best, more)
    log, power = np.nan, 0.0
    if not (wide or single_root):
        log = expect_by_inverse(
            n,
            workspace.halves.systems.value,
            workspace.change,
            workspace.laplacian,
            workspace.expected,
            workspace.d_expected,
        )
    if np.isnan(log):
        log, power = eliminate_trees(
            n, workspace.single[0], workspace.halves, workspace.inverse, workspace.escapes
        )
        if not (log > -np.inf and _expect(n, workspace)):
            return (-np.inf if wide else np.nan), 0.0, -np.inf
    trees = log_from(log, power + behind) + back
    unit = UNIT if wide else 1.0
    total, rest = two_sum(best[0] / unit, trees)
    return total, rest + (best[1] + best[2]) / unit, trees


@leaf
def _weigh_near(
    n: int, single_root: bool, workspace: TreeWorkspace
) -> tuple[bool, Expansion, float, float]:
    """Write the arcs' weights as wide numbers.

    Returns
    -------
    tuple
        Whether there is a tree; the best tree's score relative to the words' best scores; and two
        corrections of the logarithm of the sum over trees: a power of the radix, and a number.
    """
    near, systems = workspace.near, workspace.halves.systems
    powers = np.ceil((NEGLIGIBLE_LOG + n * np.log(n + 1.0)) / LOG_RADIX)
    found, best, cut, uncut = reduce_tree_scores(n, single_root, powers * LOG_RADIX, near)
    if found:
        for at in range(n * (n + 1)):
            change = workspace.change[at] if len(workspace.change) > 0 else 0.0
            put_exp(systems, at, near.high[at], near.low[at], change)
            systems.power[at] -= powers * near.cuts[at]
    return found, best, powers * cut, uncut


@leaf
def _weigh(
    own: FloatArray, d: FloatArray, n: int, n_labels: int, packed: bool, workspace: TreeWorkspace
) -> Expansion:
    """Write the arcs' weights relative to their words' best labels, or scores for wide numbers.

    Returns the sum of the best labels' scores. For wide numbers, scores are in multiples of
    `1 / UNIT`.
    """
    wide, best = len(workspace.inverse.power) > 0, (0.0, 0.0, 0.0)
    unit = UNIT if wide else 1.0
    for word in range(n):
        row, chosen = word * (n + 1), word * n * n_labels
        for k in range(chosen, (word + 1) * n * n_labels):
            chosen = k if own[k] > own[chosen] else chosen
        most = own[chosen]
        best = plus(best, (most * unit, 0.0, 0.0))
        _put(workspace, row + 1 + word, -np.inf, 0.0, 0.0, 0.0)
        for head in range(n):
            slot, at = arc_slot(word, head, n, packed) * n_labels, row + 1 + head
            at = row if head == word else at
            top, log_mass, change = _sum_labels(own, d, slot, n_labels, chosen)
            high = low = -np.inf
            if top > -np.inf:
                high, low = two_sum(top * unit, -most * unit)
            _put(workspace, at, high, low, log_mass, change)
    return best


@leaf
def _sum_labels(
    own: FloatArray, d: FloatArray, slot: int, n_labels: int, chosen: int
) -> tuple[float, float, float]:
    """Return an arc's best label, the log-sum of its labels relative to it, and their change."""
    top: float = own[slot]
    for k in range(slot + 1, slot + n_labels):
        top = max(top, own[k])
    mass, change = 1.0, 0.0
    if top == -np.inf:
        return top, 0.0, 0.0
    if n_labels == 1:
        return top, 0.0, d[slot] - d[chosen] if len(d) > 0 else 0.0
    mass = 0.0
    for k in range(slot, slot + n_labels):
        mass += np.exp(own[k] - top)
    for k in range(slot, slot + n_labels if len(d) > 0 else slot):
        share = np.exp(own[k] - top) / mass
        change += share * (d[k] - d[chosen]) if share > 0.0 else 0.0
    return top, np.log(mass), change


@leaf
def _put(
    workspace: TreeWorkspace, at: int, high: float, low: float, log_mass: float, change: float
) -> None:
    """Write an arc's weight, or its score for wide numbers."""
    if len(workspace.change) > 0:
        workspace.change[at] = change
    if len(workspace.inverse.power) == 0:
        put_exp(workspace.halves.systems, at, high, low + log_mass, change)
        return
    lacks = workspace.near.lacks
    lacks[0, at], lacks[1, at], lacks[2, at] = high, 0.0, 0.0
    if high > -np.inf:
        lacks[1, at], lacks[2, at] = low, log_mass * UNIT


@leaf
def _expect(n: int, workspace: TreeWorkspace) -> bool:
    """Write the arcs' probabilities; return whether plain numbers suffice."""
    arcs, inverse, escapes = workspace.halves.systems, workspace.inverse, workspace.escapes
    moves, wide = len(workspace.change) > 0, len(inverse.power) > 0
    for word in range(n):
        for column in range(n + 1):
            at, way = word * (n + 1) + column, (column - 1) * n + word
            workspace.expected[at] = 0.0
            if moves:
                workspace.d_expected[at] = 0.0
            if column == 1 + word:
                continue
            slope = inverse.value[word] * (escapes.value[way] if column > 0 else 1.0)
            if not (slope < MAX_DERIVATIVE and inverse.value[word] < MAX_DERIVATIVE):
                return False
            p = arcs.value[at] * slope
            if wide:
                power = arcs.power[at] + inverse.power[word]
                p = _plain(p, power + (escapes.power[way] if column > 0 else 0.0))
            workspace.expected[at] = p
            if moves and p > 0.0:
                d = workspace.change[at] + inverse.tangent[word] / inverse.value[word]
                if column > 0:
                    d += escapes.tangent[way] / escapes.value[way]
                workspace.d_expected[at] = p * d
    return True


@leaf
def _plain(value: float, power: float) -> float:
    """Return a wide number of at most 1 as a float, rounded to zero if it is too small."""
    if power == 0.0:
        return value
    if abs(power) == 1.0:
        return value * (2.0**512 if power > 0.0 else 2.0**-512)
    return 0.0
