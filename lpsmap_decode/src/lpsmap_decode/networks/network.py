"""Components whose factors are all tables: networks of multi-state variables.

A *node* is a block of binary variables of which exactly one, or at most one, is on: a multi-state
variable. Factors over a single node are scores of its states; a table is over two or more nodes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import BoolArray, Bucket, FloatArray, IntArray, Part, offsets_of, ranges
from lpsmap_decode.networks.ordering import fewest_first
from lpsmap_decode.networks.tables import Tables, tables_of

__all__ = ["TableNetwork", "Networks", "build_network", "networks_of"]

TWO = 2


class TableNetwork(NamedTuple):
    """Nodes and the scopes of tables, as flat arrays for kernels."""

    n_states: IntArray
    """For each node, its number of states."""
    first_state: IntArray
    """(N + 1,) where a node's states begin in arrays of all states."""
    scope_offsets: IntArray
    """(F + 1,) table f is over the nodes ``scope[scope_offsets[f]:scope_offsets[f + 1]]``."""
    scope: IntArray
    table_offsets: IntArray
    """(F + 1,) where a table's entries begin in an array of all entries."""
    message_offsets: IntArray
    """For each place in `scope`, where the states of its node begin in an array of all messages."""
    place_offsets: IntArray
    """(N + 1,) node i has the places ``places[place_offsets[i]:place_offsets[i + 1]]``."""
    places: IntArray
    """Places in `scope`, grouped by node."""
    table: IntArray
    """For each place, its table."""
    first: IntArray
    """For each table, its first node; `last` is its last node."""
    last: IntArray


def build_network(n_states: IntArray, scope_offsets: IntArray, scope: IntArray) -> TableNetwork:
    """Return the network of given nodes and tables.

    Parameters
    ----------
    n_states, scope_offsets, scope
        As in `TableNetwork`.
    """
    n_tables = len(scope_offsets) - 1
    sizes = np.ones(n_tables, dtype=np.int64)
    first, last = np.empty((2, n_tables), dtype=np.int64)
    if n_tables:
        sizes = np.multiply.reduceat(n_states[scope], scope_offsets[:-1])
        first = np.minimum.reduceat(scope, scope_offsets[:-1])
        last = np.maximum.reduceat(scope, scope_offsets[:-1])
    return TableNetwork(
        n_states=n_states,
        first_state=offsets_of(n_states),
        scope_offsets=scope_offsets,
        scope=scope,
        table_offsets=offsets_of(sizes),
        message_offsets=offsets_of(n_states[scope]),
        place_offsets=offsets_of(np.bincount(scope, minlength=len(n_states))),
        places=np.argsort(scope, kind="stable"),
        table=np.repeat(np.arange(n_tables), np.diff(scope_offsets)),
        first=first,
        last=last,
    )


class Places(NamedTuple):
    """The sources of the scores of states and entries."""

    variable: IntArray
    """For each state, the variable of the part whose slot is on in the state, -1 for none."""
    turned: BoolArray
    """For each variable of the part, whether that slot is negated."""
    missed_state: IntArray
    """States in which the negated slot of a variable is off, so that the variable scores."""
    missed_variable: IntArray
    fixed: FloatArray
    """For each entry of all tables 0, or ``-inf`` if it is not allowed."""
    additional: IntArray
    """For each entry, the additional of the part that scores it, -1 for none."""
    own_state: IntArray
    """States that tables over single nodes score."""
    own_fixed: FloatArray
    own_additional: IntArray


@leaf
def _write_scores(
    places: Places,
    eta: FloatArray,
    eta_v: FloatArray,
    of_states: FloatArray,
    of_entries: FloatArray,
) -> None:
    """Write the result of `Networks.scores`."""
    for s in range(len(of_states)):
        v = places.variable[s]
        of_states[s] = 0.0 if v < 0 or places.turned[v] else eta[v]
    for i in range(len(places.missed_state)):
        of_states[places.missed_state[i]] += eta[places.missed_variable[i]]
    for i in range(len(places.own_state)):
        v = places.own_additional[i]
        of_states[places.own_state[i]] += places.own_fixed[i] + (eta_v[v] if v >= 0 else 0.0)
    for e in range(len(of_entries)):
        v = places.additional[e]
        of_entries[e] = places.fixed[e] + (eta_v[v] if v >= 0 else 0.0)


@leaf
def _write_means(places: Places, of_states: FloatArray, means: FloatArray) -> None:
    """Write the result of `Networks.means`."""
    for v in range(len(means)):
        means[v] = 1.0 if places.turned[v] else 0.0
    for s in range(len(of_states)):
        v = places.variable[s]
        if v >= 0:
            means[v] = 1.0 - of_states[s] if places.turned[v] else of_states[s]


@leaf
def _add_additionals(
    places: Places, of_states: FloatArray, of_entries: FloatArray, marginals_v: FloatArray
) -> None:
    """Add the marginals of additionals that score states and entries of networks."""
    for i in range(len(places.own_state)):
        if places.own_additional[i] >= 0:
            marginals_v[places.own_additional[i]] += of_states[places.own_state[i]]
    for e in range(len(of_entries)):
        if places.additional[e] >= 0:
            marginals_v[places.additional[e]] += of_entries[e]


@dataclass(frozen=True)
class Networks:
    """The components of a part that are networks, and their mapping to the part."""

    covered: BoolArray
    """For each component, whether it is a network."""
    network: TableNetwork
    """All networks together, in the order of the components."""
    first_node: IntArray
    """(n_components + 1,) where a component's nodes begin."""
    first_table: IntArray
    places: Places
    own_link: IntArray
    """For each state in `Places.own_state`, the link of the slot that is on, -1 for none."""
    link: IntArray
    """For each message, the corresponding link of the part, -1 for none."""
    known: dict[Any, Any] = field(default_factory=dict)
    """Cached results that depend only on the structure, by function or component."""

    @functools.cached_property
    def of_pairs(self) -> BoolArray:
        """For each component, whether it is a network of tables over two nodes each."""
        larger = np.diff(self.network.scope_offsets) != TWO
        return self.covered & ~self._contain(larger)

    @functools.cached_property
    def of_binaries(self) -> BoolArray:
        """For each component, whether it is a network of pairs of nodes of two states each."""
        odd = np.append(0, np.cumsum(self.network.n_states != TWO))[self.first_node]
        found: BoolArray = self.of_pairs & (np.diff(odd) == 0)
        return found

    @functools.cached_property
    def strict(self) -> BoolArray:
        """For each component, whether tables have structurally forbidden entries."""
        table = (
            np.searchsorted(self.network.table_offsets, np.flatnonzero(self.places.fixed), "right")
            - 1
        )
        found = np.zeros(len(self.network.table_offsets) - 1, dtype=bool)
        found[table] = True
        return self._contain(found)

    def _contain(self, tables: BoolArray) -> BoolArray:
        """Return which components contain a flagged table."""
        counts = np.append(0, np.cumsum(tables))[self.first_table]
        return np.diff(counts) > 0

    def of(self, component: int) -> tuple[TableNetwork, slice, slice]:
        """Return the network of a component, and the slices of its states and entries."""
        whole = self.network
        nodes = slice(*self.first_node[component : component + 2].tolist())
        tables = slice(*self.first_table[component : component + 2].tolist())
        ends = slice(tables.start, tables.stop + 1)
        offsets = whole.scope_offsets[ends]
        scope = whole.scope[offsets[0] : offsets[-1]] - nodes.start
        network = build_network(whole.n_states[nodes], offsets - offsets[0], scope)
        states = slice(*whole.first_state[[nodes.start, nodes.stop]].tolist())
        return network, states, slice(*whole.table_offsets[[tables.start, tables.stop]].tolist())

    def assignment(self, chosen: IntArray) -> BoolArray:
        """Return which variables of the part are on, given the chosen state of every node."""
        on = self.places.turned.copy()
        variable = self.places.variable[self.network.first_state[:-1] + chosen]
        on[variable[variable >= 0]] ^= True
        return on

    def scores(self, eta: FloatArray, eta_v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores of all states and entries; ``-inf`` forbids."""
        of_states = np.empty(len(self.places.variable))
        of_entries = np.empty(len(self.places.fixed))
        _write_scores(self.places, eta, eta_v, of_states, of_entries)
        return of_states, of_entries

    def means(self, of_states: FloatArray) -> FloatArray:
        """Return marginals of the variables of the part from those of states."""
        means = np.empty(len(self.places.turned))
        _write_means(self.places, of_states, means)
        return means

    def additionals(
        self, of_states: FloatArray, of_entries: FloatArray, n_additionals: int
    ) -> FloatArray:
        """Return marginals of all additionals of the part from those of states and entries."""
        v = np.zeros(n_additionals)
        _add_additionals(self.places, of_states, of_entries, v)
        return v


class _Blocks(NamedTuple):
    """The blocks of a bucket's factors."""

    tables: Tables
    bucket: Bucket
    first_link: int
    first_additional: int
    first_slot: IntArray
    """For each block, its first slot; at the end, the number of slots."""
    factor: IntArray
    """For each block, its factor."""
    head: IntArray
    """For each block, the variable of its first slot, which identifies it."""


def networks_of(part: Part) -> Networks:
    """Return the components of a part that are networks; the result is cached."""
    return part.derived(_build_networks)


def _build_networks(part: Part) -> Networks:
    """Find the components of a part that are networks."""
    covered = np.ones(part.n_components, dtype=bool)
    found = []
    for b, bucket in enumerate(part.buckets):
        tables = tables_of(bucket)
        if tables is None:
            covered[bucket.component] = False
            continue
        first_slot = offsets_of(tables.block_sizes)
        factor = np.repeat(np.arange(bucket.n_factors), tables.n_blocks)
        first_link, first = int(part.links_of(b).start), int(part.additionals_of(b).start)
        head = bucket.variable[first_slot[:-1]]
        found.append(_Blocks(tables, bucket, first_link, first, first_slot, factor, head))
    size, always, turned = _agree_on_blocks(part, found, covered)
    heads = np.flatnonzero((size > 0) & covered[part.component])
    node = np.full(part.n_variables, -1)
    node[heads] = np.arange(len(heads))
    when = fewest_first(len(heads), *_scopes(found, covered, node))
    heads = heads[np.lexsort((when, part.component[heads]))]
    node[heads] = np.arange(len(heads))
    n_states = size[heads] + ~always[heads]
    turned &= covered[part.component]
    return _arrange(part, found, covered, heads, node, n_states, size, turned)


def _scopes(found: list[_Blocks], covered: BoolArray, node: IntArray) -> tuple[IntArray, IntArray]:
    """Return the offsets and nodes of every table over two or more nodes."""
    lengths, nodes = [], []
    for blocks in found:
        n_blocks = blocks.tables.n_blocks
        several = np.flatnonzero(covered[blocks.bucket.component] & (n_blocks > 1))
        lengths.append(n_blocks[several])
        nodes.append(node[blocks.head[ranges(offsets_of(n_blocks), several)]])
    return offsets_of(_concat(lengths)), _concat(nodes)


def _agree_on_blocks(
    part: Part, found: list[_Blocks], covered: BoolArray
) -> tuple[IntArray, BoolArray, BoolArray]:
    """Return for each head the size of its block and whether a slot is always on, and negations.

    Clears `covered` for components whose factors do not agree on the blocks.
    """
    n = part.n_variables
    head, place = np.full((2, n), -1)
    size, (always, turned) = np.zeros(n, dtype=np.int64), np.zeros((2, n), dtype=bool)
    claims = []
    for blocks in found:
        sizes = blocks.tables.block_sizes
        mine = np.repeat(blocks.head, sizes)
        places = np.arange(len(mine)) - np.repeat(blocks.first_slot[:-1], sizes)
        variable, n_slots = blocks.bucket.variable, np.repeat(sizes, sizes)
        head[variable], place[variable] = mine, places
        size[blocks.head] = sizes
        always[blocks.head] |= blocks.tables.always
        chosen = (n_slots > 1) | blocks.tables.always
        turned[variable[chosen]] = blocks.bucket.negated[chosen]
        claims.append((variable, mine, places, n_slots))
    for blocks, (variable, mine, places, n_slots) in zip(found, claims, strict=True):
        odd = (head[variable] != mine) | (place[variable] != places) | (size[mine] != n_slots)
        odd |= (blocks.bucket.negated != turned[variable]) & ((n_slots > 1) | always[mine])
        covered[part.component[variable[odd]]] = False
        # a table over a node twice, or with more states than the node has
        several = np.repeat(blocks.tables.n_blocks, blocks.tables.n_blocks) > 1
        wider = several & (always[blocks.head] != blocks.tables.always)
        covered[part.component[blocks.head[wider]]] = False
        order = np.lexsort((blocks.head, blocks.factor))
        f, h = blocks.factor[order], blocks.head[order]
        twice = (f[1:] == f[:-1]) & (h[1:] == h[:-1])
        covered[part.component[h[1:][twice]]] = False
    # two different blocks with the same first variable
    more = np.flatnonzero(np.bincount(head[head >= 0], minlength=n) != size)
    covered[part.component[more]] = False
    return size, always, turned


def _arrange(
    part: Part,
    found: list[_Blocks],
    covered: BoolArray,
    heads: IntArray,
    node: IntArray,
    n_states: IntArray,
    size: IntArray,
    turned: BoolArray,
) -> Networks:
    """Return the networks, with tables in the order of the components."""
    first_state = offsets_of(n_states)
    variable = np.full(first_state[-1], -1)
    of_head = np.repeat(np.arange(len(heads)), size[heads])
    place = np.arange(len(of_head)) - np.repeat(offsets_of(size[heads])[:-1], size[heads])
    slots = _slots_of(part, found, covered, node)
    variable[first_state[of_head] + place] = slots
    away = np.flatnonzero(turned[slots])
    others = ranges(first_state, of_head[away])
    counts = n_states[of_head[away]]
    missed = others != np.repeat(first_state[of_head[away]] + place[away], counts)
    pieces = [_of_bucket(blocks, covered, node, n_states, first_state, turned) for blocks in found]
    component = _concat([p.component for p in pieces])
    lengths, nodes = _concat([p.n_places for p in pieces]), _concat([p.nodes for p in pieces])
    # nodes are ordered by component; messages visit tables nearly in the order of nodes
    first = np.minimum.reduceat(nodes, offsets_of(lengths)[:-1]) if len(nodes) else nodes
    order = np.argsort(first, kind="stable")
    component = component[order]
    entries = _concat([p.n_entries for p in pieces])
    places = ranges(offsets_of(lengths), order)
    table_entries = ranges(offsets_of(entries), order)
    messages = _concat([p.n_messages for p in pieces])
    by_place = ranges(offsets_of(messages), places)
    n = part.n_components
    return Networks(
        covered=covered,
        network=build_network(n_states, offsets_of(lengths[order]), nodes[places]),
        first_node=np.searchsorted(part.component[heads], np.arange(n + 1)),
        first_table=np.searchsorted(component, np.arange(n + 1)),
        places=Places(
            variable=variable,
            turned=turned,
            missed_state=others[missed],
            missed_variable=np.repeat(slots[away], counts)[missed],
            fixed=_concat([p.fixed for p in pieces], float)[table_entries],
            additional=_concat([p.additional for p in pieces])[table_entries],
            own_state=_concat([p.own_state for p in pieces]),
            own_fixed=_concat([p.own_fixed for p in pieces], float),
            own_additional=_concat([p.own_additional for p in pieces]),
        ),
        own_link=_concat([p.own_link for p in pieces]),
        link=_concat([p.link for p in pieces])[by_place],
    )


def _slots_of(part: Part, found: list[_Blocks], covered: BoolArray, node: IntArray) -> IntArray:
    """Return the variables of the blocks of nodes, one node after the other."""
    owner = np.full(part.n_variables, -1)
    place = np.zeros(part.n_variables, dtype=np.int64)
    for blocks in found:
        sizes = blocks.tables.block_sizes
        owner[blocks.bucket.variable] = node[np.repeat(blocks.head, sizes)]
        place[blocks.bucket.variable] = np.arange(len(blocks.bucket.variable)) - np.repeat(
            blocks.first_slot[:-1], sizes
        )
    mine = np.flatnonzero((owner >= 0) & covered[part.component])
    return mine[np.lexsort((place[mine], owner[mine]))]


class _BucketTables(NamedTuple):
    """The contribution of one bucket to the networks."""

    component: IntArray
    n_places: IntArray
    n_entries: IntArray
    nodes: IntArray
    n_messages: IntArray
    fixed: FloatArray
    additional: IntArray
    link: IntArray
    own_state: IntArray
    own_fixed: FloatArray
    own_additional: IntArray
    own_link: IntArray


def _of_bucket(
    blocks: _Blocks,
    covered: BoolArray,
    node: IntArray,
    n_states: IntArray,
    first_state: IntArray,
    turned: BoolArray,
) -> _BucketTables:
    tables, bucket = blocks.tables, blocks.bucket
    inside = covered[bucket.component]
    several = np.flatnonzero(inside & (tables.n_blocks > 1))
    alone = np.flatnonzero(inside & (tables.n_blocks == 1))
    first_block = offsets_of(tables.n_blocks)
    k = tables.block_sizes + (not tables.always)
    n_entries = np.ones(bucket.n_factors, dtype=np.int64)
    if len(k):
        n_entries = np.multiply.reduceat(k, first_block[:-1])
    first_entry = offsets_of(n_entries)
    chosen = ranges(first_block, several)
    entries = _unflipped(blocks, k, first_block, several, ranges(first_entry, several), n_entries)
    additional = tables.additional + np.where(tables.additional >= 0, blocks.first_additional, 0)
    # messages: a slot for each state, except the state in which all are off
    of_block = np.repeat(chosen, k[chosen])
    state = np.arange(len(of_block)) - np.repeat(offsets_of(k[chosen])[:-1], k[chosen])
    slot = blocks.first_slot[of_block] + state
    off = state >= tables.block_sizes[of_block]
    own = ranges(first_entry, alone)
    block = np.repeat(first_block[alone], n_entries[alone])
    own_place = np.arange(len(own)) - np.repeat(offsets_of(n_entries[alone])[:-1], n_entries[alone])
    place, mine = own_place, node[blocks.head[block]]
    if not tables.always:  # blocks of one slot: swap on and off unless the node already does
        flipped = bucket.negated[blocks.first_slot[block]]
        flipped &= tables.block_sizes[block] == 1
        place = np.where(flipped & ~turned[blocks.head[block]], 1 - own_place, own_place)
    fits = place < n_states[mine]
    own, on = own[fits], (own_place < tables.block_sizes[block])[fits]
    own_slot = np.minimum((blocks.first_slot[block] + own_place)[fits], bucket.n_links - 1)
    return _BucketTables(
        component=bucket.component[several],
        n_places=tables.n_blocks[several],
        n_entries=n_entries[several],
        nodes=node[blocks.head[chosen]],
        n_messages=k[chosen],
        fixed=tables.fixed[entries],
        additional=additional[entries],
        link=np.where(off, -1, blocks.first_link + np.minimum(slot, bucket.n_links - 1)),
        own_state=(first_state[mine] + place)[fits],
        own_fixed=tables.fixed[own],
        own_additional=additional[own],
        own_link=np.where(on, blocks.first_link + own_slot, -1),
    )


def _unflipped(
    blocks: _Blocks,
    k: IntArray,
    first_block: IntArray,
    several: IntArray,
    entries: IntArray,
    n_entries: IntArray,
) -> IntArray:
    """Return the entries of tables, with the two states of negated slots swapped."""
    negated = blocks.bucket.negated
    if blocks.tables.always or not negated.any():
        return entries
    sizes = n_entries[several]
    within = np.arange(len(entries)) - np.repeat(offsets_of(sizes)[:-1], sizes)
    found, stride = within.copy(), np.ones(len(entries), dtype=np.int64)
    n_blocks = blocks.tables.n_blocks[several]
    for back in range(int(n_blocks.max(initial=0))):
        here = back < n_blocks
        block = np.where(here, first_block[several + 1] - 1 - back, 0)
        states, turned = k[block], negated[blocks.first_slot[block]] & here & (k[block] == TWO)
        states, turned = (np.repeat(a, sizes) for a in (np.where(here, states, 1), turned))
        digit = within // stride % states
        found += np.where(turned, (1 - 2 * digit) * stride, 0)
        stride = stride * states
    return entries - within + found


def _concat(arrays: list[Any], dtype: Any = np.int64) -> Any:
    return np.concatenate([np.empty(0, dtype=dtype), *arrays])
