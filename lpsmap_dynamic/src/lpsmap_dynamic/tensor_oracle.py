"""The best derivations of many hypergraphs at once, level by level, in array-API code.

Items of a level depend on lower levels only. A pass over the levels computes their scores in
max-plus algebra. A pass back finds the items of the best derivations: it follows paths by doubling
its strides, and marks the items of other derivations, several levels at a time. The number of
operations depends on the number of levels, not on the number of factors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from lpsmap_core import TensorOracle
from lpsmap_core.api import IntArray, offsets_of, ranges
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.order import sizes_of_derivations

ZERO, IMPOSSIBLE, FIRST = 0, 1, 2
"""Columns of the table of scores: of missing tails and of padding, then hyperedges, then items."""

NO_ENTRY, NEVER = -1, -2
"""Entries of padding, which add 0 and -inf to the score of a hyperedge."""

MAX_PADDED_EDGES = 2**22
"""Maximum number of hyperedges of all hypergraphs of a declaration, with padding."""

DEPTH = 4
"""Number of levels that a step back crosses."""


Levels = tuple[tuple[int, int], ...]
"""For each level, its number of items, and the maximum number of hyperedges of an item."""

Chains = tuple[tuple[int, bool], ...]
"""For each level, its number of chains, and whether a higher level looks it up; see `_chained`."""


class _Form(NamedTuple):
    """What the operations depend on."""

    levels: Levels
    chains: Chains
    n_tails: int
    n_entries: int
    has_paths: bool
    """Whether derivations are paths, of which several may meet in the goal."""
    tells_heads: bool
    """Whether hyperedges with the same entries have the same head; see `_tells_heads`."""

    @property
    def n_parts(self) -> int:
        """Number of hyperedges of a path with entries that tell its items; 0 if they do not."""
        is_told = self.has_paths and self.tells_heads and self.n_tails == 2
        return 2 * (len(self.levels) - 1) if is_told else 0


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
    tables = _tables_of(hypergraphs, shapes, event_shape)
    if tables is None:
        return None
    form, shared = tables
    return TensorOracle(_oracle_of(form), (which,), shared, form.n_parts)


# -------------------------------------------------------------------- tables, on the host


@functools.lru_cache(maxsize=16)
def _tables_of(
    hypergraphs: tuple[Hypergraph, ...],
    shapes: tuple[tuple[int, ...], ...],
    event_shape: tuple[int, ...],
) -> tuple[_Form, tuple[IntArray, ...]] | None:
    """Return the form and the tables of some hypergraphs; see `hypergraph_oracle`."""
    slots = np.arange(math.prod(event_shape)).reshape(event_shape)
    leveled = [
        _leveled(graph, slots[tuple(map(slice, shape))].reshape(-1), slots.size)
        for graph, shape in zip(hypergraphs, shapes, strict=True)
    ]
    levels = _common_levels(leveled)
    n_items, width = np.array(levels).T
    sizes = n_items * width
    n_edges = int(sizes.sum())
    if max(n_edges * len(leveled), int(n_items.sum() * width.max())) > MAX_PADDED_EDGES:
        return None
    n_columns = max(graph.entries.shape[1] for graph in leveled)
    tables = [_padded(graph, levels, n_edges, n_columns) for graph in leveled]
    goal, tails, below, entries = (np.stack(table) for table in zip(*tables, strict=True))
    item = np.arange(n_items.sum()) - np.repeat(offsets_of(n_items)[:-1], n_items)
    width = np.repeat(width, n_items)[:, None]
    chained = _chained(levels, tails)
    is_chained = np.array([n_chains > 0 for n_chains, _ in chained])
    tails = tails[:, ~np.repeat(is_chained, sizes)]
    first = np.repeat(FIRST + offsets_of(sizes)[:-1], n_items)[:, None]
    first = first + item[:, None] * width
    n_tails = max(int(below.any(axis=(0, 1)).sum()), 1)
    edge = np.arange(width.max())
    edges = np.where(edge < width, first + edge, IMPOSSIBLE)
    edges = np.pad(edges, ((1, 0), (0, 0)), constant_values=ZERO)  # of no item
    n_entries = max(graph.n_entries for graph in leveled)
    has_paths, tells_heads = all(map(_has_paths, leveled)), all(map(_tells_heads, leveled))
    form = _Form(levels, chained, n_tails, n_entries, has_paths, tells_heads)
    return form, (goal, edges, tails, np.dstack([below[:, :, :n_tails], entries]))


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
    heads, tails, entries = _unfolded(n_items, heads[chosen], tails[chosen], entries[chosen])
    if not tails.min(axis=1).any():
        n_items, heads, tails, entries = _from_both_ends(n_items, heads, tails, entries)
    first, level = np.flatnonzero(np.diff(heads, prepend=0)), _levels_of(n_items, heads, tails)
    items = heads[first]
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
    return instead[tails], _without_padding(joined), ~replaced


def _levels_of(n_items: int, heads: IntArray, tails: IntArray) -> IntArray:
    """Return the levels of items, counted from 1; 0 for those without hyperedges."""
    first = np.flatnonzero(np.diff(heads, prepend=0))
    level, items = np.zeros(n_items + 1, dtype=np.int64), heads[first]
    while True:
        raised = np.maximum.reduceat(level[tails].max(axis=1), first) + 1
        if (raised == level[items]).all():
            return level
        level[items] = raised


def _unfolded(
    n_items: int, heads: IntArray, tails: IntArray, entries: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Replace single tails by their hyperedges, where this puts items on a lower level.

    An item gets at most twice its hyperedges. Of projective trees, this halves the levels.
    """
    level = _levels_of(n_items, heads, tails)
    first = np.searchsorted(heads, np.arange(n_items + 2))
    size, tail = np.diff(first), tails.max(axis=1)
    is_high = level[tails].max(axis=1) == level[heads] - 1
    is_fit = ~is_high | ((tails.min(axis=1) == 0) & (tail != 0))
    added = np.bincount(heads, np.where(is_high, size[tail], 0), n_items + 1)
    lowered = (added <= size + 1) & (np.bincount(heads, ~is_fit, n_items + 1) == 0)
    unfolds = is_high & lowered[heads] & (tail != 0)
    kept, (upper,) = ~unfolds, np.nonzero(unfolds)
    lower = ranges(first, tail[upper])
    upper = np.repeat(upper, size[tail[upper]])
    joined = _without_padding(np.hstack([entries[upper], entries[lower]]))
    width = max(entries.shape[1], joined.shape[1])
    both = [
        np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=-1)
        for x in (entries[kept], joined)
    ]
    heads = np.concatenate([heads[kept], heads[upper]])
    order = np.argsort(heads, kind="stable")
    tails = np.concatenate([tails[kept], tails[lower]])
    return heads[order], tails[order], np.concatenate(both)[order]


def _from_both_ends(
    n_items: int, heads: IntArray, tails: IntArray, entries: IntArray
) -> tuple[int, IntArray, IntArray, IntArray]:
    """Turn the upper half of a hypergraph around, whose hyperedges have at most one tail.

    Its derivations are paths to the goal. Those of the lower half and of the reversed upper half
    grow side by side and meet in a new goal, which halves the levels. Returns the number of items,
    and the heads, tails and entries of the hyperedges.
    """
    while True:  # a path back must not end in an item without use
        is_used = np.isin(np.arange(n_items + 1), tails)
        is_used[n_items] = True
        if is_used[heads].all():
            break
        kept = is_used[heads]
        heads, tails, entries = heads[kept], tails[kept], entries[kept]
    level, tail = _levels_of(n_items, heads, tails), tails.max(axis=1)
    is_upper = level > (level[n_items] - 1) // 2
    turns = is_upper[tail]
    back = n_items + np.arange(n_items + 1)  # the numbers of reversed items
    back[n_items] = 0  # their paths begin there
    middle = np.unique(heads[~turns & is_upper[heads]])
    goal = np.full(len(middle), 2 * n_items)
    first = np.concatenate([tail[~turns], back[heads[turns]], middle])
    second = np.concatenate([np.zeros(len(heads), dtype=np.int64), back[middle]])
    heads = np.concatenate([heads[~turns], back[tail[turns]], goal])
    none = np.full((len(middle), entries.shape[1]), -1)
    entries = np.concatenate([entries[~turns], entries[turns], none])
    order = np.argsort(heads, kind="stable")
    return 2 * n_items, heads[order], np.stack([first, second], axis=1)[order], entries[order]


def _has_paths(graph: _Leveled) -> bool:
    """Return whether no hyperedge but the goal's has two tails."""
    head = np.repeat(np.arange(len(graph.n_edges)), graph.n_edges)
    return bool((head[graph.tails.min(axis=1) >= 0] == graph.goal).all())


def _tells_heads(graph: _Leveled) -> bool:
    """Return whether hyperedges with the same entries have the same head.

    Paths that have the same entries in a part then have an item in common.
    """
    head = np.repeat(np.arange(len(graph.n_edges)), graph.n_edges)
    distinct, number = np.unique(graph.entries, axis=0, return_inverse=True)
    pairs = np.unique(number.reshape(-1) * len(graph.n_edges) + head)
    return len(pairs) == len(distinct)


def _without_padding(entries: IntArray) -> IntArray:
    """Return rows of entries without the columns that have only padding."""
    entries = -np.sort(-entries, axis=1)
    return entries[:, : max(int((entries >= 0).sum(axis=1).max(initial=0)), 1)]


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
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the goal, the columns of padded hyperedges, and items and entries of all columns.

    A hyperedge has the columns of its tails, and its own. Items are its tails, counted from 1; 0
    for none. Items themselves have entries of padding, until their scores are known.
    """
    n_items, width = np.array(levels).T
    first_item, first_edge = offsets_of(n_items), offsets_of(n_items * width)
    counts = np.bincount(graph.level, minlength=len(levels))
    place = np.arange(len(graph.level)) - np.repeat(offsets_of(counts)[:-1], counts)
    item = first_item[graph.level] + place
    begin = first_edge[graph.level] + place * width[graph.level]
    offsets = offsets_of(graph.n_edges)
    own = np.repeat(begin - offsets[:-1], graph.n_edges) + np.arange(offsets[-1])
    below = -np.sort(-graph.tails, axis=1)
    tails = np.full((n_edges, 3), IMPOSSIBLE)
    tails[own, :2] = np.where(graph.tails < 0, ZERO, FIRST + n_edges + item[graph.tails])
    tails[own, 2] = FIRST + own
    n_all = FIRST + n_edges + int(n_items.sum())
    items = np.zeros((n_all, 2), dtype=np.int64)
    items[FIRST + own] = np.where(below < 0, 0, 1 + item[below])
    entries = np.full((n_all, n_columns), NO_ENTRY)
    entries[IMPOSSIBLE:, 0] = NEVER
    entries[FIRST + own, : graph.entries.shape[1]] = graph.entries
    return 1 + item[graph.goal], tails, items, entries


def _chained(levels: Levels, tails: IntArray) -> Chains:
    """Return for each level the number of its chains, and whether a higher level looks it up.

    The items of a level of k chains, and those of the level before, are k groups of equal size.
    Hyperedge i of each item has item i of the same group before. Such a level is k products of a
    matrix and a vector in max-plus algebra. Other levels, of 0 chains, look up their tails; the
    lowest level has none.
    """
    n_items, width = np.array(levels).T
    first_item, first_edge = offsets_of(n_items), offsets_of(n_items * width)
    both, own = tails[:, :, :2] - (FIRST + first_edge[-1]), tails[:, :, 2]
    below = both.max(axis=2)  # negative for none
    is_single, is_padding = both.min(axis=2) < 0, own == IMPOSSIBLE
    numbers, is_looked_up = [0], np.zeros(len(levels), dtype=bool)
    for level in range(1, len(levels)):
        edges = slice(first_edge[level], first_edge[level + 1])
        k = int(n_items[level - 1] // width[level])
        numbers.append(0)
        if k * width[level] == n_items[level - 1] and n_items[level] % k == 0:
            groups = np.arange(n_items[level - 1]).reshape(k, -1)
            item = first_item[level - 1] + np.repeat(groups, n_items[level] // k, axis=0)
            fits = (below[:, edges] == item.reshape(-1)) & is_single[:, edges]
            numbers[-1] = k * bool((fits | is_padding[:, edges]).all())
        if not numbers[-1]:
            items = both[:, edges][both[:, edges] >= 0]
            is_looked_up[np.searchsorted(first_item, items, side="right") - 1] = True
    return tuple(zip(numbers, is_looked_up.tolist(), strict=True))


# -------------------------------------------------------------------- the passes, on any device


@functools.lru_cache(maxsize=64)
def _oracle_of(form: _Form) -> Callable[..., Any]:
    """Return the oracle of a form; equal forms have the same one."""
    return functools.partial(_best_derivations, form)


def _best_derivations(
    form: _Form,
    eta_u: Any,
    eta_v: Any,
    which: Any,
    goal: Any,
    edges: Any,
    tails: Any,
    steps: Any,
) -> Any:
    """Return the entries of the best derivations; see `TensorOracle`.

    Parameters
    ----------
    edges
        The columns of the hyperedges of no item, and of each item.
    tails
        The columns of the tails of all hyperedges of levels without chains, and their own.
    steps
        For each column, the tails of the hyperedge, as items, and its entries.
    """
    xp, n = array_namespace(eta_u), eta_u.shape[0]
    row = xp.arange(n, device=device(eta_u))[:, None]
    number = which[:, None] if len(goal) > 1 else row[:1]
    goal, tails = _own(goal, which), _own(tails, which)
    entries = steps[:, :, form.n_tails :]
    sums = _sums(xp, form, row, _scores(xp, row, eta_u, eta_v, entries, which), tails)
    chosen = edges[:, 0] + xp.argmax(sums[:, edges], axis=-1)
    steps = steps[number, chosen]
    below, entries = steps[:, :, : form.n_tails], steps[:, :, form.n_tails :]
    if form.has_paths:
        items = _path(xp, form, row, goal, below)
        if form.n_parts:
            return xp.reshape(entries[row, _in_line(xp, form, items)], (n, -1))
        on = entries[row, items]
    else:
        on = xp.where(_marked(xp, form, row, goal, below)[:, 1:, None], entries[:, 1:], NO_ENTRY)
    return xp.sort(xp.reshape(on, (n, -1)), axis=-1, descending=True)[:, : form.n_entries]


def _own(tables: Any, which: Any) -> Any:
    """Return the table of each factor, or one for all if there is one."""
    return tables[which] if len(tables) > 1 else tables


def _scores(xp: Any, row: Any, eta_u: Any, eta_v: Any, entries: Any, which: Any) -> Any:
    """Return the table of scores, before those of tails; ``-inf`` for padding and items."""
    n, given = len(row), {"dtype": eta_u.dtype, "device": device(eta_u)}
    # the last two columns are those of NEVER and NO_ENTRY
    ends = [xp.full((n, 1), -xp.inf, **given), xp.zeros((n, 1), **given)]
    scores = xp.concat([xp.reshape(eta_u, (n, -1)), eta_v, *ends], axis=1)
    table = scores[row, _own(entries[:, :, 0], which)]
    for column in range(1, entries.shape[2]):  # not all at once, which takes more memory
        table += scores[row, _own(entries[:, :, column], which)]
    return table


def _sums(xp: Any, form: _Form, row: Any, table: Any, tails: Any) -> Any:
    """Return the scores of the best derivations by each hyperedge; changes the table of scores."""
    n, edge, parts, best = len(row), FIRST, [table[:, :FIRST]], None
    column = FIRST + sum(size * width for size, width in form.levels)
    for level, (size, width) in enumerate(form.levels):
        end = edge + size * width
        n_chains, is_looked_up = form.chains[level]
        if n_chains:
            sums = xp.reshape(table[:, edge:end], (n, n_chains, size // n_chains, width))
            sums += xp.reshape(best, (n, n_chains, 1, width))
        elif level:
            sums = xp.sum(table[row[:, :, None], tails[:, : end - edge]], axis=-1)
        else:
            sums = table[:, edge:end]
        sums = xp.reshape(sums, (n, size, width))
        best = xp.max(sums, axis=-1)
        if is_looked_up:
            table[:, column : column + size] = best
        if not n_chains:
            tails = tails[:, end - edge :]
        parts.append(xp.reshape(sums, (n, size * width)))
        edge, column = end, column + size
    return xp.concat(parts, axis=1)


def _path(xp: Any, form: _Form, row: Any, goal: Any, below: Any) -> Any:
    """Return the items of derivations that are paths to the goal; 0 for none.

    Parameters
    ----------
    below
        (n, 1 + n_items, T) the tails of the best hyperedges of no item, and of all items.
    """
    # items so far, of which the last ones of each path are `stride` levels apart
    items, below_by_stride = xp.reshape(below[row, goal[:, None]], (len(row), -1)), below[:, :, 0]
    for doubling in range((len(form.levels) - 2).bit_length()):
        if doubling:
            below_by_stride = below_by_stride[row, below_by_stride]
        items = xp.concat([items, below_by_stride[row, items]], axis=1)
    return xp.concat([xp.broadcast_to(goal[:, None], row.shape), items], axis=1)


def _in_line(xp: Any, form: _Form, items: Any) -> Any:
    """Return the items of both paths to the goal in one line; see `_path`."""
    end = 1 + form.n_parts  # the goal has no entries
    return xp.concat([xp.flip(items[:, 1:end:2], axis=1), items[:, 2:end:2]], axis=1)


def _marked(xp: Any, form: _Form, row: Any, goal: Any, below: Any) -> Any:
    """Return flags of no item, and of the items of the best derivations; see `_path`."""
    levels, rows = form.levels, row[:, :, None]
    shape = *below.shape[:2], -1
    reached = [below]
    for _ in range(min(DEPTH, len(levels)) - 1):
        deeper = xp.reshape(reached[-1], (len(below), -1))
        reached.append(xp.reshape(below[row, deeper], shape))
    descendants = xp.concat(reached, axis=-1)
    is_on = xp.zeros(shape[:2], dtype=xp.bool, device=device(below))
    true = xp.ones((), dtype=xp.bool, device=device(below))  # on the device already
    is_on[row, goal[:, None]] = true
    end = shape[1]
    for highest in range(len(levels), 0, -DEPTH):
        begin = end - sum(size for size, _ in levels[max(highest - DEPTH, 0) : highest])
        on = xp.where(is_on[:, begin:end, None], descendants[:, begin:end], 0)
        is_on[rows, on] = true
        end = begin
    return is_on
