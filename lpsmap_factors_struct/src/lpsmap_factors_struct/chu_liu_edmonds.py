"""The algorithm of Chu, Liu and Edmonds: the best non-projective dependency tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import first_maximum


class ArborescenceWorkspace(NamedTuple):
    """Workspace for sentences of up to ``n`` words.

    Nodes ``0 .. n - 1`` are the words; later nodes are contracted cycles. The dependent of an arc
    is a node. Its head is a single word, or the root (position ``n``).
    """

    head: IntArray
    """For each node, its best head among the root and the words outside the node."""
    weight: FloatArray
    """For each node, the score of the arc from that head."""
    seen: IntArray
    """For each node, one plus the word whose search reached it; 0 if it was not reached."""
    sibling: IntArray
    """For each contracted node, the next node on its cycle."""
    child: IntArray
    """For each cycle, one of its nodes."""
    word: IntArray
    """For each node, one of its words."""
    label: IntArray
    """For each word, the outermost node that contains it."""
    follower: IntArray
    """For each word, the next word of its outermost node. The words of a node form a ring."""
    rows: FloatArray
    """For each cycle, the ``n + 1`` scores of the arcs that enter it."""


@kernel
def arborescence_workspace(n: int) -> ArborescenceWorkspace:
    """Return a workspace for sentences of up to `n` words."""
    nodes = 2 * n
    return ArborescenceWorkspace(
        head=np.empty(nodes, dtype=np.int64),
        weight=np.empty(nodes),
        seen=np.empty(nodes, dtype=np.int64),
        sibling=np.empty(nodes, dtype=np.int64),
        child=np.empty(nodes, dtype=np.int64),
        word=np.empty(nodes, dtype=np.int64),
        label=np.empty(n, dtype=np.int64),
        follower=np.empty(n, dtype=np.int64),
        rows=np.empty(n * (n + 1)),
    )


@leaf
def maximum_arborescence(
    scores: FloatArray, n: int, single_root: bool, workspace: ArborescenceWorkspace
) -> int:
    """Find the best dependency tree of `n` words, in O(n^2).

    Maximises the sum of ``scores[m * n + heads[m]]`` over all trees. In the algorithm of Chu & Liu
    (1965) and Edmonds (1967), every node takes its best head, and a cycle becomes one node. As in
    Tarjan's (1977) dense variant, the row of arcs that enter a cycle is the maximum of its nodes'
    rows, each reduced by the score of the arc that it replaces. The search follows one path of
    heads at a time (Gabow et al. 1986), and finds the best head of every node once. Columns are
    never merged: the heads in a row are single words, without the words of the node itself.

    Arcs with huge negative scores are avoided where possible, and cost the others no precision:
    they enter a difference only for an arc that is itself avoided, or unavoidable.

    Parameters
    ----------
    scores
        ``n * n`` finite scores in packed layout: of word h as head of word m at ``m * n + h``, of
        the root as head of m at ``m * n + m``.
    n
        Number of words.
    single_root
        Whether exactly one word hangs from the root. Trees are then compared by their number of
        root arcs first and by score second: a node takes the root only if it contains all words.
        Edmonds' proof only requires that scores can be added and compared, which holds for such
        pairs. Hence this is exact, and needs no large penalty, which would cost precision.
    workspace
        On return, ``workspace.head[:n]`` are the words' heads. The root is given as the word
        itself. Ties are always broken in the same way.

    Returns
    -------
    int
        The number of nodes: words and cycles. ``child`` and ``sibling`` list the nodes of a cycle.
        The multiplier of its set of words in the linear program (Edmonds 1967) is minus its
        ``weight``.
    """
    # Each field is read once: passing the tuple to a kernel costs a reference count per array.
    head, weight, seen, sibling, child, word, label, follower, rows = workspace
    for i in range(n):
        seen[i], word[i], label[i], follower[i] = 0, i, i, i
        best = _best_of_word(scores, i, n, single_root)
        weight[i] = scores[i * n + best]
        head[i] = n if best == i else best
    nodes = n
    for start in range(n):
        node = label[start]
        if seen[node] != 0:
            continue
        while True:
            seen[node] = start + 1
            if head[node] == n:
                break
            above = label[head[node]]
            if seen[above] == 0:
                node = above
            elif seen[above] != start + 1:
                break  # an earlier path leads from here to the root
            else:
                node, child[nodes] = nodes, above
                _contract(
                    node, n, scores, rows, head, weight, sibling, child, word, label, follower
                )
                best = _best_of_cycle(rows, node, n, single_root)
                weight[node] = rows[(node - n) * (n + 1) + best]
                head[node] = best
                nodes += 1
    _expand(nodes, n, scores, rows, head, weight, sibling, child)
    for i in range(n):
        head[i] = i if head[i] == n else head[i]
    return nodes


@leaf
def _best_of_word(scores: FloatArray, word: int, n: int, single_root: bool) -> int:
    """Return a word's best head; the word itself stands for the root."""
    begin = word * n
    if not single_root or n == 1:
        return first_maximum(scores, begin, begin + n) - begin
    if word == 0:
        return first_maximum(scores, begin + 1, begin + n) - begin
    before = first_maximum(scores, begin, begin + word)
    if word == n - 1:
        return before - begin
    after = first_maximum(scores, begin + word + 1, begin + n)
    return (after if scores[after] > scores[before] else before) - begin


@leaf
def _best_of_cycle(rows: FloatArray, cycle: int, n: int, single_root: bool) -> int:
    """Return a cycle's best head; `n` stands for the root."""
    begin = (cycle - n) * (n + 1)
    best = first_maximum(rows, begin, begin + n)
    if rows[best] == -np.inf:  # the cycle contains all words
        return n
    return n if not single_root and rows[begin + n] > rows[best] else best - begin


@leaf
def _contract(
    cycle: int,
    n: int,
    scores: FloatArray,
    rows: FloatArray,
    head: IntArray,
    weight: FloatArray,
    sibling: IntArray,
    child: IntArray,
    word: IntArray,
    label: IntArray,
    follower: IntArray,
) -> None:
    """Contract the cycle of heads through node ``child[cycle]``, and write its row of arcs."""
    begin = (cycle - n) * (n + 1)
    row = rows[begin : begin + n + 1]
    row[:] = -np.inf
    node = child[cycle]
    one = word[cycle] = word[node]
    while True:
        if node < n:
            source = scores[node * n : (node + 1) * n]
            root = source[node]
        else:
            begin = (node - n) * (n + 1)
            source = rows[begin : begin + n]
            root = rows[begin + n]
        given_up = weight[node]
        for h in range(n):
            gain = source[h] - given_up
            row[h] = gain if gain > row[h] else row[h]
        row[n] = max(row[n], root - given_up)
        sibling[node] = label[head[node]]
        node = sibling[node]
        if node == child[cycle]:
            break
        other = word[node]
        follower[one], follower[other] = follower[other], follower[one]  # merges two rings
    inside = one
    while True:
        label[inside] = cycle
        row[inside] = -np.inf
        inside = follower[inside]
        if inside == one:
            break


@leaf
def _expand(
    nodes: int,
    n: int,
    scores: FloatArray,
    rows: FloatArray,
    head: IntArray,
    weight: FloatArray,
    sibling: IntArray,
    child: IntArray,
) -> None:
    """Expand the cycles, outermost first. Each is entered at the node with the largest gain."""
    for cycle in range(nodes - 1, n - 1, -1):
        above = head[cycle]
        node = child[cycle]
        entered, most = node, -np.inf
        while True:
            if node >= n:
                arc = rows[(node - n) * (n + 1) + above]
            else:
                arc = scores[node * n + (node if above == n else above)]
            if arc - weight[node] > most:
                entered, most = node, arc - weight[node]
            node = sibling[node]
            if node == child[cycle]:
                break
        head[entered] = above
