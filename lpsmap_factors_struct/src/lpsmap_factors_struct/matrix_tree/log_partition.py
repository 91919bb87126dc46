"""Sums over all non-projective trees of a sentence.

Scores are measured from the best score of their word, without rounding, so that masks do no harm,
whether trees can avoid them or not. Plain numbers suffice where trees are likely enough among all
choices of heads, see `lpsmap_factors_struct.matrix_tree.elimination`. Otherwise scores are reduced
by `lpsmap_factors_struct.matrix_tree.duals`, and wide numbers are used.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors, Scores, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray, interruptible
from lpsmap_dynamic import Beliefs
from lpsmap_factors_struct.arc_layout import arc_slot, n_words
from lpsmap_factors_struct.matrix_tree.elimination import entropy_of_trees
from lpsmap_factors_struct.matrix_tree.inverse import keep_inverse, move_by_kept
from lpsmap_factors_struct.matrix_tree.weights import TreeWorkspace, sum_trees, tree_workspace

MAX_CANCELLATION = 1e4
"""Maximum ratio of the terms of an entropy to the entropy, which is their difference."""


class MatrixTree:
    """Log-partition functions of non-projective dependency trees; see `LogPartition`.

    Parameters
    ----------
    offsets, parameters
        The fields of the factors' `lpsmap_core.Factors`.
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
        words = max([n_words(k, 1) for k in np.diff(offsets).tolist()], default=0)
        plain = not parameters[:, 2].any() and (parameters[:, 3] == 1.0).all()
        self._kept_size = words * (2 * words + 1) if plain else 0
        self._kept = np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)

    @interruptible
    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""
        n = len(self._factors.parameters)
        m = np.zeros(len(scores.eta_u))
        remainder = np.zeros(n)
        found = Beliefs(np.zeros(n), np.zeros(n), m, np.empty(0), remainder)
        kept = np.empty(n * self._kept_size)
        _beliefs(rows, self._factors, scores, *found[:3], remainder, kept)
        self._kept = rows.copy(), scores.eta_u.copy(), kept
        return found

    @interruptible
    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Return the change of the marginals along a change of the scores."""
        product, (known, eta_u, kept) = np.zeros(len(scores.eta_u)), self._kept
        if not (np.array_equal(known, rows) and np.array_equal(eta_u, scores.eta_u)):
            kept = kept[:0]
        _hessian_products(rows, self._factors, scores, direction.eta_u, product, kept)
        return Scores(product, np.empty(0))


@kernel
def _beliefs(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    log_partition: FloatArray,
    entropy: FloatArray,
    m: FloatArray,
    remainder: FloatArray,
    kept: FloatArray,
) -> None:
    """Write log-partition functions, entropies and marginals of factors."""
    offsets, parameters = factors.offsets, factors.parameters
    longest, largest = largest_sizes(rows, factors)
    slots, nothing, workspace = (
        np.empty(largest),
        np.empty(0),
        tree_workspace(longest, False, False),
    )
    for r in rows:
        own, mine = slots[: offsets[r + 1] - offsets[r]], m[offsets[r] : offsets[r + 1]]
        packed, single_root = parameters[r, 0] != 0, parameters[r, 2] != 0
        n_labels, n = int(parameters[r, 3]), n_words(len(own), parameters[r, 3])
        apply_forced(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, own)
        entropy[r], mine[:] = 0.0, 0.0
        used, total, rest, trees = workspace, np.nan, 0.0, -np.inf
        for wide in (False, True):  # a loop, so that the sums are compiled once
            if np.isnan(total):
                used = tree_workspace(n, False, True) if wide else workspace
                total, rest, trees = sum_trees(own, nothing, n, n_labels, packed, single_root, used)
        log_partition[r], remainder[r] = total, rest
        if n > 0 and len(kept) > 0:
            size = len(kept) // len(parameters)
            mine_kept = kept[r * size : (r + 1) * size]
            keep_inverse(n, used.halves.systems.value, used.laplacian, mine_kept)
        if trees > -np.inf:
            _spread(used, own, n, n_labels, packed, mine)
            below = _below_best(own, mine, n, n_labels)
            entropy[r] = trees + below
            if not below <= MAX_CANCELLATION * (1.0 + entropy[r]) or len(used.inverse.power) > 0:
                _label_entropies(own, n, n_labels, packed, used.expected)
                entropy[r] = entropy_of_trees(n, used.single[0], used.halves, used.expected)
            entropy[r] = max(entropy[r], 0.0)


@kernel
def _hessian_products(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    direction: FloatArray,
    product: FloatArray,
    kept: FloatArray,
) -> None:
    """Write the products of a direction with the Hessians of log-partition functions."""
    offsets, parameters = factors.offsets, factors.parameters
    longest, largest = largest_sizes(rows, factors)
    slots, workspace = np.empty(largest), tree_workspace(longest, True, False)
    for r in rows:
        own = slots[: offsets[r + 1] - offsets[r]]
        d, mine = direction[offsets[r] : offsets[r + 1]], product[offsets[r] : offsets[r + 1]]
        packed, single_root = parameters[r, 0] != 0, parameters[r, 2] != 0
        n_labels, n = int(parameters[r, 3]), n_words(len(own), parameters[r, 3])
        mine[:] = 0.0
        size = len(kept) // len(parameters)
        inverse = kept[r * size : (r + 1) * size]
        if n > 0 and len(inverse) > 0 and not np.isnan(inverse[0]):
            _arrange(d, n, packed, inverse, workspace.change)
            move_by_kept(n, inverse, workspace.change, workspace.laplacian, workspace.d_expected)
            _spread_tangent(workspace, own, d, n, n_labels, packed, mine)
            continue
        apply_forced(scores.eta_u[offsets[r] : offsets[r + 1]], n, n_labels, own)
        used, total, trees = workspace, np.nan, -np.inf
        for wide in (False, True):
            if np.isnan(total):
                used = tree_workspace(n, True, True) if wide else workspace
                total, _, trees = sum_trees(own, d, n, n_labels, packed, single_root, used)
        if trees > -np.inf:
            _spread_tangent(used, own, d, n, n_labels, packed, mine)


@leaf
def largest_sizes(rows: IntArray, factors: Factors) -> tuple[int, int]:
    """Return the largest numbers of words and of slots."""
    words, slots = 0, 0
    for r in rows:
        arity = factors.offsets[r + 1] - factors.offsets[r]
        words, slots = max(words, n_words(arity, factors.parameters[r, 3])), max(slots, arity)
    return words, slots


@leaf
def apply_forced(eta_u: FloatArray, n: int, n_labels: int, own: FloatArray) -> None:
    """Copy the scores. A word with an arc of score +inf keeps only that arc."""
    for word in range(n):
        forced = 0
        for k in range(word * n * n_labels, (word + 1) * n * n_labels):
            if eta_u[k] == np.inf:
                forced += 1
        for k in range(word * n * n_labels, (word + 1) * n * n_labels):
            own[k] = eta_u[k]
            if forced > 0:
                own[k] = 0.0 if forced == 1 and eta_u[k] == np.inf else -np.inf


# -------------------------------------------------------------------- slots


@leaf
def _arrange(d: FloatArray, n: int, packed: bool, weights: FloatArray, change: FloatArray) -> None:
    """Write the changes of arcs without labels, relative to that of the word's best arc.

    A change of all arcs of a word changes no marginal, but adds rounding.
    """
    for word in range(n):
        row, best = word * (n + 1), 0
        for head in range(n):
            at = 0 if head == word else 1 + head
            change[row + at] = d[arc_slot(word, head, n, packed)]
            best = at if weights[row + at] > weights[row + best] else best
        most = change[row + best]
        for at in range(n + 1):
            change[row + at] -= most
        change[row + 1 + word] = 0.0


@leaf
def _below_best(own: FloatArray, m: FloatArray, n: int, n_labels: int) -> float:
    """Return the expected difference of a tree's score from the sum of the words' best scores."""
    total = 0.0
    for word in range(n):
        first, last, most = word * n * n_labels, (word + 1) * n * n_labels, -np.inf
        for k in range(first, last):
            most = max(most, own[k])
        for k in range(first, last):
            if m[k] > 0.0:
                total += m[k] * (most - own[k])
    return total


@leaf
def _label_entropies(
    own: FloatArray, n: int, n_labels: int, packed: bool, entropies: FloatArray
) -> None:
    """Write for each arc the entropy of its label."""
    for word in range(n):
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            top, mass, entropy = top_label(own, slot, n_labels), 0.0, 0.0
            for k in range(slot, slot + n_labels):
                if own[k] > -np.inf:
                    mass += np.exp(own[k] - top)
            for k in range(slot, slot + n_labels):
                share = np.exp(own[k] - top) / mass if own[k] > -np.inf else 0.0
                if share > 0.0:
                    entropy -= share * np.log(share)
            entropies[word * (n + 1) + (0 if head == word else 1 + head)] = entropy
        entropies[word * (n + 1) + 1 + word] = 0.0


@leaf
def top_label(own: FloatArray, slot: int, n_labels: int) -> float:
    """Return the best score of an arc's labels."""
    top: float = own[slot]
    for k in range(slot + 1, slot + n_labels):
        top = max(top, own[k])
    return top


@leaf
def _spread(
    workspace: TreeWorkspace, own: FloatArray, n: int, n_labels: int, packed: bool, m: FloatArray
) -> None:
    """Write the marginals of slots: the probability of an arc, divided among its labels."""
    for word in range(n):
        for head in range(n):
            p = min(workspace.expected[word * (n + 1) + (0 if head == word else 1 + head)], 1.0)
            slot = arc_slot(word, head, n, packed) * n_labels
            if n_labels == 1:
                m[slot] = p
            elif p > 0.0:
                top, mass = top_label(own, slot, n_labels), 0.0
                for k in range(slot, slot + n_labels):
                    m[k] = np.exp(own[k] - top)
                    mass += m[k]
                for k in range(slot, slot + n_labels):
                    m[k] *= p / mass


@leaf
def _spread_tangent(
    workspace: TreeWorkspace,
    own: FloatArray,
    d: FloatArray,
    n: int,
    n_labels: int,
    packed: bool,
    product: FloatArray,
) -> None:
    """Write the changes of the marginals of slots."""
    for word in range(n):
        for head in range(n):
            arc = word * (n + 1) + (0 if head == word else 1 + head)
            slot = arc_slot(word, head, n, packed) * n_labels
            p, dp = workspace.expected[arc], workspace.d_expected[arc]
            if n_labels == 1:
                product[slot] = dp
            elif p > 0.0:
                top, mass, mean = top_label(own, slot, n_labels), 0.0, 0.0
                for k in range(slot, slot + n_labels):
                    mass += np.exp(own[k] - top)
                for k in range(slot, slot + n_labels):
                    share = np.exp(own[k] - top) / mass
                    mean += share * (d[k] - d[slot]) if share > 0.0 else 0.0
                for k in range(slot, slot + n_labels):
                    share = np.exp(own[k] - top) / mass
                    if share > 0.0:
                        product[k] = share * (dp + p * (d[k] - d[slot] - mean))
