"""The hypergraph of a factor as pieces: tables over the slots that it shares with other factors.

Small factors are one piece: a list of the choices for the shared slots, each with the derivations
of this choice. Other hypergraphs without branches read the slots in turn, such as those of counts
and sequences. They are cut before every slot: a piece is over a slot and the items on both sides of
it, like the transitions of an automaton, and the number of choices is not a product over slots.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import kernel
from lpsmap_core.api import BoolArray, IntArray, ranges
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.equal_rows import distinct_rows

MAX_CHOICES = 1 << 18
"""Maximum number of the choices of a piece, with their derivations."""

MAX_CELLS = 1 << 28
"""Maximum number of choices, or hyperedges, times shared slots of a piece: 256 MiB."""

MAX_PATHS = 1 << 20
"""Maximum number of paths between the slots of a hypergraph without branches."""

MAX_NODES = 6_000
"""Maximum number of nodes in cycles, which are ordered in some seconds."""


class TooManyChoicesError(ValueError):
    """A factor has too many choices for its shared slots."""


def too_many_choices(name: str, n_shared: int) -> ValueError:
    """Return the error about a factor with too many choices for its shared slots."""
    return ValueError(
        f"gibbs: {name} shares {n_shared} variables with other factors of a cycle, and has too "
        f"many choices for them; expected at most {MAX_CHOICES:.2g}, and fewer of more variables. "
        "Condition on some of the variables with graph.condition(evidence), or use solve(), which "
        "supports any graph."
    )


def too_many_nodes(count: int) -> ValueError:
    """Return the error about a number of nodes in cycles."""
    return ValueError(
        f"gibbs: the factors form cycles through {count} multi-state variables; expected at most "
        f"{MAX_NODES}. Condition on some of the variables with graph.condition(evidence), or use "
        "solve(), which supports any graph."
    )


class PieceEdges(NamedTuple):
    """Hyperedges among the items 0, 1, ... of a piece; their entries are those of the factor."""

    heads: IntArray
    tails: IntArray
    """(E, 2) items, -1 for none."""
    sizes: IntArray
    """(E,) numbers of entries."""
    entries: IntArray
    """Slots that are not shared, and additionals, flat."""


class FactorPiece(NamedTuple):
    """The choices for some shared slots of a factor, and for the items at the cuts around them.

    Attributes
    ----------
    slots
        (k,) the shared slots.
    on
        (R, k) which of them are on, for every choice.
    before, after
        (R,) the states at both cuts.
    n_before, n_after
        The numbers of these states; 1 if there is no cut.
    items
        (R,) the item that derives each choice.
    edges
        The hyperedges below these items.
    """

    slots: IntArray
    on: BoolArray
    before: IntArray
    after: IntArray
    n_before: int
    n_after: int
    items: IntArray
    edges: PieceEdges


def one_piece(hypergraph: Hypergraph, shared: BoolArray) -> FactorPiece:
    """Return a factor as one piece.

    Every item is split by the shared slots that are on in its derivations. The error
    `TooManyChoicesError` says that there are too many.

    Parameters
    ----------
    hypergraph
        The hypergraph of the factor.
    shared
        (arity,) which slots are shared.
    """
    first_edge, tails, first_entry, entries = hypergraph.edges
    owner = np.repeat(np.arange(len(first_entry) - 1), np.diff(first_entry))
    of_shared = np.append(shared, np.zeros(hypergraph.n_additionals, dtype=np.bool_))[entries]
    column = np.cumsum(shared) - 1
    n_edges, n_shared = len(first_entry) - 1, int(shared.sum())
    if n_edges * n_shared > MAX_CELLS:
        raise TooManyChoicesError
    own = np.zeros((n_edges, n_shared), dtype=np.bool_)
    own[owner[of_shared], column[entries[of_shared]]] = True
    sizes = np.bincount(owner[~of_shared], minlength=len(own))
    rest, first_rest = entries[~of_shared], np.cumsum(sizes) - sizes
    ends = tails.reshape(-1, 2)
    on, n_on = np.zeros((64, n_shared), dtype=np.bool_), 1  # of all items' choices; 0 is no tail
    first, count = np.zeros((2, len(first_edge)), dtype=np.int64)
    count[0] = 1
    parts = []
    for item in range(len(first_edge) - 1):
        edges = np.arange(first_edge[item], first_edge[item + 1])
        starts, n = first[ends[edges]], count[ends[edges]]
        n_pairs = n.prod(axis=1)
        n_choices = n_on + n_pairs.sum()
        if n_choices > MAX_CHOICES or n_choices * n_shared > MAX_CELLS:
            raise TooManyChoicesError
        edge = np.repeat(np.arange(len(edges)), n_pairs)
        pair = np.arange(len(edge)) - np.repeat(np.cumsum(n_pairs) - n_pairs, n_pairs)
        left, right = starts[edge, 0] + pair // n[edge, 1], starts[edge, 1] + pair % n[edge, 1]
        edge = edges[edge]
        choices = on[left] | on[right] | own[edge]
        first_choice, which = distinct_rows(choices)
        parts.append((n_on + which, np.stack([left, right], axis=1), edge))
        first[item + 1], count[item + 1] = n_on, len(first_choice)
        n_on += len(first_choice)
        if n_on > len(on):  # doubled, so that rows are not copied for every item
            on = np.concatenate([on, np.zeros((max(len(on), n_on), n_shared), dtype=np.bool_)])
        on[first[item + 1] : n_on] = choices[first_choice]
    heads, both, edge = (np.concatenate(x) for x in zip(*parts, strict=True))
    bounds = np.append(first_rest, len(rest))
    return FactorPiece(
        slots=np.flatnonzero(shared),
        on=on[first[-1] : n_on],
        before=np.zeros(count[-1], dtype=np.int64),
        after=np.zeros(count[-1], dtype=np.int64),
        n_before=1,
        n_after=1,
        items=np.arange(first[-1], n_on) - 1,
        edges=PieceEdges(heads - 1, both - 1, sizes[edge], rest[ranges(bounds, edge)]),
    )


class _Path(NamedTuple):
    """Hyperedges that follow each other, from one cut to the next."""

    begin: int
    end: int
    """The items at both ends."""
    on: bool
    """Whether the slot between the cuts is on."""
    additionals: tuple[int, ...]


class _Chain:
    """A hypergraph without branches, in which every derivation visits slots in their order.

    A derivation is at an item at every cut: the first one that the next slot does not skip.

    Attributes
    ----------
    is_chain
        Whether the hypergraph is one.

    Raises
    ------
    TooManyChoicesError
        If there are too many paths between the cuts.
    ValueError
        If too many of the slots and cuts are nodes in cycles.
    """

    def __init__(self, hypergraph: Hypergraph, shared: BoolArray) -> None:
        self.goal, arity = hypergraph.n_items, hypergraph.arity
        first_edge, tails, first_entry, entries = hypergraph.edges
        n_edges = len(first_entry) - 1
        owner = np.repeat(np.arange(n_edges), np.diff(first_entry))
        of_slots = entries < arity
        slot = np.full(n_edges, -1)
        slot[owner[of_slots]] = entries[of_slots]
        single = np.bincount(owner[of_slots], minlength=n_edges).max(initial=0) <= 1
        self.is_chain = bool(single and not tails[1::2].any())
        if not self.is_chain:
            return
        heads = np.repeat(np.arange(1, self.goal + 1), np.diff(first_edge))
        ends = tails[::2].astype(np.int64)
        self.is_chain, when, latest = _slot_order(heads, ends, slot, self.goal, arity)
        if not self.is_chain:
            return
        order = np.argsort(2 * when + (slot < 0), kind="stable")  # tails stay before heads
        in_order = heads[order], ends[order], slot[order], when[order]
        n_paths, n_nodes = _count_paths(*in_order, latest, shared, MAX_PATHS)
        if n_paths > MAX_PATHS:
            raise TooManyChoicesError
        if n_nodes > MAX_NODES:
            raise too_many_nodes(n_nodes)
        self._latest = latest.tolist()
        extra: list[list[int]] = [[] for _ in range(n_edges)]
        for e, entry in zip(owner[~of_slots].tolist(), entries[~of_slots].tolist(), strict=True):
            extra[e].append(entry)
        # by the cut after which an edge is taken, whether it has a slot, and its tail
        self._edges: dict[tuple[int, bool, int], list[tuple[int, tuple[int, ...]]]]
        self._edges = defaultdict(list)
        keys = zip(when.tolist(), (slot >= 0).tolist(), ends.tolist(), strict=True)
        for key, head, additionals in zip(keys, heads.tolist(), extra, strict=True):
            self._edges[key].append((head, tuple(additionals)))

    def paths(self, arity: int) -> list[list[_Path]]:
        """Return the paths from every cut to the next that are parts of derivations.

        Of the items at a cut with the same continuations, one stands for all.
        """
        layers, here = [], self._extended([_Path(0, 0, False, ())], -1)
        for p in range(arity):
            on = [
                _Path(path.begin, head, True, path.additionals + extra)
                for path in here
                for head, extra in self._edges.get((p, True, path.end), ())
            ]
            paths = self._extended(here + on, p)
            layers.append([path for path in paths if self._latest[path.end] > p])
            here = [_Path(k, k, False, ()) for k in sorted({path.end for path in layers[-1]})]
        alike = {self.goal: self.goal}
        for p in range(arity - 1, -1, -1):
            onward = defaultdict(list)
            for path in layers[p]:
                if path.end in alike:
                    onward[path.begin].append(_Path(path.begin, alike[path.end], *path[2:]))
            first: dict[frozenset[tuple[Any, ...]], int] = {}
            alike = {}
            for item, paths in onward.items():
                same = frozenset(path[1:] for path in paths)
                alike[item] = first.setdefault(same, item)
            layers[p] = [path for item in first.values() for path in onward[item]]
        return layers

    def _extended(self, paths: list[_Path], p: int) -> list[_Path]:
        """Return paths, and their continuations without slots."""
        paths = list(paths)
        for path in paths:  # which grow
            for head, extra in self._edges.get((p, False, path.end), ()):
                paths.append(path._replace(end=head, additionals=path.additionals + extra))
        return paths


@kernel
def _slot_order(
    heads: IntArray, tails: IntArray, slots: IntArray, goal: int, arity: int
) -> tuple[bool, IntArray, IntArray]:
    """Return whether all derivations visit slots in their order, and the cuts at which they are.

    That is for every hyperedge the cut after which it is taken, -2 if it is in no derivation, and
    for every item the latest of those. Hyperedges come with one tail, tails before heads; the slot
    of one without is -1.
    """
    last, following = np.full(goal + 1, -1), np.full(goal + 1, arity)
    latest, when, ordered = np.full(goal + 1, -2), np.full(len(heads), -2), True
    for e in range(len(heads)):
        head, tail, slot = heads[e], tails[e], slots[e]
        ordered &= slot < 0 or last[tail] < slot
        last[head] = max(last[head], last[tail], slot)
    latest[goal] = arity
    for e in range(len(heads) - 1, -1, -1):
        head, tail, slot = heads[e], tails[e], slots[e]
        next_slot = following[head] if slot < 0 else slot
        following[tail] = min(following[tail], next_slot)
        if latest[head] > -2:
            when[e] = next_slot - 1 if slot < 0 else slot
            latest[tail] = max(latest[tail], when[e])
    return ordered, when, latest


@kernel
def _count_paths(
    heads: IntArray,
    tails: IntArray,
    slots: IntArray,
    when: IntArray,
    latest: IntArray,
    shared: BoolArray,
    limit: int,
) -> tuple[float, int]:
    """Return the number of paths from the cuts to the next, and of nodes that are in cycles.

    Hyperedges are in the order of the cuts after which they are taken, those with a slot first. The
    count ends beyond the limit. A shared slot and the cuts around it are in a cycle if both have
    several states. That is certain of a cut if the next slot can be on after some items only; cuts
    of which it is not are left out.
    """
    n_ends, reached = np.zeros(len(latest)), np.empty(len(latest), dtype=np.int64)
    switched, several = np.full(len(latest), -1), np.zeros(len(shared) + 1, dtype=np.bool_)
    n_ends[0], reached[0], n_reached, n_paths = 1.0, 0, 1, 0.0
    e = np.searchsorted(when, -1)
    for p in range(-1, len(shared)):
        n_here, n_switched = n_reached, 0
        while e < len(heads) and when[e] == p:
            head, tail = heads[e], tails[e]
            if slots[e] >= 0 and n_ends[tail] > 0.0 and switched[tail] < p:
                switched[tail] = p
                n_switched += 1
            if n_ends[tail] > 0.0 and n_ends[head] == 0.0:
                reached[n_reached] = head
                n_reached += 1
            n_ends[head] += n_ends[tail]
            e += 1
        if p < 0:
            continue
        several[p] = p > 0 and 0 < n_switched < n_here  # there is one state before the first slot
        n_left = 0
        for i in range(n_reached):
            item = reached[i]
            n_paths += n_ends[item]
            n_ends[item] = np.float64(latest[item] > p)
            if latest[item] > p:
                reached[n_left] = item
                n_left += 1
        n_reached = n_left
        if n_paths > limit:
            break
    in_cycle = shared & several[:-1] & several[1:]
    cuts = np.zeros(len(several), dtype=np.bool_)
    for p in range(len(shared)):
        if in_cycle[p]:
            cuts[p] = cuts[p + 1] = True
    return n_paths, int(in_cycle.sum() + cuts.sum())


def pieces_of_slots(hypergraph: Hypergraph, shared: BoolArray) -> list[FactorPiece] | None:
    """Return a factor as one piece for every slot; None if its hypergraph has branches.

    Parameters
    ----------
    hypergraph, shared
        As for `one_piece`.
    """
    chain = _Chain(hypergraph, shared)
    if not chain.is_chain:
        return None
    pieces, number = [], {0: 0}
    for p, paths in enumerate(chain.paths(hypergraph.arity)):
        ends = sorted({path.end for path in paths})
        following = {item: k for k, item in enumerate(ends)}
        begin = np.array([number[path.begin] for path in paths], dtype=np.int64)
        end = np.array([following[path.end] for path in paths], dtype=np.int64)
        on = np.array([path.on for path in paths], dtype=np.bool_)
        key = (begin * max(len(ends), 1) + end) * 2 + (on & shared[p])
        _, first, items = np.unique(key, return_index=True, return_inverse=True)
        entries = [
            ([p] if path.on and not shared[p] else []) + list(path.additionals) for path in paths
        ]
        edges = PieceEdges(
            heads=items.reshape(-1),
            tails=np.full((len(paths), 2), -1),
            sizes=np.array([len(x) for x in entries], dtype=np.int64),
            entries=np.array([k for x in entries for k in x], dtype=np.int64),
        )
        slots = np.array([p] if shared[p] else [], dtype=np.int64)
        rows = on[first][:, None] if shared[p] else np.empty((len(first), 0), dtype=np.bool_)
        pieces.append(
            FactorPiece(
                slots,
                rows,
                begin[first],
                end[first],
                len(number),
                max(len(ends), 1),
                np.arange(len(first)),
                edges,
            )
        )
        number = following
    return pieces
