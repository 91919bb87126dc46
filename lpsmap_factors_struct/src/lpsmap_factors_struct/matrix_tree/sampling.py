"""Exact samples of non-projective trees: the elimination of words is undone at random.

Eliminating word k adds to the weight of every arc (i, j) the weight of the way from i through k to
j, see `lpsmap_factors_struct.matrix_tree.elimination`. In reverse, a random tree of the words
before k becomes a random tree with k: every arc passes through k with the share of that way in its
weight, independently of the others. The words whose arcs pass through k become modifiers of k. The
head of k is drawn by the weights of its arcs, among the root and the words that do not descend
from k. This is exact: over all heads that the modifiers of k may have in the smaller tree, the
products of the shares of k's arcs sum to the share of its arcs from words that do not descend from
it.

An arc's weight is its own and those of the ways through all eliminated words, so that one draw
decides through which of them it passes first, if any. After the elimination in time n^3, a draw
takes time n, and a sample a few draws for each word, unless arcs pass through many words; there are
no rejections. Updates of the inverse Laplacian (Colbourn et al. 1996; Zmigrod et al. 2021) take
time n^3, and loop-erased walks (Wilson 1996) a time that grows without bound where words prefer
each other. Only positive numbers are added, as for the sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, Scores, interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic import Found
from lpsmap_factors_struct.arc_layout import arc_slot, n_words
from lpsmap_factors_struct.matrix_tree.elimination import eliminate_words
from lpsmap_factors_struct.matrix_tree.log_partition import apply_forced, largest_sizes, top_label
from lpsmap_factors_struct.matrix_tree.weights import TreeWorkspace, sum_trees, tree_workspace
from lpsmap_factors_struct.matrix_tree.wide_numbers import RADIX, Numbers, fill, numbers_of


class _Draws(NamedTuple):
    """Workspace of the samples of sentences of up to `n` words."""

    options: Numbers
    """(n + 1,) weights of the options of a draw."""
    columns: IntArray
    """(n,) heads of words: 0 for the root, 1 more than a word otherwise."""
    through: IntArray
    """(n,) the eliminated word through which each arc passes first; -1 for none."""
    known: BoolArray
    """(n,) whether `below` is decided."""
    below: BoolArray
    """(n,) whether a word descends from the word that is added."""


class _Sentence(NamedTuple):
    """A sentence to be sampled, after the elimination of its words."""

    own: FloatArray
    """Scores of slots."""
    n: int
    n_labels: int
    packed: bool
    workspace: TreeWorkspace
    draws: _Draws


@kernel
def _draws_of(n: int, wide: bool) -> _Draws:
    """Return a workspace for up to `n` words."""
    return _Draws(
        numbers_of(n + 1, False, wide),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.bool_),
        np.empty(n, dtype=np.bool_),
    )


@leaf
def most_draws(n: int) -> int:
    """Return the maximum number of random numbers of a sample.

    Arcs to a word appear once when it is added, and again when a later word comes between. Every
    word also has a draw of its head, and one of the label.
    """
    most: int = n * (n + 1) // 2 + 2 * n
    return most


@kernel
def sample_trees(
    rows: IntArray, factors: Factors, scores: Scores, first: int, uniform: FloatArray, found: Found
) -> int:
    """Sample trees of the factors in `rows`, while there are random numbers.

    Parameters
    ----------
    rows, factors, scores
        As in a MAP kernel.
    first
        The number of samples that were drawn before, in the order of `rows`.
    uniform
        Random numbers in [0, 1), at least as many as `most_draws` of the longest sentence.
    found
        Output: every factor has the same number of samples, one after the other. Their size and
        score remain where there is no tree.

    Returns
    -------
    int
        The number of samples drawn so far.
    """
    offsets, parameters, used = factors.offsets, factors.parameters, 0
    n_samples: int = len(found.score) // len(parameters)
    longest, largest = largest_sizes(rows, factors)
    slots, plain = np.empty(largest), tree_workspace(longest, False, False)
    draws = _draws_of(longest, False)
    for number in range(first // n_samples, len(rows)):
        r = rows[number]
        own, n_labels = slots[: offsets[r + 1] - offsets[r]], int(parameters[r, 3])
        n = n_words(len(own), parameters[r, 3])
        packed, single_root = parameters[r, 0] != 0, parameters[r, 2] != 0
        if used + most_draws(n) > len(uniform):
            return max(first, number * n_samples)
        apply_forced(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, own)
        workspace, mine, total = plain, draws, np.nan
        for wide in (False, True):
            if np.isnan(total):
                workspace = tree_workspace(n, False, True) if wide else plain
                mine = _draws_of(n, True) if wide else draws
                total, _, _ = sum_trees(own, own[:0], n, n_labels, packed, single_root, workspace)
        if total == -np.inf:
            continue
        sentence = _Sentence(own, n, n_labels, packed, workspace, mine)
        if n > 0:
            eliminate_words(n, workspace.single[0], workspace.halves)
        for done in range(max(first, number * n_samples), (number + 1) * n_samples):
            if used + most_draws(n) > len(uniform):
                return done
            if interrupted():
                return len(rows) * n_samples
            used = _draw_tree(sentence, uniform, used, r * n_samples + done % n_samples, found)
    return len(rows) * n_samples


@leaf
def _draw_tree(sentence: _Sentence, uniform: FloatArray, used: int, to: int, found: Found) -> int:
    """Write a random tree and its score; return the number of random numbers used so far."""
    own, n_labels, structures = sentence.own, sentence.n_labels, found.structures
    start, columns = structures.start[to], sentence.draws.columns
    used = _draw_heads(sentence, uniform, used)
    found.score[to], structures.size[to] = 0.0, sentence.n
    for word in range(sentence.n):
        head = word if columns[word] == 0 else columns[word] - 1
        slot = arc_slot(word, head, sentence.n, sentence.packed) * n_labels
        if n_labels > 1:
            slot = _draw_label(own, slot, n_labels, uniform[used])
            used += 1
        structures.entry[start + word], structures.value[start + word] = slot, 1.0
        found.score[to] += own[slot]
    return used


@leaf
def _draw_label(own: FloatArray, slot: int, n_labels: int, uniform: float) -> int:
    """Return the slot of a random label of an arc, whose first slot is given."""
    top, mass, likeliest = top_label(own, slot, n_labels), 0.0, slot
    for k in range(slot, slot + n_labels):
        mass += np.exp(own[k] - top)
        likeliest = k if own[k] == top else likeliest
    left = uniform * mass
    for k in range(slot, slot + n_labels):
        weight = np.exp(own[k] - top)
        if left < weight:
            return k
        left -= weight
    return likeliest


@leaf
def _draw_heads(sentence: _Sentence, uniform: FloatArray, used: int) -> int:
    """Write the heads of a random tree; return the number of random numbers used so far."""
    halves, draws = sentence.workspace.halves, sentence.draws
    columns, through, systems = draws.columns, draws.through, halves.systems
    for word in range(sentence.n):
        n_apart = _find_descendants(word, draws)
        at = halves.first[1] + word * (sentence.n + 1)
        without_root = sentence.workspace.single[0] and n_apart > 0
        for column in range(word + 1):
            excluded = without_root if column == 0 else draws.below[column - 1]
            weight = 0.0 if excluded else systems.value[at + column]
            _put(draws.options, column, weight, _power(systems, at + column))
        columns[word] = _draw(draws.options, word + 1, uniform[used])
        through[word] = _draw_way(sentence, word, columns[word], word + 1, uniform[used + 1])
        used += 2
        for i in range(word):
            if through[i] == word:
                columns[i] = word + 1
                through[i] = _draw_way(sentence, i, word + 1, word + 1, uniform[used])
                used += 1
    return used


@leaf
def _find_descendants(word: int, draws: _Draws) -> int:
    """Write which words before `word` descend from it; return the number of the others."""
    columns, through, known, below = draws.columns, draws.through, draws.known, draws.below
    n_apart = word
    for i in range(word):
        known[i] = below[i] = through[i] == word
    for i in range(word):
        end = i
        while not known[end] and columns[end] > 0:
            end = columns[end] - 1
        descends, step = known[end] and below[end], i
        n_apart -= 1 if descends else 0
        while not known[step]:
            known[step], below[step] = True, descends
            if columns[step] > 0:
                step = columns[step] - 1
    return n_apart


@leaf
def _draw_way(sentence: _Sentence, word: int, column: int, first: int, uniform: float) -> int:
    """Return the word from `first` on through which an arc passes first; -1 for none."""
    n, halves, options = sentence.n, sentence.workspace.halves, sentence.draws.options
    systems, width = halves.systems, n + 1
    row, value, at = halves.first[1] + word * width, systems.value, word * width + column
    _put(options, 0, value[at], _power(systems, at))
    for k in range(first, n):
        at = halves.first[1] + k * width
        weight = value[row + k + 1] / value[at + k + 1] * value[at + column]
        power = _power(systems, row + k + 1) - _power(systems, at + k + 1)
        _put(options, k - first + 1, weight, power + _power(systems, at + column))
    chosen = _draw(options, n - first + 1, uniform)
    return first + chosen - 1 if chosen > 0 else -1


@leaf
def _power(numbers: Numbers, at: int) -> float:
    """Return the power of a number."""
    power: float = numbers.power[at] if len(numbers.power) > 0 else 0.0
    return power


@leaf
def _put(options: Numbers, k: int, weight: float, power: float) -> None:
    """Write the weight of an option."""
    if len(options.power) > 0:
        fill(options, k, 1, weight, 0.0, power)
    else:
        options.value[k] = weight


@leaf
def _draw(options: Numbers, n: int, uniform: float) -> int:
    """Return one of `n` options, with probability proportional to its weight."""
    value, total = options.value, 0.0
    if len(options.power) > 0:
        _scale(options, n)
    for k in range(n):
        total += value[k]
    left, likeliest = uniform * total, 0
    for k in range(n):
        if left < value[k]:
            return k
        left -= value[k]
        if value[k] > value[likeliest]:
            likeliest = k
    return likeliest  # the weights sum to less than their total because of rounding


@leaf
def _scale(options: Numbers, n: int) -> None:
    """Express wide weights as multiples of one power, without those that are negligible."""
    most = -np.inf
    for k in range(n):
        if options.value[k] > 0.0:
            most = max(most, options.power[k])
    for k in range(n):
        behind = most - options.power[k]
        if behind > 0.0:
            options.value[k] *= 1.0 / RADIX if behind == 1.0 else 0.0
