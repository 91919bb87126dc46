"""Search for the best assignment of a component that is a network of tables.

Small networks are solved by elimination, without a search. Otherwise a node of the search is a set
of open states. Messages bound it, with triplets if the network has short cycles; every node
continues from the messages of the previous one. If a few nodes do not suffice, elimination follows
where it is possible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    out_of_time,
    raise_interrupt,
)
from lpsmap_decode.networks.bounds import tighten
from lpsmap_decode.networks.cycles import no_triplets, subtract_shares, triplets_of
from lpsmap_decode.networks.elimination import MAX_STATES, eliminate, elimination_order
from lpsmap_decode.networks.messages import finite_scores, new_shares
from lpsmap_decode.networks.moves import tabu_search
from lpsmap_decode.networks.network import TableNetwork, TableScores, expand, networks_of
from lpsmap_decode.search import Evaluation, Space, Unfinished
from lpsmap_decode.tolerances import BOUND_ROUNDING, MAX_SUM
from lpsmap_dynamic import EliminationOrder

__all__ = ["NetworkSpace"]

SMALL_COST, LARGE_COST = 1e5, 1e9
"""Entries of joined tables up to which elimination comes first, and up to which it is possible."""

FIRST_NODES = 20
"""Nodes evaluated before a large elimination."""

ROOT_ROUNDS, ROUNDS = 400, 40
"""Rounds of messages for the root and for other nodes."""

MAX_ROOT_PERIODS, MAX_PERIODS = 400.0, 10.0
"""Messages continue while this many periods like the last would close the gap."""


class NetworkSpace(Space[BoolArray, BoolArray]):
    """The search space of a component that is a network of tables.

    A node is an array of flags of open states; an answer is an array of flags of variables.

    Parameters
    ----------
    part, component
        The part, and the number of the component in it.
    eta, eta_v
        Scores of all variables and additionals of the part.
    gap
        The gap of the search; see `Search`.
    """

    def __init__(
        self, part: Part, component: int, eta: FloatArray, eta_v: FloatArray, gap: float
    ) -> None:
        self._part, self._component, self._gap = part, component, gap
        (self._plain, states, tables), self._order = _structure(part, component)
        networks = networks_of(part)
        scores = networks.scores(eta, eta_v)
        self._scores = TableScores(scores.states[states], scores.entries, scores.tables[tables])
        self._decisive = finite_scores(self._plain, self._scores)[1]
        self._rounding = BOUND_ROUNDING * self._decisive
        self._n_looks, self._solved, self._prepared = 0, False, False
        of_pairs = bool(networks.of_pairs[component])
        self.serves = (of_pairs or self._order.cost <= LARGE_COST) and self._decisive <= MAX_SUM
        """Whether the component can be searched in this way."""
        self.ends_soon = self._order.cost <= LARGE_COST
        """Whether elimination solves the component after a few nodes."""

    def _prepare(self) -> None:
        """Allocate the state of the bounds."""
        finite, _ = finite_scores(self._plain, self._scores)
        found = None if out_of_time() else triplets_of(self._plain)
        self._network, self._triplets = found or (self._plain, no_triplets())
        # triplets change the scores of single tables
        own, offsets = expand(self._plain, TableScores(*finite[:3])), self._network.table_offsets
        own = np.append(own, np.zeros(int(offsets[-1]) - len(own)))
        self._entries, self._own = own, np.zeros(int(self._triplets.offsets[-1]))
        self._given = finite._replace(entries=own.copy(), tables=offsets[:-1])
        self._shares, self._prepared = new_shares(self._network), True

    def root(self) -> BoolArray:
        """Return the root node: all states that are not forbidden are open."""
        return self._scores.states > -np.inf

    def evaluate(
        self, nodes: Sequence[BoolArray], score: float
    ) -> Sequence[Evaluation[BoolArray, BoolArray]] | Unfinished[BoolArray]:
        """Bound or solve a node, round it, and branch on the states of a network node."""
        (open_states,) = nodes
        if self._solved:  # by elimination: no open node is better
            return [Evaluation(score)]
        n_before, self._n_looks = self._n_looks, self._n_looks + 1
        wait = 0 if self._order.cost <= SMALL_COST else FIRST_NODES
        if n_before >= wait and self.ends_soon:
            evaluation = self._eliminated()
            if evaluation is not None:
                return [evaluation]
        first = not self._prepared
        if first:
            self._prepare()
        evaluation = self._bounded(open_states, score, first)
        raise_interrupt()
        return Unfinished(evaluation.answer, evaluation.score) if out_of_time() else [evaluation]

    def _eliminated(self) -> Evaluation[BoolArray, BoolArray] | None:
        """Return the best assignment with its score as the bound; None if the time was up."""
        chosen = np.zeros(len(self._plain.n_states), dtype=np.int64)
        plain = self._plain
        score = eliminate(
            plain.n_states,
            plain.first_state,
            plain.scope_offsets,
            plain.scope,
            plain.table_offsets,
            *self._scores,
            self._order.nodes,
            chosen,
        )
        raise_interrupt()
        if np.isnan(score):
            return None
        self._solved = True
        if score == -np.inf:
            return Evaluation(-np.inf)
        return Evaluation(score, (), self._answer(chosen), score)

    def _bounded(
        self, open_states: BoolArray, score: float, first: bool
    ) -> Evaluation[BoolArray, BoolArray]:
        given, network = self._given, self._network
        given.closed[:] = np.where(open_states, 0.0, -np.inf)
        given.entries[:] = self._entries
        chosen = np.zeros(len(network.n_states), dtype=np.int64)
        subtract_shares(network, self._triplets, self._own, given.entries)
        least = score + self._gap * max(1.0, abs(score)) if score > -np.inf else -np.inf
        bound = self._rounding + tighten(
            network,
            self._triplets,
            given,
            self._shares,
            self._own,
            score - self._rounding,
            least - self._rounding,
            ROOT_ROUNDS if first else ROUNDS,
            MAX_ROOT_PERIODS if first else MAX_PERIODS,
            chosen,
        )
        if bound < -0.5 * self._decisive:
            return Evaluation(-np.inf)
        left = given.closed == 0.0
        given.entries[:] = self._entries
        best = tabu_search(network, given, chosen, len(given.states))  # a move per state
        feasible = best >= -0.5 * self._decisive
        best, answer = (best, self._answer(chosen)) if feasible else (-np.inf, None)
        children = self._branch(left) if bound > max(score, best) else []
        return Evaluation(bound, children, answer, best)

    def _branch(self, left: BoolArray) -> list[BoolArray]:
        """Branch on the most uncertain network node: its best state, and its other states.

        Return no children if every network node has one state left.
        """
        first_state = self._network.first_state
        beliefs = np.where(left, self._shares.beliefs, -np.inf)
        owner = np.repeat(np.arange(len(first_state) - 1), np.diff(first_state))
        several = np.bincount(owner, left) > 1
        if not several.any():
            return []
        most = np.maximum.reduceat(beliefs, first_state[:-1])
        best = np.full(len(several), -1)
        ties = np.flatnonzero(beliefs == most[owner])
        best[owner[ties]] = ties
        beliefs[best] = -np.inf
        margin = np.where(several, most - np.maximum.reduceat(beliefs, first_state[:-1]), np.inf)
        node = int(margin.argmin())
        chosen, others = left.copy(), left.copy()
        chosen[owner == node] = False
        chosen[best[node]] = True
        others[best[node]] = False
        return [chosen, others]

    def _answer(self, chosen: IntArray) -> BoolArray:
        """Return which variables of the component are on."""
        networks = networks_of(self._part)
        states = np.zeros(len(networks.network.n_states), dtype=np.int64)
        first, end = networks.first_node[self._component : self._component + 2]
        states[first:end] = chosen
        variables = slice(*self._part.first_variable[self._component : self._component + 2])
        return networks.assignment(states)[variables]


def _structure(
    part: Part, component: int
) -> tuple[tuple[TableNetwork, slice, slice], EliminationOrder]:
    """Return the network of a component and its elimination order.

    The result is cached, since it does not depend on the scores, unless the time was up.
    """
    networks = networks_of(part)
    known: dict[int, tuple[tuple[TableNetwork, slice, slice], EliminationOrder]] = networks.known
    if component not in known:
        found = networks.of(component)
        order = elimination_order(found[0], LARGE_COST)
        if found[0].n_states.max(initial=0) > MAX_STATES:
            order = order._replace(cost=np.inf)
        raise_interrupt()
        if out_of_time():
            return found, order
        known[component] = found, order
    return known[component]
