"""Sums over connected factors by a junction tree, written as one hypergraph.

Variables that are in the same pieces of factors form a *node*, whose states are the choices for
them that all these pieces allow: a block of states is one node. Nodes are eliminated in turn
(Lauritzen & Spiegelhalter 1988; bucket elimination, Dechter 1999): the tables over a node are
joined, and its states are summed over. A table does not hold numbers but an item for every joint
state, and a step of the elimination is a hyperedge from the joined items to that of their sum. The
result is a dynamic program, so that marginals, derivatives and samples follow as for any other.

Tables list only joint states that the factors allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, IntArray, interruptible, ranges
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.elimination_order import cheapest_order
from lpsmap_dynamic.equal_rows import distinct_rows
from lpsmap_dynamic.factor_pieces import (
    MAX_NODES,
    FactorPiece,
    PieceEdges,
    TooManyChoicesError,
    one_piece,
    pieces_of_slots,
    too_many_choices,
    too_many_nodes,
)

EDGE_BYTES = 260
"""Bytes of a hyperedge while a hypergraph is built and summed over."""

MAX_TREE_BYTES = 1 << 32
"""Maximum bytes of all hyperedges: 4 GiB."""

MAX_SHARED_NODES, SMALL = 3, 6
"""A factor is one piece if it shares at most so many nodes with others, and is a plain list of
structures or has at most so many slots."""

MAX_CODE, MAX_COST = 2.0**62, float(np.finfo(np.float64).max)


class TreePart(NamedTuple):
    """One of the factors: its hypergraph, and the variable of each slot, which may be negated."""

    hypergraph: Hypergraph
    variables: IntArray
    negated: BoolArray
    name: Callable[[], str]


class _Table(NamedTuple):
    """The joint states of some nodes, each with the item that derives it."""

    nodes: list[int]
    states: IntArray
    """(R, len(nodes))"""
    items: IntArray


class _Edges:
    """The hyperedges so far."""

    def __init__(self) -> None:
        self.n_items = self.n_edges = 0
        self._parts: list[PieceEdges] = []

    def new_items(self, n: int) -> IntArray:
        """Return the numbers of new items."""
        self.n_items += n
        return np.arange(self.n_items - n, self.n_items)

    def add(self, edges: PieceEdges) -> None:
        """Add hyperedges."""
        self.n_edges += len(edges.heads)
        self._parts.append(edges)

    def hypergraph(self, arity: int, goal: int) -> Hypergraph:
        """Return the hypergraph of the items below a goal."""
        heads, tails, sizes, entries = (np.concatenate(x) for x in zip(*self._parts, strict=True))
        first_entry = np.append(0, np.cumsum(sizes))
        return Hypergraph(arity, 0, heads, tails, first_entry, entries, goal)


def junction_tree(parts: Sequence[TreePart], n_variables: int) -> Hypergraph | None:
    """Return a hypergraph whose structures are the assignments that all factors allow.

    Its slots are the variables, and then the additionals of one factor after the other. The slot of
    a variable that only one factor contains is negated if that factor's is.

    Parameters
    ----------
    parts
        The factors.
    n_variables
        The number of their variables.

    Returns
    -------
    Hypergraph | None
        None if no assignment is allowed.
    """
    extra = [part.hypergraph.n_additionals for part in parts]
    first_extra = n_variables + np.cumsum([0, *extra])
    count = np.bincount(np.concatenate([part.variables for part in parts]), minlength=n_variables)
    shared = count > 1
    edges, pieces = _Edges(), []
    number = _nodes_of([part.variables for part in parts], shared)
    known: dict[tuple[Hypergraph, bytes, bool], list[FactorPiece]] = {}
    for part, begin in zip(parts, first_extra.tolist(), strict=False):
        own = np.concatenate([part.variables, begin + np.arange(part.hypergraph.n_additionals)])
        mine = shared[part.variables]
        few = len({*number[part.variables[mine]].tolist()}) <= MAX_SHARED_NODES
        key = part.hypergraph, mine.tobytes(), few
        if key not in known:
            known[key] = _pieces(part, mine, few)
        for piece in known[key]:
            base = edges.new_items(1 + int(piece.edges.heads.max(initial=-1)))
            first = int(base[0]) if len(base) else 0
            heads, tails, sizes, entries = piece.edges
            shifted = np.where(tails < 0, -1, tails + first)
            edges.add(PieceEdges(heads + first, shifted, sizes, own[entries]))
            on = piece.on ^ part.negated[piece.slots]
            pieces.append(
                piece._replace(slots=part.variables[piece.slots], on=on, items=piece.items + first)
            )
    tree = _Elimination(edges, pieces, shared)
    goal = tree.run()
    return None if goal is None else edges.hypergraph(int(first_extra[-1]), goal)


def _pieces(part: TreePart, shared: BoolArray, few: bool) -> list[FactorPiece]:
    """Return a factor as one piece, or as one for every slot if it does not share few nodes."""
    hypergraph = part.hypergraph
    try:
        if not few or (hypergraph.n_items > 1 and hypergraph.arity > SMALL):
            pieces = pieces_of_slots(hypergraph, shared)
            if pieces is not None:
                return pieces
        return [one_piece(hypergraph, shared)]
    except TooManyChoicesError:
        raise too_many_choices(part.name(), int(shared.sum())) from None


def _nodes_of(scopes: Sequence[IntArray], shared: BoolArray) -> IntArray:
    """Return the node of every variable: those in the same scopes; -1 for variables not shared."""
    around: list[list[int]] = [[] for _ in shared]
    for k, scope in enumerate(scopes):
        for v in scope.tolist():
            around[v].append(k)
    known: dict[tuple[int, ...], int] = {}
    nodes = [
        known.setdefault(tuple(around[v]), len(known)) if shared[v] else -1
        for v in range(len(shared))
    ]
    return np.array(nodes, dtype=np.int64)


class _Elimination:
    """The elimination of the nodes of pieces, whose slots are variables."""

    def __init__(self, edges: _Edges, pieces: list[FactorPiece], shared: BoolArray) -> None:
        self._edges = edges
        node = _nodes_of([piece.slots for piece in pieces], shared)
        self._sizes = [0] * (1 + int(node.max(initial=-1)))
        # for every state of a node, the variables that are on
        self._on: list[tuple[IntArray, IntArray]] = [(np.zeros(1, int), np.empty(0, int))] * len(
            self._sizes
        )
        columns = self._columns(pieces, node)
        self._tables: list[_Table] = []
        before = -1
        for piece, own in zip(pieces, columns, strict=True):
            nodes, states = list(own), list(own.values())
            if piece.n_before > 1:
                nodes.append(before)
                states.append(piece.before)
            if piece.n_after > 1:
                before = len(self._sizes)
                self._sizes.append(piece.n_after)
                self._on.append((np.zeros(piece.n_after + 1, int), np.empty(0, int)))
                nodes.append(before)
                states.append(piece.after)
            table = np.stack([*states, piece.items], axis=1)
            table = table[(table >= 0).all(axis=1)]
            self._tables.append(_Table(nodes, table[:, :-1], table[:, -1]))

    def _columns(self, pieces: list[FactorPiece], node: IntArray) -> list[dict[int, IntArray]]:
        """Return the state of every node of a piece, for its choices; -1 if others forbid it."""
        used: dict[int, list[tuple[int, BoolArray]]] = {}
        variables: dict[int, IntArray] = {}
        for k, piece in enumerate(pieces):
            order = np.argsort(piece.slots, kind="stable")
            own = node[piece.slots[order]]
            for x in np.unique(own).tolist():
                chosen = order[own == x]
                variables[x] = piece.slots[chosen]
                used.setdefault(x, []).append((k, piece.on[:, chosen]))
        columns: list[dict[int, IntArray]] = [{} for _ in pieces]
        for x, tables in used.items():
            rows = np.concatenate([on for _, on in tables])
            first, which = distinct_rows(rows)
            rows = rows[first]
            ends = np.cumsum([len(on) for _, on in tables])
            allowed = np.ones(len(rows), dtype=np.bool_)
            for own in np.split(which, ends[:-1]):
                allowed &= np.bincount(own, minlength=len(rows)) > 0
            state = np.where(allowed, np.cumsum(allowed) - 1, -1)
            for (k, _), own in zip(tables, np.split(which, ends[:-1]), strict=True):
                columns[k][x] = state[own]
            row, at = np.nonzero(rows[allowed])
            self._sizes[x] = int(allowed.sum())
            self._on[x] = (
                np.append(0, np.cumsum(np.bincount(row, minlength=self._sizes[x]))),
                variables[x][at],
            )
        return columns

    def run(self) -> int | None:
        """Eliminate all nodes; return the goal item, or None if no assignment is allowed."""
        order = self._order()
        self._check_size(order)
        position = {x: t for t, x in enumerate(order)}
        waiting: list[list[_Table]] = [[] for _ in order]
        roots: list[_Table] = []
        for table in self._tables:
            self._place(table, position, waiting, roots)
        for x, tables in zip(order, waiting, strict=True):
            self._place(self._sum_out(x, tables), position, waiting, roots)
        if any(not len(table.items) for table in roots):
            return None
        goal = roots[0]
        for table in roots[1:]:
            goal = self._joined(goal, table)
        return int(goal.items[0])

    @staticmethod
    def _place(
        table: _Table,
        position: dict[int, int],
        waiting: list[list[_Table]],
        roots: list[_Table],
    ) -> None:
        """Put a table where the first of its nodes is eliminated."""
        if table.nodes:
            waiting[min(position[x] for x in table.nodes)].append(table)
        else:
            roots.append(table)

    def _sum_out(self, x: int, tables: list[_Table]) -> _Table:
        """Join the tables over a node, and sum over its states."""
        tables = sorted(tables, key=lambda table: len(table.items))
        joined = tables[0]
        for table in tables[1:-1]:
            joined = self._joined(joined, table)
        tails = np.stack([joined.items, np.full(len(joined.items), -1)], axis=1)
        if len(tables) > 1:
            left, right = self._matches(joined, tables[-1])
            joined, tails = _product(joined, tables[-1], left, right)
        at = joined.nodes.index(x)
        others = np.delete(joined.states, at, axis=1)
        nodes = [y for y in joined.nodes if y != x]
        _, first, which = np.unique(
            self._codes(nodes, others), return_index=True, return_inverse=True
        )
        items = self._edges.new_items(len(first))
        bounds, on = self._on[x]
        state = joined.states[:, at]
        sizes, entries = np.zeros(len(state), dtype=np.int64), on
        if len(on):
            sizes, entries = np.diff(bounds)[state], on[ranges(bounds, state)]
        self._edges.add(PieceEdges(items[which.reshape(-1)], tails, sizes, entries))
        return _Table(nodes, others[first], items)

    def _joined(self, left: _Table, right: _Table) -> _Table:
        """Return the table of all joint states of two."""
        table, tails = _product(left, right, *self._matches(left, right))
        items = self._edges.new_items(len(tails))
        none = np.empty(0, dtype=np.int64)
        self._edges.add(PieceEdges(items, tails, np.zeros(len(items), dtype=np.int64), none))
        return table._replace(items=items)

    def _matches(self, left: _Table, right: _Table) -> tuple[IntArray, IntArray]:
        """Return all pairs of rows of two tables that agree on common nodes."""
        common = [x for x in left.nodes if x in right.nodes]
        rows = [table.states[:, [table.nodes.index(x) for x in common]] for table in (left, right)]
        codes = self._codes(common, np.concatenate(rows))
        of_left, of_right = codes[: len(rows[0])], codes[len(rows[0]) :]
        order = np.argsort(of_right, kind="stable")
        low, high = (np.searchsorted(of_right[order], of_left, side) for side in ("left", "right"))
        counts = high - low
        matched = np.repeat(np.arange(len(of_left)), counts)
        offset = np.arange(len(matched)) - np.repeat(np.cumsum(counts) - counts, counts)
        return matched, order[low[matched] + offset]

    def _codes(self, nodes: list[int], states: IntArray) -> IntArray:
        """Return a number for every row of states of nodes; equal rows have equal numbers."""
        sizes = np.array([self._sizes[x] for x in nodes], dtype=np.int64)
        if sizes.astype(np.float64).prod() < MAX_CODE:
            strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)[: len(sizes)]
            codes: IntArray = states @ strides
            return codes
        return distinct_rows(states)[1]

    def _order(self) -> list[int]:
        """Return an elimination order: nodes of one neighbour first, as in trees."""
        around: list[set[int]] = [set() for _ in self._sizes]
        for table in self._tables:
            for x in table.nodes:
                around[x].update(table.nodes)
        for x, others in enumerate(around):
            others.discard(x)
        order = [x for x, others in enumerate(around) if len(others) <= 1]
        gone = set(order)
        for x in order:  # which grows
            for y in around[x]:
                around[y].discard(x)
                if len(around[y]) <= 1 and y not in gone:
                    gone.add(y)
                    order.append(y)
        rest = [x for x in range(len(around)) if x not in gone]
        number = {x: k for k, x in enumerate(rest)}
        if len(rest) > MAX_NODES:
            raise too_many_nodes(len(rest))
        neighbours = np.zeros((len(rest), len(rest)), dtype=np.bool_)
        for x in rest:
            neighbours[number[x], [number[y] for y in around[x]]] = True
        sizes = np.array([self._sizes[x] for x in rest], dtype=np.int64)
        order_of = interruptible(cheapest_order)
        elimination = order_of(sizes, neighbours.copy(), MAX_COST)
        if not elimination.cost < np.inf:  # products that overflow
            elimination = order_of(np.ones_like(sizes), neighbours, MAX_COST)
        return order + [rest[k] for k in elimination.nodes.tolist()]

    def _check_size(self, order: list[int]) -> None:
        """Bound the numbers of joint states that an order needs, without listing them.

        A join has at most as many for each of the first table as the second table has, and as its
        new nodes have.
        """
        position = {x: t for t, x in enumerate(order)}
        waiting: list[list[tuple[float, frozenset[int]]]] = [[] for _ in order]
        for table in self._tables:
            if table.nodes:
                first = min(position[x] for x in table.nodes)
                waiting[first].append((float(len(table.items)), frozenset(table.nodes)))
        total, most, widest = float(self._edges.n_edges), 0.0, 0
        for x, tables in zip(order, waiting, strict=True):
            (rows, nodes), *others = sorted(tables, key=lambda table: table[0])
            for more, scope in others:
                rows *= min(more, self._n_states(scope - nodes))
                nodes |= scope
                total += rows
            total += 0.0 if others else rows
            most, widest = max((most, widest), (rows, len(nodes)))
            rest = nodes - {x}
            if rest:
                message = min(rows, self._n_states(rest)), rest
                waiting[min(position[y] for y in rest)].append(message)
        if total * EDGE_BYTES > MAX_TREE_BYTES:
            raise ValueError(
                "gibbs: the factors form cycles, and sums over them need tables over up to "
                f"{widest} multi-state variables, with up to {most:.3g} joint states, and "
                f"{total * EDGE_BYTES / 2**30:.3g} GiB of memory; expected at most "
                f"{MAX_TREE_BYTES / 2**30:g} GiB. Condition on some of the variables with "
                "graph.condition(evidence), or use solve(), which supports any graph."
            )

    def _n_states(self, nodes: Iterable[int]) -> float:
        """Return the number of choices of one state for each node."""
        return math.prod(float(self._sizes[x]) for x in nodes)


def _product(
    left: _Table, right: _Table, rows: IntArray, others: IntArray
) -> tuple[_Table, IntArray]:
    """Return the joint table of pairs of rows, and both items of every pair."""
    new = [k for k, x in enumerate(right.nodes) if x not in left.nodes]
    states = np.concatenate([left.states[rows], right.states[others][:, new]], axis=1)
    tails = np.stack([left.items[rows], right.items[others]], axis=1)
    return _Table(left.nodes + [right.nodes[k] for k in new], states, left.items[:0]), tails
