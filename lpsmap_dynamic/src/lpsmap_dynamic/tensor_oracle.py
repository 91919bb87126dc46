"""The best derivations of many hypergraphs at once, level by level, in array-API code.

Items of a level depend on lower levels only. A pass over the levels computes their scores in
max-plus algebra, and a pass back marks the items of the best derivations. The number of operations
depends on the number of levels, not on the number of factors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from lpsmap_core import TensorOracle
from lpsmap_core.api import IntArray, offsets_of
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.order import sizes_of_derivations

__all__ = ["hypergraph_oracle"]

ZERO, IMPOSSIBLE, FIRST = 0, 1, 2
"""Columns of the table of scores: of missing tails and of padding, then hyperedges, then items."""

MOST_PADDED_EDGES = 2**22
"""Maximum number of hyperedges of all hypergraphs of a declaration, with padding."""


Levels = tuple[tuple[int, int], ...]
"""For each level, its number of items, and the maximum number of hyperedges of an item."""


@dataclass(frozen=True)
class _Leveled:
    """A hypergraph whose hyperedges are sorted by the levels and items of their heads."""

    level: IntArray
    """For each item, its level, from 0; in ascending order."""
    n_edges: IntArray
    """For each item, its number of hyperedges."""
    tails: IntArray
    """(E, 2) numbers of items, counted from 0; -1 for none."""
    entries: IntArray
    """(E, P) the entries of each hyperedge; -1 for padding."""
    goal: int
    n_entries: int
    """The maximum number of entries of a derivation."""


def hypergraph_oracle(
    hypergraphs: tuple[Hypergraph, ...],
    shapes: tuple[tuple[int, ...], ...],
    which: IntArray,
    event_shape: tuple[int, ...],
) -> TensorOracle | None:
    """Return the oracle of factors with given hypergraphs, or None if they are too large.

    Parameters
    ----------
    hypergraphs, shapes
        The distinct hypergraphs, and the shapes of their slots within the event shape.
    which
        For each factor, the number of its hypergraph.
    event_shape
        The event shape of the declaration.
    """
    found = _tables_of(hypergraphs, shapes, event_shape)
    return None if found is None else TensorOracle(found[0], (which,), found[1])


# -------------------------------------------------------------------- tables, on the host


@functools.lru_cache(maxsize=16)
def _tables_of(
    hypergraphs: tuple[Hypergraph, ...],
    shapes: tuple[tuple[int, ...], ...],
    event_shape: tuple[int, ...],
) -> tuple[Callable[..., Any], tuple[IntArray, ...]] | None:
    """Return the oracle and the tables of some hypergraphs; see `hypergraph_oracle`."""
    slots = np.arange(math.prod(event_shape)).reshape(event_shape)
    leveled = [
        _leveled(graph, slots[tuple(map(slice, shape))].reshape(-1), slots.size)
        for graph, shape in zip(hypergraphs, shapes, strict=True)
    ]
    levels = _common_levels(leveled)
    n_items, width = np.array(levels).T
    n_edges = int((n_items * width).sum())
    if n_edges * len(leveled) > MOST_PADDED_EDGES:
        return None
    n_columns = max(graph.entries.shape[1] for graph in leveled)
    tables = [_padded(graph, levels, n_edges, n_columns) for graph in leveled]
    goal, tails, entries = (np.stack(table) for table in zip(*tables, strict=True))
    item = np.arange(n_items.sum()) - np.repeat(offsets_of(n_items)[:-1], n_items)
    first = np.repeat(offsets_of(n_items * width)[:-1], n_items) + item * np.repeat(width, n_items)
    n_entries = max(graph.n_entries for graph in leveled)
    return _oracle_of(levels, n_entries), (goal, first[None], tails, entries)


def _leveled(hypergraph: Hypergraph, position: IntArray, n_slots: int) -> _Leveled:
    """Return a hypergraph by levels, without the items that `_inlined` replaces.

    `position` has the places of its slots among the `n_slots` of the event shape.
    """
    edges = hypergraph.edges
    n_items = hypergraph.n_items
    heads = np.repeat(np.arange(1, n_items + 1), np.diff(edges.first_edge))
    n_entries, _ = sizes_of_derivations(*edges[:3])
    additionals = n_slots + np.arange(hypergraph.n_additionals)
    entries = _table(edges.first_entry, np.concatenate([position, additionals])[edges.entries])
    tails, entries, kept = _inlined(edges.first_edge, edges.tails.reshape(-1, 2), entries)
    chosen = kept[heads]
    heads, tails, entries = heads[chosen], tails[chosen], entries[chosen]
    first = np.flatnonzero(np.diff(heads, prepend=0))
    level, items = np.zeros(n_items + 1, dtype=np.int64), heads[first]
    while True:
        found = np.maximum.reduceat(level[tails].max(axis=1), first) + 1
        if (found == level[items]).all():
            break
        level[items] = found
    order = np.argsort(level[items], kind="stable")
    number = np.full(n_items + 1, -1)
    number[items[order]] = np.arange(len(items))
    by_level = np.argsort(level[heads], kind="stable")
    n_edges = np.diff(np.append(first, len(heads)))[order]
    return _Leveled(
        level[items][order] - 1,
        n_edges,
        number[tails[by_level]],
        entries[by_level],
        int(number[n_items]),
        int(n_entries),
    )


def _table(first: IntArray, values: IntArray) -> IntArray:
    """Return ragged rows as a table, padded with -1."""
    counts = np.diff(first)
    table = np.full((len(counts), max(int(counts.max(initial=0)), 1)), -1)
    row = np.repeat(np.arange(len(counts)), counts)
    table[row, np.arange(len(values)) - first[row]] = values
    return table


def _inlined(
    first_edge: IntArray, tails: IntArray, entries: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Move the entries of items with one hyperedge and at most one tail to where they are used.

    This leaves fewer levels. Items of a chain are replaced in turns. Returns the tails and entries
    of all hyperedges, and for each item whether it is kept.
    """
    n_items = len(first_edge) - 1
    only = first_edge[:-1]
    single = np.diff(first_edge) == 1
    single[single] = (tails[only[single]] != 0).sum(axis=1) <= 1
    single[-1] = False  # the goal
    tail = np.zeros(n_items + 1, dtype=np.int64)
    tail[1:][single] = tails[only[single]].max(axis=1)
    replaced = np.append(False, single)
    replaced &= ~replaced[tail]
    instead = np.where(replaced, tail, np.arange(n_items + 1))
    moved = np.full((n_items + 1, entries.shape[1]), -1)
    moved[replaced] = entries[only[np.flatnonzero(replaced) - 1]]
    joined = np.hstack([entries, moved[tails[:, 0]], moved[tails[:, 1]]])
    joined = -np.sort(-joined, axis=1)
    width = max(int((joined >= 0).sum(axis=1).max(initial=0)), 1)
    return instead[tails], joined[:, :width], ~replaced


def _common_levels(hypergraphs: list[_Leveled]) -> Levels:
    """Return the sizes of levels that hold those of all hypergraphs."""
    sizes = np.zeros((1 + max(int(graph.level[-1]) for graph in hypergraphs), 2), dtype=np.int64)
    for graph in hypergraphs:
        np.maximum.at(sizes[:, 1], graph.level, graph.n_edges)
        counts = np.bincount(graph.level, minlength=len(sizes))
        sizes[:, 0] = np.maximum(sizes[:, 0], counts)
    return tuple((int(n), int(width)) for n, width in sizes)


def _padded(
    graph: _Leveled, levels: Levels, n_edges: int, n_columns: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the column of the goal, and the columns of tails and the entries of padded edges.

    The third column of tails is that of the hyperedge itself.
    """
    n_items, width = np.array(levels).T
    first_item, first_edge = offsets_of(n_items), offsets_of(n_items * width)
    counts = np.bincount(graph.level, minlength=len(levels))
    place = np.arange(len(graph.level)) - np.repeat(offsets_of(counts)[:-1], counts)
    column = FIRST + n_edges + first_item[graph.level] + place
    begin = first_edge[graph.level] + place * width[graph.level]
    offsets = offsets_of(graph.n_edges)
    own = np.repeat(begin - offsets[:-1], graph.n_edges) + np.arange(offsets[-1])
    tails = np.full((n_edges, 3), IMPOSSIBLE)
    tails[own, :2] = np.where(graph.tails < 0, ZERO, column[graph.tails])
    tails[own, 2] = FIRST + own
    entries = np.full((n_edges, n_columns), -1)
    entries[own, : graph.entries.shape[1]] = graph.entries
    return column[graph.goal], tails, entries


# -------------------------------------------------------------------- the passes, on any device


@functools.lru_cache(maxsize=64)
def _oracle_of(levels: Levels, n_entries: int) -> Callable[..., Any]:
    """Return the oracle for levels of some sizes; equal sizes have the same one."""
    return functools.partial(_best_derivations, levels, n_entries)


def _best_derivations(
    levels: Levels,
    n_entries: int,
    eta_u: Any,
    eta_v: Any,
    which: Any,
    goal: Any,
    first: Any,
    tails: Any,
    entries: Any,
) -> Any:
    """Return the entries of the best derivations; see `TensorOracle`."""
    xp, n, n_edges = array_namespace(eta_u), eta_u.shape[0], tails.shape[1]
    row = xp.arange(n, device=device(eta_u))[:, None]
    rows, of_table = row[:, :, None], row[:1]
    if len(goal) > 1:
        goal, tails, entries, of_table = goal[which], tails[which], entries[which], row
    flat = xp.reshape(eta_u, (n, -1))
    zero = xp.zeros((n, 1), dtype=flat.dtype, device=device(flat))
    scores = xp.concat([flat, eta_v, zero], axis=1)
    own = xp.sum(scores[rows, entries], axis=-1)
    impossible = xp.full((n, 1 + first.shape[1]), -xp.inf, dtype=flat.dtype, device=device(flat))
    table = xp.concat([zero, impossible[:, :1], own, impossible[:, 1:]], axis=1)
    n_columns = table.shape[1]
    edge, column, choices = 0, FIRST + n_edges, []
    for n_items, width in levels:
        end = edge + n_items * width
        sums = xp.sum(table[rows, tails[:, edge:end]], axis=-1)
        sums = xp.reshape(sums, (n, n_items, width))
        table[:, column : column + n_items] = xp.max(sums, axis=-1)
        choices.append(xp.argmax(sums, axis=-1))
        edge, column = end, column + n_items
    chosen = xp.concat(choices, axis=1) + first
    below = tails[of_table, chosen][..., :2]
    is_on = xp.zeros((n, n_columns), dtype=xp.bool, device=device(flat))
    true = xp.ones((), dtype=xp.bool, device=device(flat))  # on the device already
    is_on[row, goal[:, None]] = true
    end = n_columns
    for n_items, _ in levels[:0:-1]:
        begin = end - n_items
        tails_on = below[:, begin - n_columns : end - n_columns or None]
        is_on[rows, xp.where(is_on[:, begin:end, None], tails_on, ZERO)] = true
        end = begin
    found = xp.where(is_on[:, FIRST + n_edges :, None], entries[of_table, chosen], -1)
    return xp.sort(xp.reshape(found, (n, -1)), axis=-1, descending=True)[:, :n_entries]
