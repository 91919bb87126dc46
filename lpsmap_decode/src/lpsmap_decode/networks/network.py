"""Components whose factors are all tables: networks of multi-state variables.

A *node* is a block of binary variables of which exactly one, or at most one, is on: a multi-state
variable. Factors over a single node are scores of its states; a table is over two or more nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import leaf
from lpsmap_core.api import (
    BoolArray,
    Bucket,
    FloatArray,
    IntArray,
    Part,
    cached_property,
    offsets_of,
    ranges,
)
from lpsmap_decode.networks.ordering import fewest_first
from lpsmap_decode.networks.tables import tables_of
from lpsmap_dynamic import Tables

__all__ = ["Networks", "TableNetwork", "TableScores", "build_network", "expand", "networks_of"]

TWO = 2

ONE, HALF = np.uint64(1), np.uint64(32)
PRIME = np.uint64(0x9E3779B97F4A7C15)
"""The multiplier of a hash of tables, 2^64 divided by the golden ratio (Knuth, volume 3)."""


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
    """(F + 1,) where a table's entries begin in an array of the entries of all tables."""
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


class TableScores(NamedTuple):
    """The scores of a network; ``-inf`` forbids. Tables with equal scores share their entries."""

    states: FloatArray
    entries: FloatArray
    tables: IntArray
    """For each table, where its entries begin."""


def expand(network: TableNetwork, scores: TableScores) -> FloatArray:
    """Return the entries of all tables, one table after the other."""
    offsets = network.table_offsets
    ahead = np.repeat(scores.tables - offsets[:-1], np.diff(offsets))
    return scores.entries[ahead + np.arange(len(ahead))]


def build_network(n_states: IntArray, scope_offsets: IntArray, scope: IntArray) -> TableNetwork:
    """Return the network of given nodes and tables; see `TableNetwork` for the arguments."""
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
    first_entry: IntArray
    """For each table, where its entries begin in the next two arrays."""
    fixed: FloatArray
    """For each entry 0, or ``-inf`` if it is not allowed."""
    additional: IntArray
    """For each entry, the additional that scores it, counted from the first one of its table; -1
    for none."""
    first_additional: IntArray
    """For each table, its first additional in the part."""
    own_state: IntArray
    """States that tables over single nodes score."""
    own_fixed: FloatArray
    own_additional: IntArray
    """For each of these states, the additional of the part that scores it, -1 for none."""


@leaf
def _is_equal(f: int, g: int, size: int, places: Places, eta_v: FloatArray) -> bool:
    """Return whether the entries of two tables have equal scores."""
    begin, n_different = places.first_entry[f], 0
    for e in range(begin, begin + size):
        v = places.additional[e]
        if v >= 0:
            x, y = eta_v[places.first_additional[f] + v], eta_v[places.first_additional[g] + v]
            n_different += x != y
    return n_different == 0


@leaf
def _share_tables(
    places: Places,
    table_offsets: IntArray,
    eta_v: FloatArray,
    words: npt.NDArray[np.uint64],
    slots: IntArray,
    tables: IntArray,
) -> int:
    """Write where the entries of every table begin, the same for equal ones; return their number.

    Parameters
    ----------
    words
        The bits of `eta_v`.
    slots
        Workspace for a hash table: -1 at twice as many places as there are tables, a power of two.
    """
    total, mask = 0, np.uint64(len(slots) - 1)
    for f in range(len(tables)):
        size, begin = table_offsets[f + 1] - table_offsets[f], places.first_entry[f]
        code = np.uint64(begin)
        for e in range(begin, begin + size):
            v = places.additional[e]
            if v >= 0:
                code = (code ^ words[places.first_additional[f] + v]) * PRIME
                code ^= code >> HALF
        at = np.int64(code & mask)
        while True:
            g = slots[at]
            if g < 0:
                slots[at], tables[f] = f, total
                total += size
                break
            same = table_offsets[g + 1] - table_offsets[g] == size
            if same and places.first_entry[g] == begin and _is_equal(f, g, size, places, eta_v):
                tables[f] = tables[g]
                break
            at = np.int64((np.uint64(at) + ONE) & mask)
    return total


@leaf
def _write_scores(
    places: Places,
    table_offsets: IntArray,
    tables: IntArray,
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
    done = 0
    for f in range(len(tables)):
        if tables[f] < done:  # shared with an earlier table
            continue
        for i in range(table_offsets[f + 1] - table_offsets[f]):
            e = places.first_entry[f] + i
            v = places.additional[e]
            score = eta_v[places.first_additional[f] + v] if v >= 0 else 0.0
            of_entries[done + i] = places.fixed[e] + score
        done += table_offsets[f + 1] - table_offsets[f]


@leaf
def _write_means(places: Places, of_states: FloatArray, means: FloatArray) -> None:
    """Write the result of `Networks.means`."""
    for v in range(len(means)):
        means[v] = 1.0 if places.turned[v] else 0.0
    for s in range(len(of_states)):
        v = places.variable[s]
        if v >= 0:
            means[v] = 1.0 - of_states[s] if places.turned[v] else of_states[s]


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
    first_link: IntArray
    """For each place, the link of the first state of its node; those of the other states follow."""
    n_slots: IntArray
    """For each place, the number of states that have a link: all, or all but the last."""
    known: dict[Any, Any] = field(default_factory=dict)
    """Cached results that depend only on the structure, by function or component."""

    @cached_property
    def of_pairs(self) -> BoolArray:
        """For each component, whether it is a network of tables over two nodes each."""
        larger = np.diff(self.network.scope_offsets) != TWO
        return self.covered & ~self._contain(larger)

    @cached_property
    def of_binaries(self) -> BoolArray:
        """For each component, whether it is a network of pairs of nodes of two states each."""
        odd = np.append(0, np.cumsum(self.network.n_states != TWO))[self.first_node]
        found: BoolArray = self.of_pairs & (np.diff(odd) == 0)
        return found

    @cached_property
    def strict(self) -> BoolArray:
        """For each component, whether tables have structurally forbidden entries."""
        before = np.append(0, np.cumsum(self.places.fixed != 0.0))
        first = self.places.first_entry
        return self._contain(before[first + np.diff(self.network.table_offsets)] > before[first])

    def _contain(self, tables: BoolArray) -> BoolArray:
        """Return which components contain a flagged table."""
        counts = np.append(0, np.cumsum(tables))[self.first_table]
        return np.diff(counts) > 0

    def of(self, component: int) -> tuple[TableNetwork, slice, slice]:
        """Return the network of a component, and the slices of its states and tables."""
        whole = self.network
        nodes = slice(*self.first_node[component : component + 2].tolist())
        tables = slice(*self.first_table[component : component + 2].tolist())
        ends = slice(tables.start, tables.stop + 1)
        offsets = whole.scope_offsets[ends]
        scope = whole.scope[offsets[0] : offsets[-1]] - nodes.start
        network = build_network(whole.n_states[nodes], offsets - offsets[0], scope)
        states = slice(*whole.first_state[[nodes.start, nodes.stop]].tolist())
        return network, states, tables

    def assignment(self, chosen: IntArray) -> BoolArray:
        """Return which variables of the part are on, given the chosen state of every node."""
        on = self.places.turned.copy()
        variable = self.places.variable[self.network.first_state[:-1] + chosen]
        on[variable[variable >= 0]] ^= True
        return on

    def scores(self, eta: FloatArray, eta_v: FloatArray) -> TableScores:
        """Return scores of all states and entries; ``-inf`` forbids."""
        places, offsets = self.places, self.network.table_offsets
        tables = np.empty(len(offsets) - 1, dtype=np.int64)
        slots = np.full(2 << len(tables).bit_length(), -1)
        n_entries = _share_tables(places, offsets, eta_v, eta_v.view(np.uint64), slots, tables)
        scores = TableScores(np.empty(len(places.variable)), np.empty(n_entries), tables)
        _write_scores(places, offsets, tables, eta, eta_v, scores.states, scores.entries)
        return scores

    def means(self, of_states: FloatArray) -> FloatArray:
        """Return marginals of the variables of the part from those of states."""
        means = np.empty(len(self.places.turned))
        _write_means(self.places, of_states, means)
        return means


class _Blocks(NamedTuple):
    """The blocks of a bucket's factors."""

    tables: Tables
    bucket: Bucket
    first_link: int
    first_additional: int
    first_slot: IntArray
    """For each block, its first slot; at the end, the number of slots."""
    head: IntArray
    """For each block, the variable of its first slot, which identifies it."""


def networks_of(part: Part) -> Networks:
    """Return the components of a part that are networks; the result is cached."""
    return part.derived(_build_networks)


def _build_networks(part: Part) -> Networks:
    """Find the components of a part that are networks."""
    covered, tables = np.ones(part.n_components, dtype=bool), list(map(tables_of, part.buckets))
    for bucket, one in zip(part.buckets, tables, strict=True):
        if one is None:
            covered[bucket.component] = False
    some = covered.any()  # without a network, the blocks do not matter
    found = [_blocks_of(part, b, one) for b, one in enumerate(tables) if some and one is not None]
    claims = _agree_on_blocks(part, found, covered)
    heads = np.flatnonzero((claims.size > 0) & covered[part.component])
    node = np.full(part.n_variables, -1)
    node[heads] = np.arange(len(heads))
    when = fewest_first(len(heads), *_scopes(found, covered, node))
    heads = heads[np.lexsort((when, part.component[heads]))]
    node[heads] = np.arange(len(heads))
    n_states = claims.size[heads] + ~claims.always[heads]
    claims.turned[~covered[part.component]] = False
    return _arrange(part, found, covered, heads, node, n_states, claims)


def _blocks_of(part: Part, b: int, tables: Tables) -> _Blocks:
    """Return the blocks of a bucket."""
    bucket, first_slot = part.buckets[b], offsets_of(tables.block_sizes)
    first_link, first = int(part.links_of(b).start), int(part.additionals_of(b).start)
    head = bucket.variable[first_slot[:-1]]
    return _Blocks(tables, bucket, first_link, first, first_slot, head)


def _scopes(found: list[_Blocks], covered: BoolArray, node: IntArray) -> tuple[IntArray, IntArray]:
    """Return the offsets and nodes of every table over two or more nodes."""
    lengths, nodes = [], []
    for blocks in found:
        n_blocks = blocks.tables.n_blocks
        several = np.flatnonzero(covered[blocks.bucket.component] & (n_blocks > 1))
        lengths.append(n_blocks[several])
        nodes.append(node[blocks.head[ranges(offsets_of(n_blocks), several)]])
    return offsets_of(_concat(lengths)), _concat(nodes)


class _Claims(NamedTuple):
    """What blocks say about the variables of a part; the last block that has one decides."""

    head: IntArray
    """For each variable, the head of its block; -1 for none."""
    place: IntArray
    """For each variable, its place in the block."""
    turned: BoolArray
    """For each variable, whether its slot is negated."""
    size: IntArray
    """For each head, the number of slots of its block; 0 for other variables."""
    always: BoolArray
    """For each head, whether a slot of its block is always on."""


def _agree_on_blocks(part: Part, found: list[_Blocks], covered: BoolArray) -> _Claims:
    """Return the blocks of all variables.

    Clears `covered` for components whose factors do not agree on the blocks.
    """
    n = part.n_variables
    head, place, flags = np.full(n, -1), np.empty(n, dtype=np.int64), np.zeros((2, n), dtype=bool)
    claims = _Claims(head, place, flags[0], np.zeros(n, dtype=np.int64), flags[1])
    for blocks in found:
        slots = blocks.first_slot, blocks.head, blocks.bucket.variable, blocks.bucket.negated
        _claim(*slots, blocks.tables.always, claims)
    for blocks in found:
        slots = blocks.first_slot, blocks.head, blocks.bucket.variable, blocks.bucket.negated
        _refute(*slots, claims, part.component, covered)
        # a table over a node twice, or with more states than the node has
        n_blocks = blocks.tables.n_blocks
        factor = np.repeat(np.arange(len(n_blocks)), n_blocks)
        wider = (n_blocks[factor] > 1) & (claims.always[blocks.head] != blocks.tables.always)
        covered[part.component[blocks.head[wider]]] = False
        order = np.lexsort((blocks.head, factor))
        f, h = factor[order], blocks.head[order]
        twice = (f[1:] == f[:-1]) & (h[1:] == h[:-1])
        covered[part.component[h[1:][twice]]] = False
    # two different blocks with the same first variable
    more = np.flatnonzero(np.bincount(head[head >= 0], minlength=n) != claims.size)
    covered[part.component[more]] = False
    return claims


@leaf
def _claim(
    first_slot: IntArray,
    heads: IntArray,
    variable: IntArray,
    negated: BoolArray,
    always: bool,
    claims: _Claims,
) -> None:
    """Write the claims of a bucket's blocks."""
    for i in range(len(heads)):
        h, n = heads[i], first_slot[i + 1] - first_slot[i]
        claims.size[h] = n
        claims.always[h] |= always
        for k in range(n):
            slot = first_slot[i] + k
            v = variable[slot]
            claims.head[v], claims.place[v] = h, k
            if n > 1 or always:
                claims.turned[v] = negated[slot]


@leaf
def _refute(
    first_slot: IntArray,
    heads: IntArray,
    variable: IntArray,
    negated: BoolArray,
    claims: _Claims,
    component: IntArray,
    covered: BoolArray,
) -> None:
    """Clear `covered` for components where a bucket's blocks contradict the claims."""
    for i in range(len(heads)):
        h, n = heads[i], first_slot[i + 1] - first_slot[i]
        for k in range(n):
            slot = first_slot[i] + k
            v = variable[slot]
            odd = claims.head[v] != h or claims.place[v] != k or claims.size[h] != n
            turns = negated[slot] != claims.turned[v] and (n > 1 or claims.always[h])
            if odd or turns:
                covered[component[v]] = False


def _arrange(
    part: Part,
    found: list[_Blocks],
    covered: BoolArray,
    heads: IntArray,
    node: IntArray,
    n_states: IntArray,
    claims: _Claims,
) -> Networks:
    """Return the networks, with tables in the order of the components."""
    size, turned = claims.size, claims.turned
    first_state = offsets_of(n_states)
    variable = np.full(first_state[-1], -1)
    first_slot = offsets_of(size[heads])
    mine = np.flatnonzero((claims.head >= 0) & covered[part.component])
    slots = np.empty(len(mine), dtype=np.int64)
    slots[first_slot[node[claims.head[mine]]] + claims.place[mine]] = mine
    of_head = np.repeat(np.arange(len(heads)), size[heads])
    place = _counting(size[heads])
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
    places = ranges(offsets_of(lengths), order)
    first = np.cumsum([0, *(len(p.fixed) for p in pieces)])
    first_entry = _concat([p.first_entry + n for p, n in zip(pieces, first, strict=False)])
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
            first_entry=first_entry[order],
            fixed=_concat([p.fixed for p in pieces], float),
            additional=_concat([p.additional for p in pieces]),
            first_additional=_concat([p.first_additional for p in pieces])[order],
            own_state=_concat([p.own_state for p in pieces]),
            own_fixed=_concat([p.own_fixed for p in pieces], float),
            own_additional=_concat([p.own_additional for p in pieces]),
        ),
        own_link=_concat([p.own_link for p in pieces]),
        first_link=_concat([p.first_link for p in pieces])[places],
        n_slots=_concat([p.n_slots for p in pieces])[places],
    )


class _BucketTables(NamedTuple):
    """The contribution of one bucket to the networks."""

    component: IntArray
    n_places: IntArray
    nodes: IntArray
    first_link: IntArray
    n_slots: IntArray
    first_entry: IntArray
    fixed: FloatArray
    additional: IntArray
    first_additional: IntArray
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
    chosen = ranges(first_block, several)
    first_entry, fixed, additional = _unflipped(blocks, k, first_block, several, n_entries)
    first_additional = blocks.first_additional + bucket.additional_offsets[:-1]
    block = np.repeat(first_block[alone], n_entries[alone])
    own_place = _counting(n_entries[alone])
    place, mine = own_place, node[blocks.head[block]]
    if not tables.always:  # blocks of one slot: swap on and off unless the node already does
        flipped = bucket.negated[blocks.first_slot[block]]
        flipped &= tables.block_sizes[block] == 1
        place = np.where(flipped & ~turned[blocks.head[block]], 1 - own_place, own_place)
    fits = place < n_states[mine]
    own = (np.repeat(tables.first_entry[alone], n_entries[alone]) + own_place)[fits]
    own_additional = np.repeat(first_additional[alone], n_entries[alone])[fits]
    own_additional = np.where(
        tables.additional[own] < 0, -1, tables.additional[own] + own_additional
    )
    on = (own_place < tables.block_sizes[block])[fits]
    own_slot = np.minimum((blocks.first_slot[block] + own_place)[fits], bucket.n_links - 1)
    return _BucketTables(
        component=bucket.component[several],
        n_places=tables.n_blocks[several],
        nodes=node[blocks.head[chosen]],
        first_link=blocks.first_link + blocks.first_slot[chosen],
        n_slots=tables.block_sizes[chosen],
        first_entry=first_entry,
        fixed=fixed,
        additional=additional,
        first_additional=first_additional[several],
        own_state=(first_state[mine] + place)[fits],
        own_fixed=tables.fixed[own],
        own_additional=own_additional,
        own_link=np.where(on, blocks.first_link + own_slot, -1),
    )


def _unflipped(
    blocks: _Blocks,
    k: IntArray,
    first_block: IntArray,
    several: IntArray,
    n_entries: IntArray,
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return `first_entry` of some tables, and their entries with states of negated slots swapped.

    See `Tables`. Only blocks of one slot, with two states, are swapped.
    """
    tables, negated = blocks.tables, blocks.bucket.negated
    if tables.always or not negated.any():
        return tables.first_entry[several], tables.fixed, tables.additional
    sizes = n_entries[several]
    offsets = offsets_of(sizes)
    within = _counting(sizes)
    found, stride = within.copy(), np.ones(len(within), dtype=np.int64)
    n_blocks = blocks.tables.n_blocks[several]
    for back in range(int(n_blocks.max(initial=0))):
        here = back < n_blocks
        block = np.where(here, first_block[several + 1] - 1 - back, 0)
        states, turned = k[block], negated[blocks.first_slot[block]] & here & (k[block] == TWO)
        states, turned = (np.repeat(a, sizes) for a in (np.where(here, states, 1), turned))
        digit = within // stride % states
        found += np.where(turned, (1 - 2 * digit) * stride, 0)
        stride = stride * states
    entries = np.repeat(tables.first_entry[several], sizes) + found
    return offsets[:-1], tables.fixed[entries], tables.additional[entries]


def _counting(sizes: IntArray) -> IntArray:
    """Return 0, 1, ..., size - 1 for every size."""
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)


def _concat(arrays: list[Any], dtype: Any = np.int64) -> Any:
    return np.concatenate([np.empty(0, dtype=dtype), *arrays])
