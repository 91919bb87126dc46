"""The k best non-projective trees, by partitions of the set of all trees (Lawler 1972).

The best tree of a set is removed from it. The other trees are divided by the first word with
another arc: the arcs of the words before it are fixed, and its own is excluded. The best tree of
each of these sets is found by the algorithm of Chu, Liu & Edmonds, in time n^2, and the best of
them all is the next one. A rank takes time n^3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, Scores, interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import Found
from lpsmap_factors_struct.arc_layout import arc_slot, best_arcs, n_words
from lpsmap_factors_struct.arrays import first_maximum
from lpsmap_factors_struct.chu_liu_edmonds import (
    ArborescenceWorkspace,
    arborescence_workspace,
    maximum_arborescence,
)
from lpsmap_factors_struct.matrix_tree.duals import UNIT
from lpsmap_factors_struct.matrix_tree.expansions import exceeds, plus
from lpsmap_factors_struct.matrix_tree.log_partition import apply_forced


class _Sentence(NamedTuple):
    """A sentence, and the set of trees whose best one is sought."""

    own: FloatArray
    """Scores of slots; forced slots have 0."""
    within: FloatArray
    """The same in multiples of `1 / UNIT`, and `bar` for slots that the set excludes."""
    bar: float
    """A score that outweighs all others."""
    n: int
    n_labels: int
    packed: bool
    single_root: bool
    arcs: FloatArray
    """(n * n,) the scores of the arcs' best labels."""
    workspace: ArborescenceWorkspace


class _Candidates(NamedTuple):
    """Disjoint sets of trees, each with its best tree. The last entry is the latest rank."""

    score: FloatArray
    """(k + 1, 3) scores of the best trees, as expansions in multiples of `1 / UNIT`."""
    slots: IntArray
    """(k + 1, n) their slots."""
    fixed: IntArray
    """(k + 1,) the number of words with a fixed arc. The next word has excluded slots."""
    excluded: IntArray
    """(k + 1,) the last of them, as a position in `slot`; -1 for none."""
    slot: IntArray
    """Excluded slots."""
    before: IntArray
    """The position of the slot of the same word that was excluded before it; -1 for none."""


@kernel
def rank_trees(rows: IntArray, factors: Factors, scores: Scores, found: Found) -> None:
    """Find the best trees of the factors in `rows`.

    Parameters
    ----------
    rows, factors, scores
        As in a MAP kernel.
    found
        Output: every factor has the same number of trees, one after the other. Their size and score
        remain where there are not as many.
    """
    offsets, parameters = factors.offsets, factors.parameters
    k = len(found.score) // len(parameters)
    for r in rows:
        arity = offsets[r + 1] - offsets[r]
        n, n_labels = n_words(arity, parameters[r, 3]), int(parameters[r, 3])
        own = np.empty(arity)
        apply_forced(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, own)
        total = 0.0
        for i in range(arity):
            total += abs(own[i]) * UNIT if own[i] > -np.inf else 0.0
        sentence = _Sentence(
            own,
            np.empty(arity),
            -4.0 * total - 1.0,
            n,
            n_labels,
            parameters[r, 0] != 0,
            parameters[r, 2] != 0,
            np.empty(n * n),
            arborescence_workspace(n),
        )
        first = r * k
        if n == 0:
            found.score[first], found.structures.size[first] = 0.0, 0
        else:
            _rank(sentence, _candidates_of(k, n), first, found)


@kernel
def _candidates_of(k: int, n: int) -> _Candidates:
    """Return a workspace for the `k` best trees of `n` words."""
    return _Candidates(
        np.empty((k + 1, 3)),
        np.empty((k + 1, n), dtype=np.int64),
        np.empty(k + 1, dtype=np.int64),
        np.empty(k + 1, dtype=np.int64),
        np.empty(k * n, dtype=np.int64),
        np.empty(k * n, dtype=np.int64),
    )


@leaf
def _rank(sentence: _Sentence, candidates: _Candidates, first: int, found: Found) -> None:
    """Write the best trees of a sentence, the first one at row `first`."""
    k, n, structures = len(candidates.fixed) - 1, sentence.n, found.structures
    candidates.excluded[k], candidates.fixed[k] = -1, 0
    _reset(sentence, candidates)
    live, used = _add_best(sentence, candidates, 0, 0, -1), 0
    for to in range(first, first + k):
        if live == 0 or interrupted():
            return
        live = _take_best(candidates, live)
        start, found.score[to], structures.size[to] = structures.start[to], 0.0, n
        for word in range(n):
            slot = candidates.slots[k, word]
            structures.entry[start + word], structures.value[start + word] = slot, 1.0
            found.score[to] += sentence.own[slot]
        if to < first + k - 1:
            live, used = _divide(sentence, candidates, live, used)


@leaf
def _reset(sentence: _Sentence, candidates: _Candidates) -> None:
    """Exclude slots that are forbidden, and those that the set of the latest rank excludes."""
    own, within, bar, last = sentence.own, sentence.within, sentence.bar, len(candidates.fixed) - 1
    for i in range(len(own)):
        within[i] = own[i] * UNIT if own[i] > -np.inf else bar
    for word in range(candidates.fixed[last]):
        _fix(sentence, word, candidates.slots[last, word])
    at = candidates.excluded[last]
    while at >= 0:
        within[candidates.slot[at]] = bar
        at = candidates.before[at]


@leaf
def _fix(sentence: _Sentence, word: int, slot: int) -> None:
    """Exclude all slots of a word but one."""
    width = sentence.n * sentence.n_labels
    sentence.within[word * width : (word + 1) * width] = sentence.bar
    sentence.within[slot] = sentence.own[slot] * UNIT


@leaf
def _divide(sentence: _Sentence, candidates: _Candidates, live: int, used: int) -> tuple[int, int]:
    """Divide the set of the latest rank, without its best tree."""
    last = len(candidates.fixed) - 1
    first = candidates.fixed[last]
    _reset(sentence, candidates)
    for word in range(first, sentence.n):
        slot = candidates.slots[last, word]
        sentence.within[slot] = sentence.bar
        candidates.slot[used] = slot
        candidates.before[used] = candidates.excluded[last] if word == first else -1
        live = _add_best(sentence, candidates, live, word, used)
        used += 1
        _fix(sentence, word, slot)
    return live, used


@leaf
def _add_best(
    sentence: _Sentence, candidates: _Candidates, live: int, fixed: int, excluded: int
) -> int:
    """Add the current set and its best tree, unless there is none; return the number of sets.

    The set replaces the one with the worst tree if there are already as many as ranks.
    """
    n, last = sentence.n, len(candidates.fixed) - 1
    best_arcs(sentence.within, n, sentence.n_labels, sentence.packed, sentence.arcs)
    maximum_arborescence(sentence.arcs, n, sentence.single_root, sentence.workspace)
    to, score = live, (0.0, 0.0, 0.0)
    for word in range(n):
        slot = arc_slot(word, sentence.workspace.head[word], n, sentence.packed)
        slot *= sentence.n_labels
        best = sentence.within[first_maximum(sentence.within, slot, slot + sentence.n_labels)]
        if best == sentence.bar:
            return live
        score = plus(score, (best, 0.0, 0.0))
    if live == last:
        to = _extreme(candidates, live, False)
        if not exceeds(score, _score_of(candidates, to)):
            return live
    candidates.score[to, 0], candidates.score[to, 1], candidates.score[to, 2] = score
    candidates.fixed[to], candidates.excluded[to] = fixed, excluded
    for word in range(n):
        slot = arc_slot(word, sentence.workspace.head[word], n, sentence.packed)
        slot *= sentence.n_labels
        candidates.slots[to, word] = first_maximum(sentence.within, slot, slot + sentence.n_labels)
    return min(live + 1, last)


@leaf
def _take_best(candidates: _Candidates, live: int) -> int:
    """Move the set with the best tree to the end; return the number of other sets."""
    best, last = _extreme(candidates, live, True), len(candidates.fixed) - 1
    _copy(candidates, best, last)
    _copy(candidates, live - 1, best)
    return live - 1


@leaf
def _copy(candidates: _Candidates, start: int, to: int) -> None:
    for i in range(3):
        candidates.score[to, i] = candidates.score[start, i]
    for word in range(candidates.slots.shape[1]):
        candidates.slots[to, word] = candidates.slots[start, word]
    candidates.fixed[to], candidates.excluded[to] = (
        candidates.fixed[start],
        candidates.excluded[start],
    )


@leaf
def _extreme(candidates: _Candidates, live: int, best: bool) -> int:
    """Return the set with the best tree, or the worst."""
    chosen = 0
    for i in range(1, live):
        mine, other = _score_of(candidates, i), _score_of(candidates, chosen)
        if exceeds(mine, other) if best else exceeds(other, mine):
            chosen = i
    return chosen


@leaf
def _score_of(candidates: _Candidates, i: int) -> tuple[float, float, float]:
    return candidates.score[i, 0], candidates.score[i, 1], candidates.score[i, 2]
