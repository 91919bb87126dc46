"""The best assignment of a component that is a network of tables.

Small ones are solved by elimination, without a search. Otherwise a node of the search has some
states open. Its bound is by messages, and by triplets where there are short circles; all nodes go
on from the messages of the one looked at before. If a few nodes do not suffice, elimination comes
after all, where it is possible.
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
from lpsmap_decode.networks.elimination import MOST_STATES, Order, eliminate, elimination_order
from lpsmap_decode.networks.messages import Potentials, finite_scores, new_shares
from lpsmap_decode.networks.moves import improve
from lpsmap_decode.networks.network import Network, networks_of
from lpsmap_decode.search import CutShort, Look, Space

__all__ = ["States"]

SMALL, LARGE = 1e5, 1e9
"""Entries of joined tables up to which elimination comes first, and is tried at all."""

A_FEW = 20
"""Nodes that are looked at before a large elimination."""

ROOT_ROUNDS, ROUNDS = 400, 40
"""Of messages, for the first node and for others."""

ROOT_PATIENCE, PATIENCE = 400.0, 10.0
"""A bound goes on falling while so many periods like the last would close the gap."""

MOVES = 10
"""Of local search for every state, once; then one for every state at each node."""

ROUNDING = 1e-13
"""Added to bounds, in units of the summed magnitudes of the scores: what rounding may hide."""

LARGEST = 1e9
"""Of the summed magnitudes: messages lose the digits that scores beyond have."""


class States(Space[BoolArray, BoolArray]):
    """The choices of states in a component that is a network.

    A node is which states are open, an answer which variables are on.

    Parameters
    ----------
    part, component
        The part that it is of, and its number.
    eta, eta_v
        Scores of all variables and additionals of the part.
    gap
        Of the search: see `Search`.
    """

    def __init__(
        self, part: Part, component: int, eta: FloatArray, eta_v: FloatArray, gap: float
    ) -> None:
        self._part, self._component, self._gap = part, component, gap
        (self._plain, self._states, entries), self._order = _structure(part, component)
        networks = networks_of(part)
        scores, entry_scores = networks.scores(eta, eta_v)
        self._scores = scores[self._states], entry_scores[entries]
        self._decisive = finite_scores(*self._scores)[2]
        self._rounding = ROUNDING * self._decisive
        self._n_looks, self._solved, self._prepared = 0, False, False
        of_pairs = bool(networks.of_pairs[component])
        self.serves = (of_pairs or self._order.cost <= LARGE) and self._decisive <= LARGEST
        """Whether this is the way to search the component."""

    def _prepare(self) -> None:
        """Make what bounds need."""
        states, own, _ = finite_scores(*self._scores)
        found = None if out_of_time() else triplets_of(self._plain)
        self._network, self._triplets = found or (self._plain, no_triplets())
        own = np.append(own, np.zeros(int(self._network.table_offsets[-1]) - len(own)))
        self._entries, self._own = own, np.zeros(int(self._triplets.offsets[-1]))
        self._given = Potentials(states, own.copy(), np.zeros(len(states)))
        self._shares, self._prepared = new_shares(self._network), True

    def root(self) -> BoolArray:
        """Return the node in which all states that are not forbidden are open."""
        return self._scores[0] > -np.inf

    def look(
        self, nodes: Sequence[BoolArray], score: float
    ) -> Sequence[Look[BoolArray, BoolArray]] | CutShort[BoolArray]:
        """Bound a node by messages, or solve it; round, and branch on a node of the network."""
        (open_states,) = nodes
        if self._solved:  # by elimination, so that nothing below any node is better
            return [Look(score)]
        n_before, self._n_looks = self._n_looks, self._n_looks + 1
        wait = 0 if self._order.cost <= SMALL else A_FEW
        if n_before >= wait and self._order.cost <= LARGE:
            look = self._eliminated()
            if look is not None:
                return [look]
        first = not self._prepared
        if first:
            self._prepare()
        look = self._bounded(open_states, score, first)
        raise_interrupt()
        return CutShort(look.answer, look.score) if out_of_time() else [look]

    def _eliminated(self) -> Look[BoolArray, BoolArray] | None:
        """Return the best assignment, with the bound that it is; None if there was no time."""
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
            return Look(-np.inf)
        return Look(score, (), self._answer(chosen), score)

    def _bounded(
        self, open_states: BoolArray, score: float, first: bool
    ) -> Look[BoolArray, BoolArray]:
        given, network = self._given, self._network
        given.closed[:] = np.where(open_states, 0.0, -np.inf)
        given.entries[:] = self._entries
        chosen, answer, best = np.zeros(len(network.n_states), dtype=np.int64), None, -np.inf
        if first:
            best, answer = self._improved(chosen, MOVES)
        subtract_shares(network, self._triplets, self._own, given.entries)
        known = max(score, best)
        least = known + self._gap * max(1.0, abs(known)) if known > -np.inf else -np.inf
        bound = self._rounding + tighten(
            network,
            self._triplets,
            given,
            self._shares,
            self._own,
            known - self._rounding,
            least - self._rounding,
            ROOT_ROUNDS if first else ROUNDS,
            ROOT_PATIENCE if first else PATIENCE,
            chosen,
        )
        if bound < -0.5 * self._decisive:
            return Look(-np.inf)
        left = given.closed == 0.0
        given.entries[:] = self._entries
        found, other = self._improved(chosen, 1)
        if found > best:
            best, answer = found, other
        children = self._branched(left) if bound > max(score, best) else []
        return Look(bound, children, answer, best)

    def _improved(self, chosen: IntArray, n_moves: int) -> tuple[float, BoolArray | None]:
        """Return the score of an assignment after so many moves for every state, and what is on."""
        score = improve(self._network, self._given, chosen, n_moves * len(self._given.states))
        if score < -0.5 * self._decisive:
            return -np.inf, None
        return score, self._answer(chosen)

    def _branched(self, left: BoolArray) -> list[BoolArray]:
        """Return two nodes: the best state of the most doubtful node of the network, and the rest.

        The node itself if nothing is left to choose, which its bound gives up.
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


def _structure(part: Part, component: int) -> tuple[tuple[Network, slice, slice], Order]:
    """Return a component's network and the order to eliminate it in.

    Found once for all scores, if in time.
    """
    networks = networks_of(part)
    known: dict[int, tuple[tuple[Network, slice, slice], Order]] = networks.known
    if component not in known:
        found = networks.of(component)
        order = elimination_order(found[0], LARGE)
        if found[0].n_states.max(initial=0) > MOST_STATES:
            order = order._replace(cost=np.inf)
        raise_interrupt()
        if out_of_time():
            return found, order
        known[component] = found, order
    return known[component]
