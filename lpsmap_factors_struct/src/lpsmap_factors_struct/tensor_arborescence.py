"""Maximum arborescences of many graphs at once, in array-API code (Chu & Liu 1965, Edmonds 1967).

In each round, every set of contracted words takes its best arc from another set, and the sets of
all cycles are contracted. The number of rounds depends on the number of words only, so that nothing
waits for a device. A pass back over the rounds breaks every cycle at the word that its arc enters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from lpsmap_core import TensorOracle
from lpsmap_core.api import IntArray

MAX_NUMBERS = 2**26
"""Maximum number of arcs of the trees that are tried side by side for a single root."""


class _Round(NamedTuple):
    """What sets of words choose in a round; a set has the number of one of its words."""

    set_of: Any
    """(B, N) the set of each word."""
    entry: Any
    """(B, N) for each set, the word that its arc enters."""
    head: Any
    """(B, N) for each set, the head of its arc."""
    joined: Any
    """(B, N) for each set, the set of the next round that contains it."""


def arborescence_oracle(
    n_words: IntArray, longest: int, packed: bool, single_root: bool
) -> TensorOracle:
    """Return the oracle of dependency trees of `n_words` words each, of up to `longest` words."""
    words = np.arange(longest)
    place = np.full((longest + 1, longest + 1), longest**2)
    columns = np.broadcast_to(words, (longest, longest))
    if not packed:
        columns = columns + (words < words[:, None])
    place[1:, 1:] = words[:, None] * longest + columns
    place[np.arange(1, longest + 1), np.arange(1, longest + 1)] = longest**2
    place[1:, 0] = words * longest + (words if packed else 0)
    return TensorOracle(_oracle_of(single_root), (n_words,), (place,))


@functools.cache
def _oracle_of(single_root: bool) -> Callable[..., Any]:
    return functools.partial(_best_trees, single_root)


def _best_trees(single_root: bool, eta_u: Any, eta_v: Any, n_words: Any, place: Any) -> Any:
    """Return the slots of the best trees; see `TensorOracle`.

    Node 0 is the root, and node m + 1 is word m. Padded words hang from the root.
    """
    xp, n, size = array_namespace(eta_u), eta_u.shape[0], place.shape[0]
    where = {"device": device(eta_u)}
    node, row = xp.arange(size, **where), xp.arange(n, **where)[:, None]
    n_labels = eta_u.shape[3] if eta_u.ndim == 4 else 1
    by_label = xp.reshape(eta_u, (n, (size - 1) ** 2, n_labels))
    never = xp.full((n, 1), -xp.inf, dtype=eta_u.dtype, **where)
    arcs = xp.concat([xp.max(by_label, axis=-1), never], axis=1)[row[:, :, None], place]
    is_word = (node > 0) & (node <= n_words[:, None])
    both = is_word[:, :, None] & (is_word[:, None, :] | (node == 0))
    padded = xp.where(~is_word[:, :, None] & (node == 0), 0.0, -xp.inf)
    arcs = xp.where(both, arcs, padded)
    best = functools.partial(_heads_by_root, is_word) if single_root else _best_heads
    heads = best(xp, arcs, node, row)
    slots = place[node[1:], heads[:, 1:]]
    labels = xp.argmax(xp.concat([by_label, by_label[:, :1]], axis=1)[row, slots], axis=-1)
    return xp.where(is_word[:, 1:], slots * n_labels + labels, -1)


def _heads_by_root(is_word: Any, xp: Any, arcs: Any, node: Any, row: Any) -> Any:
    """Return the heads of the best trees of which one word hangs from the root.

    All words are tried, side by side where memory allows.
    """
    n, size = is_word.shape
    by_word = xp.permute_dims(is_word, (1, 0))
    together = max(MAX_NUMBERS // max(arcs.shape[0] * size**2, 1), 1)
    found = []
    for first in range(1, size, together):
        words = slice(first, first + together)
        is_other = is_word & (node[words, None, None] != node)  # (words, n, N)
        closed = is_other[:, :, :, None] & (node == 0) & by_word[words, :, None, None]
        trials = xp.reshape(xp.where(closed, -xp.inf, arcs), (closed.shape[0] * n, size, size))
        every = xp.arange(trials.shape[0], device=device(arcs))[:, None]
        heads = _best_heads(xp, trials, node, every)
        found.append(xp.reshape(heads, (closed.shape[0], n, size)))
    heads = xp.concat(found, axis=0)
    scores = xp.where(is_word, arcs[row, node, heads], 0.0)
    total = xp.where(by_word[1:], xp.sum(scores, axis=-1), -xp.inf)
    return heads[xp.argmax(total, axis=0), row[:, 0]]


def _best_heads(xp: Any, arcs: Any, node: Any, row: Any) -> Any:
    """Return the (B, N) heads of all nodes; that of the root is arbitrary.

    Parameters
    ----------
    xp
        The namespace of the arrays.
    arcs
        (B, N, N) scores of the arcs to a node (second axis) from another (third).
    node, row
        (N,) the nodes, and (B, 1) the numbers of the graphs.
    """
    reduced = xp.where(node[:, None] == 0, 0.0, arcs)  # the root's choice has no effect
    set_of = xp.broadcast_to(node, arcs.shape[:2])
    rounds = []
    for _ in range(1, len(node)):  # a round with a cycle leaves fewer sets
        chosen, best = _round(xp, reduced, set_of, node, row)
        rounds.append(chosen)
        reduced = reduced - best[row, set_of][:, :, None]
        set_of = chosen.joined[row, set_of]
    entry, head = rounds[-1].entry, rounds[-1].head
    for chosen in rounds[-2::-1]:
        entry, head = entry[row, chosen.joined], head[row, chosen.joined]
        takes = chosen.set_of[row, entry] == node
        entry, head = xp.where(takes, entry, chosen.entry), xp.where(takes, head, chosen.head)
    return head


def _round(xp: Any, reduced: Any, set_of: Any, node: Any, row: Any) -> tuple[_Round, Any]:
    """Return the best arcs of all sets and how they are contracted, and the scores of the arcs."""
    outside = set_of[:, :, None] != set_of[:, None, :]
    scores = xp.where(outside, reduced, -xp.inf)
    members = set_of[:, None, :] == node[:, None]
    of_set = xp.where(members, xp.max(scores, axis=-1)[:, None, :], -xp.inf)
    entry = xp.argmax(of_set, axis=-1)
    head = xp.argmax(scores, axis=-1)[row, entry]
    above = xp.where(node == 0, 0, set_of[row, head])
    least = xp.broadcast_to(node, above.shape)  # of the nodes that `above` reaches
    for _ in range((len(node) - 1).bit_length()):
        least = xp.minimum(least, least[row, above])
        above = above[row, above]
    on_cycle = xp.zeros(above.shape, dtype=xp.bool, device=device(reduced))
    on_cycle[row, above] = xp.ones((), dtype=xp.bool, device=device(reduced))
    joined = xp.where(on_cycle, least, node)
    return _Round(set_of, entry, head, joined), xp.max(of_set, axis=-1)
