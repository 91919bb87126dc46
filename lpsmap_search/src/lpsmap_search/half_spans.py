"""Projective trees as derivations over half-spans that determine the valence of heads."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import IntArray

LEFT, RIGHT = 0, 1
"""Sides of a head."""


class HalfSpans(NamedTuple):
    """The hyperedges of all projective trees with one root word, by kind.

    A tree has one derivation: each head attaches its children on a side from the nearest outwards,
    and then stops. A head has no child on a side if and only if its half-span there contains only
    the head, so items do not need to store its valence (Eisner 1996; Klein & Manning 2004).

    Each field is an array with a row per hyperedge; items are indices, -1 for none.
    """

    attach: IntArray
    """(., 6) item, two tails, head, child, whether it is the first child of the head on that
    side."""
    join: IntArray
    """(., 3) item and two tails: the outer half-span of a child is complete."""
    stop: IntArray
    """(., 5) item, tail, head, side, whether the head has no child on that side."""
    root: IntArray
    """(., 4) item, two tails, root word."""
    goal: int


@functools.lru_cache(maxsize=256)
def half_spans(n: int) -> HalfSpans:
    """Return the hyperedges for sentences of n words: ``2 n (n^2 - 1) / 3 + n^2 + 2 n`` in all."""
    square = n * n

    def closed(head: IntArray, end: IntArray, side: int) -> IntArray:
        return np.where(head == end, (3 * n + side) * n + head, head * n + end)

    def taking(head: IntArray, child: IntArray) -> IntArray:
        return square + head * n + child

    def opened(head: IntArray, end: IntArray) -> IntArray:
        return np.where(head == end, -1, 2 * square + head * n + end)

    attach, join, stop = [], [], []
    triples = _triples(n)
    for side, sign in ((RIGHT, 1), (LEFT, -1)):
        other = LEFT if side == RIGHT else RIGHT
        # head, child, end of the head's half-span, in ascending order
        a, b, m = triples if side == RIGHT else (n - 1 - x[::-1] for x in triples)
        first = (a == m).astype(np.int64)
        attach.append(
            np.stack([taking(a, b), opened(a, m), closed(b, m + sign, other), a, b, first], axis=1)
        )
        # head, end, child
        join.append(
            np.stack([opened(a, b), taking(a, m + sign), closed(m + sign, b, side)], axis=1)
        )
        a, b = (x.reshape(-1) for x in np.indices((n, n)))
        inside = sign * a <= sign * b
        a, b = a[inside], b[inside]
        none = (a == b).astype(np.int64)
        sides = np.full_like(a, side)
        stop.append(np.stack([closed(a, b, side), opened(a, b), a, sides, none], axis=1))
    goal = 3 * square + 2 * n
    words = np.arange(n)
    ends = closed(words, np.zeros_like(words), LEFT), closed(words, words * 0 + n - 1, RIGHT)
    root = np.stack([np.full(n, goal), *ends, words], axis=1)
    return HalfSpans(np.concatenate(attach), np.concatenate(join), np.concatenate(stop), root, goal)


def _triples(n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return all i, j and k below n with ``i <= k < j``."""
    i, j = np.triu_indices(n, 1)
    width = j - i
    pair = np.repeat(np.arange(len(i)), width)
    return i[pair], j[pair], i[pair] + np.arange(len(pair)) - (np.cumsum(width) - width)[pair]
