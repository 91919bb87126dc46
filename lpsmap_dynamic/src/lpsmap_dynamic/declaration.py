"""A dynamic program as a directed acyclic hypergraph, whose derivations are the structures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lpsmap_core.api import BoolArray, IntArray, cached_property, offsets_of, ranges
from lpsmap_dynamic.edges import N_EDGES, N_ITEMS, Edges, edges_of, encoded
from lpsmap_dynamic.order import (
    CYCLE,
    FOUND,
    on_twice,
    post_order,
    sizes_of_derivations,
)

MAX_EDGES_OF_FACTOR = 1 << 31
"""Maximum number of hyperedges of a derivation."""


class Hypergraph:
    """The items and hyperedges of a dynamic program, whose derivations are a factor's structures.

    A *derivation* of an item is a hyperedge with this item as head, together with a derivation of
    each tail of that hyperedge. The derivations of the goal are the structures: each switches on
    the slots and additionals of its hyperedges. Different derivations must be different structures,
    since sums over structures would count them twice; and a derivation must not switch on a slot
    twice.

    Parameters
    ----------
    arity, n_additionals
        The number of slots and of additionals of the factor.
    heads
        (E,) the head of each hyperedge. Items are numbered from 0, in any order.
    tails
        (E, 2) the tails of each hyperedge, -1 for none.
    first_entry
        (E + 1,) hyperedge e switches on ``entries[first_entry[e] : first_entry[e + 1]]``.
    entries
        k for slot k, arity + j for additional j; an additional may be repeated.
    goal
        The goal item.
    name_of
        A function that returns the name of an item in messages.

    Raises
    ------
    ValueError
        If an item or entry is out of range, the items have a cycle, an item below the goal is not
        the head of a hyperedge, a derivation can switch on a slot twice, or a derivation can have
        more than two billion hyperedges.

    Attributes
    ----------
    code
        The hypergraph as one array for kernels, see `lpsmap_dynamic.edges`. Items and hyperedges
        that the goal does not need are left out, and items are in topological order.
    """

    def __init__(
        self,
        arity: int,
        n_additionals: int,
        heads: IntArray,
        tails: IntArray,
        first_entry: IntArray,
        entries: IntArray,
        goal: int,
        name_of: Callable[[int], object] = int,
    ) -> None:
        self.arity, self.n_additionals = arity, n_additionals
        tails = np.ascontiguousarray(tails, dtype=np.int64).reshape(-1, 2)
        _check_ranges(arity + n_additionals, heads, tails, entries, goal)
        n_items = 1 + max(goal, heads.max(initial=-1), tails.max(initial=-1))
        by_head = np.argsort(heads, kind="stable")
        first_edge = np.searchsorted(heads[by_head], np.arange(n_items + 1))
        order = np.empty(n_items, dtype=np.int64)
        what, number = post_order(first_edge, tails[by_head].reshape(-1), goal, order)
        if what != FOUND:
            raise ValueError(_cyclic(what == CYCLE, name_of(number)))
        order = order[:number]
        counts = np.diff(first_edge)[order]
        chosen = by_head[ranges(first_edge, order)]
        position = np.zeros(n_items + 1, dtype=np.int64)  # the last entry is for tails of -1
        position[order] = np.arange(1, number + 1)
        sizes = np.diff(first_entry)[chosen]
        edges = Edges(
            offsets_of(counts),
            position[tails[chosen]].reshape(-1),
            offsets_of(sizes),
            entries[ranges(first_entry, chosen)],
        )
        self._check(edges, lambda e: name_of(int(heads[chosen[e]])))
        n_entries, n_edges = sizes_of_derivations(*edges[:3])
        if n_edges >= MAX_EDGES_OF_FACTOR:
            raise ValueError(
                "hypergraph: a derivation can have more than two billion hyperedges; expected "
                "items that a derivation uses at most a few times."
            )
        self.code = encoded(edges, min(n_entries, arity + n_additionals), n_edges)
        self.code.setflags(write=False)

    @property
    def edges(self) -> Edges:
        """The hyperedges, as views of `code`."""
        return edges_of(self.code, 0)

    @property
    def n_items(self) -> int:
        """Number of items below the goal, including the goal."""
        return int(self.code[N_ITEMS])

    @property
    def n_edges(self) -> int:
        """Number of hyperedges below the goal."""
        return int(self.code[N_EDGES])

    @cached_property
    def used(self) -> BoolArray:
        """(arity + n_additionals,) which entries are on in some structure."""
        used = np.zeros(self.arity + self.n_additionals, dtype=np.bool_)
        used[self.edges.entries] = True
        return used

    @cached_property
    def repeats_additionals(self) -> bool:
        """Whether a derivation can switch on an additional several times."""
        return on_twice(*self.edges, self.arity, self.arity + self.n_additionals)[0] >= 0

    @cached_property
    def with_single_additionals(self) -> tuple[Hypergraph, IntArray]:
        """A copy in which every hyperedge has additionals of its own.

        Also returns, for each of these, the additional that it stands for. If no derivation can
        repeat an additional, this is the hypergraph itself.
        """
        if not self.repeats_additionals:
            return self, np.arange(self.n_additionals)
        first_edge, tails, first_entry, entries = self.edges
        are_slots = entries < self.arity
        origin = entries[~are_slots] - self.arity
        own = np.where(are_slots, entries, self.arity + np.cumsum(~are_slots) - 1)
        heads = np.repeat(np.arange(self.n_items), np.diff(first_edge))
        copy = Hypergraph(
            self.arity, len(origin), heads, tails - 1, first_entry, own, self.n_items - 1
        )
        return copy, origin

    @cached_property
    def n_structures(self) -> int:
        """Number of structures, as an exact integer."""
        everything = np.ones(self.arity + self.n_additionals, dtype=np.bool_)
        return self.count(everything, ~everything)

    def count(self, allowed: BoolArray, forced: BoolArray) -> int:
        """Return the number of structures with only allowed entries and all forced entries.

        Parameters
        ----------
        allowed
            (arity + n_additionals,) which entries are allowed.
        forced
            Which entries must be on.
        """
        edges = self.edges
        forbidden, asked = (
            np.diff(np.concatenate([[0], np.cumsum(mask[edges.entries])])[edges.first_entry])
            for mask in (~allowed, forced)
        )
        first, tails = edges.first_edge.tolist(), edges.tails.reshape(-1, 2).tolist()
        # for every item, the maximum number of forced entries of a derivation, and the number of
        # derivations with that many: those of the goal with all forced entries are counted
        most, ways = [0], [1]  # Python integers do not overflow
        for begin, end in zip(first[:-1], first[1:], strict=True):
            best, number = -1, 0
            for e in range(begin, end):
                a, b = tails[e]
                total = most[a] + most[b] + int(asked[e])
                if forbidden[e] or not ways[a] or not ways[b] or total < best:
                    continue
                number = ways[a] * ways[b] + (number if total == best else 0)
                best = total
            most.append(best)
            ways.append(number)
        return ways[-1] if most[-1] == forced.sum() else 0

    def _check(self, edges: Edges, name_of: Callable[[int], object]) -> None:
        edge, slot = on_twice(*edges, 0, self.arity)
        if edge >= 0:
            raise ValueError(
                f"hypergraph: a derivation of item {name_of(edge)!r} can switch on slot {slot} "
                "twice; expected once, since variables are 0 or 1. Assign it to one hyperedge."
            )

    def __repr__(self) -> str:
        return f"Hypergraph({self.n_items} items, {self.n_edges} hyperedges)"


def _check_ranges(
    n_entries: int, heads: IntArray, tails: IntArray, entries: IntArray, goal: int
) -> None:
    for name, least, numbers in (("heads", 0, heads), ("tails", -1, tails), ("goal", 0, goal)):
        lowest = np.min(numbers, initial=least)
        if lowest < least:
            raise ValueError(f"hypergraph: {name} has {lowest}; expected items, counted from 0.")
    wrong = entries[(entries < 0) | (entries >= n_entries)]
    if wrong.size:
        raise ValueError(
            f"hypergraph: a hyperedge switches on entry {wrong[0]}; expected 0 to "
            f"{n_entries - 1}, slots first."
        )


def _cyclic(is_cycle: bool, name: object) -> str:
    if is_cycle:
        return (
            f"hypergraph: item {name!r} is needed to derive itself; expected no cycle. Distinguish "
            "items by a position or a count."
        )
    return (
        f"hypergraph: item {name!r} is not the head of a hyperedge, but the goal needs it; "
        "expected at least one hyperedge, without tails for an axiom."
    )
