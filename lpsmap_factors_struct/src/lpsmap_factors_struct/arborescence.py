"""Maximum arborescences of dense graphs: the best non-projective dependency tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray

__all__ = ["Arborescence", "arborescence_memory", "maximum_arborescence"]


class Arborescence(NamedTuple):
    """Working memory for sentences of up to ``n`` words.

    Nodes ``0 .. n - 1`` are the words, later ones are cycles contracted to one node. Arcs are
    between a node, as the dependent, and a single word or the root (position ``n``), as the head.
    """

    head: IntArray
    """For each node, its best head among the words outside it and the root."""
    weight: FloatArray
    """For each node, the score of the arc from that head."""
    seen: IntArray
    """For each node, one plus the word from which it was reached; 0 for none."""
    sibling: IntArray
    """For each contracted node, the next on its cycle."""
    child: IntArray
    """For each cycle, one node on it."""
    word: IntArray
    """For each node, a word in it."""
    label: IntArray
    """For each word, the outermost node that holds it."""
    follower: IntArray
    """For each word, another one in its outermost node: the words of a node form a ring."""
    rows: FloatArray
    """For the cycles, ``n + 1`` scores each of the arcs that enter them."""


@kernel
def arborescence_memory(n: int) -> Arborescence:
    """Return working memory for sentences of up to `n` words."""
    nodes = 2 * n
    return Arborescence(
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
    scores: FloatArray, n: int, single_root: bool, memory: Arborescence
) -> int:
    """Find the best dependency tree of `n` words, in O(n^2).

    Maximises the sum of ``scores[m * n + heads[m]]`` over all trees. Chu & Liu (1965) and Edmonds
    (1967): every node takes its best head, and a cycle becomes one node. As in Tarjan's (1977)
    dense variant, a cycle's row of entering arcs is the maximum of its nodes' rows, each reduced by
    the arc that would be given up. The graph is searched along one path of heads at a time (Gabow
    et al., 1986), so that every node's best head is looked for once. Columns are never merged: a
    row names heads as single words, and leaves out those inside its own node.

    Arcs with huge negative scores are avoided wherever that is possible, and cost the others no
    digits: a difference with them is only taken for an arc that is itself avoided, or unavoidable.

    Parameters
    ----------
    scores
        ``n * n`` finite scores in packed layout: of word h as head of word m at ``m * n + h``, of
        the root as head of m at ``m * n + m``.
    n
        Number of words.
    single_root
        Whether exactly one word hangs from the root. Trees are then compared by their number of
        root arcs first and by score second: a node takes the root only if it holds all words.
        Edmonds' proof needs no more of the scores than that they add and compare, as such pairs
        do; hence this is exact, without a large penalty that swallows digits.
    memory
        Working memory; on return ``memory.head[:n]`` are the words' heads, a word itself standing
        for the root. Among equally good trees it is always the same one.

    Returns
    -------
    int
        The number of nodes, words and cycles. ``child`` and ``sibling`` list the nodes on a cycle,
        and minus ``weight`` of the cycles are the multipliers of their sets of words in the linear
        program (Edmonds 1967).
    """
    # Each field is read once: handing the tuple to a kernel costs a reference count per array.
    head, weight, seen, sibling, child, word, label, follower, rows = memory
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
                break  # an earlier path leads on to the root
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
    """Return a word's best head, itself for the root."""
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
    """Return a cycle's best head, `n` for the root."""
    begin = (cycle - n) * (n + 1)
    best = first_maximum(rows, begin, begin + n)
    if rows[best] == -np.inf:  # no word is left outside
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
    """Make the cycle of heads through node ``child[cycle]`` one node, with its row of arcs."""
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
        follower[one], follower[other] = follower[other], follower[one]  # two rings become one
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
    """Open the cycles, outermost first: each is entered where that gains most."""
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


@leaf
def first_maximum(values: FloatArray, begin: int, end: int) -> int:
    """Return the position in ``begin:end`` of the largest number, the first of equal ones."""
    row = values[begin:end]
    n = len(row)
    a = b = c = d = row[0]
    whole = n - n % 4
    for i in range(0, whole, 4):  # four chains of comparisons, which a processor runs at once
        a = row[i] if row[i] > a else a
        b = row[i + 1] if row[i + 1] > b else b
        c = row[i + 2] if row[i + 2] > c else c
        d = row[i + 3] if row[i + 3] > d else d
    for i in range(whole, n):
        a = row[i] if row[i] > a else a
    most = max(max(a, b), max(c, d))
    place = 0
    while place < n - 1 and row[place] != most:  # bounded, should a number be NaN
        place += 1
    return begin + place
