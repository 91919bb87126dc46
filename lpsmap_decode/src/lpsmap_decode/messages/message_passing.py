"""Message passing on networks of tables, and its result.

Active sets take many iterations over tables. Messages need a few passes for nearly optimal duals.
If an answer attains their bound, it is the solution, and core's iterations are not needed.
Otherwise core starts from both. If an exact assignment is requested, small networks are solved by
elimination.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from lpsmap_core import Options, leaf
from lpsmap_core.api import (
    BoolArray,
    Bucket,
    FloatArray,
    IntArray,
    Links,
    Part,
    WarmStart,
    first_step_sizes,
    out_of_time,
    raise_interrupt,
)
from lpsmap_decode.networks.ascent import AscentResult, ascend, empty_result
from lpsmap_decode.networks.messages import Potentials, Shares, finite_scores, new_shares
from lpsmap_decode.networks.network import Places, networks_of
from lpsmap_decode.networks.small import eliminate_small, small_orders
from lpsmap_decode.networks.tables import has_tables, tables_of
from lpsmap_decode.tolerances import BOUND_ROUNDING, MAX_SUM

__all__ = ["MessageResult", "ascend_networks", "slow_components"]

MAX_PASSES = 1000
"""Maximum number of pairs of passes; core's engine continues if they do not suffice."""

STILL = 1e-3
"""Relative change of the bound in four pairs of passes, in units of the tolerance, below which they
stop."""

SLOW = 1e-4
"""Fraction of the gap to the best rounding below which a fall of the bound ends the passes before a
search, which has better uses for the time."""

TIED = 1e-6
"""Relative difference below which beliefs of a node count as tied."""


@dataclass(frozen=True)
class MessageResult:
    """The result of message passing."""

    part: Part
    eta: FloatArray
    eta_v: FloatArray
    served: BoolArray
    """For each component, whether it is a network that was solved."""
    eliminated: BoolArray
    """For each component, whether it was solved by elimination, without messages."""
    given: Potentials
    shares: Shares
    found: AscentResult
    decisive: float
    """Minus the finite score that replaces ``-inf``."""
    tol: float

    @property
    def rounding(self) -> FloatArray:
        """The safety margin of the bound of every component."""
        return np.where(self.eliminated, 0.0, BOUND_ROUNDING * self.decisive)

    @functools.cached_property
    def met(self) -> BoolArray:
        """For each component, whether an allowed answer attains its bound up to `tol`.

        An answer that uses a forbidden state or entry does not count.
        """
        bound, score = self.found.bound, self.found.score
        near = bound - score + self.rounding <= self.tol * np.maximum(1.0, np.abs(score))
        met: BoolArray = near & (score > -0.5 * self.decisive)
        return met

    def start(self, options: Options) -> WarmStart:
        """Return the warm start of core's engine."""
        part, found, networks = self.part, self.found, networks_of(self.part)
        met = self.met
        on = networks.means(found.marginals)
        means = np.where(met[part.component], on, _tied_means(part, self.shares))
        # duals of scores that replace -inf are useful only with the solution itself
        free = np.ones(part.n_components, dtype=bool)
        free[part.component[np.isneginf(self.eta)]] = False
        free[part.components_of_additionals(np.flatnonzero(np.isneginf(self.eta_v)))] = False
        free &= ~networks.strict
        known = self.served & ~self.eliminated & (met | free)
        no_direct = np.zeros(part.n_components, dtype=bool)
        step_size = first_step_sizes(part.first_variable, no_direct, self.eta, options)
        duals = _duals(part, self.eta, self.eta_v, self.shares)
        return WarmStart(means / part.root_degree, duals, step_size, known)


def slow_components(part: Part) -> BoolArray:
    """Return which components have tables that take many iterations."""
    slow = np.zeros(part.n_components, dtype=bool)
    for bucket in part.buckets:
        if has_tables(bucket.type) and _is_slow(bucket):
            slow[bucket.component] = True
    return slow


def _is_slow(bucket: Bucket) -> bool:
    """Return whether tables have active sets, or scores for the states of several variables."""
    if bucket.type.projection_kernel is None:
        return True
    tables = tables_of(bucket) if bucket.n_additionals else None
    return tables is not None and tables.always


def ascend_networks(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, options: Options
) -> MessageResult:
    """Pass messages in networks that take many iterations or will be searched.

    Parameters
    ----------
    part, eta, eta_v
        As in `Engine.solve`.
    chosen
        The components to solve.
    options
        The options of the solve.
    """
    networks, slow = networks_of(part), slow_components(part)
    whole, served = networks.network, networks.covered & chosen
    scores = networks.scores(eta, eta_v)
    given, decisive = finite_scores(whole, scores)
    if decisive > MAX_SUM:
        served = np.zeros_like(served)
    shares = new_shares(whole)
    found, eliminated = empty_result(whole, part.n_components), np.zeros_like(served)
    if options.exact:
        orders, small = _orders(part)
        where = networks.first_node, networks.first_table
        eliminate_small(served & small, *where, whole, scores, orders, found)
        eliminated = found.score > -np.inf
        served = eliminated | (served & (slow | networks.of_pairs))
    ascend(
        served & ~eliminated,
        networks.first_node,
        networks.of_binaries,
        whole,
        given,
        shares,
        min(MAX_PASSES, options.max_iter),
        options.tol,
        STILL * options.tol,
        SLOW if options.exact else 0.0,
        found,
    )
    raise_interrupt()
    rest = given, shares, found, decisive, options.tol
    return MessageResult(part, eta, eta_v, served, eliminated, *rest)


def _orders(part: Part) -> tuple[IntArray, BoolArray]:
    """Return the elimination order of each component's nodes, and which components to eliminate.

    The result is cached unless the time was up. Graphs with equal links can have different nodes:
    these depend on the factor types.
    """
    networks = networks_of(part)
    if _orders not in networks.known:
        order = np.zeros(len(networks.network.n_states), np.int64)
        where = networks.first_node, networks.first_table
        small = small_orders(*where, networks.network, order)
        raise_interrupt()
        if out_of_time():
            return order, small
        networks.known[_orders] = order, small
    found: tuple[IntArray, BoolArray] = networks.known[_orders]
    return found


def _tied_means(part: Part, shares: Shares) -> FloatArray:
    """Return marginals that are uniform over the best beliefs of every node."""
    networks = networks_of(part)
    network = networks.network
    owner = np.repeat(np.arange(len(network.n_states)), network.n_states)
    most = np.full(len(network.n_states), -np.inf)
    np.maximum.at(most, owner, shares.beliefs)
    size = np.maximum(1.0, np.abs(most))
    tied = shares.beliefs >= (most - TIED * size)[owner]
    share = tied / np.bincount(owner, tied, minlength=len(most))[owner]
    return networks.means(share)


def _duals(part: Part, eta: FloatArray, eta_v: FloatArray, shares: Shares) -> FloatArray:
    """Return the messages as duals of core's engine, in its order of links."""
    networks = networks_of(part)
    of_links, duals = np.zeros(part.n_links), np.empty(part.n_links)
    places, links = networks.places, (part.links, part.link_variable, part.negated)
    where = networks.network.message_offsets, networks.first_link, networks.n_slots
    _write_duals(
        *where, networks.own_link, places, *links, eta, eta_v, shares.messages, of_links, duals
    )
    return duals


@leaf
def _write_duals(
    message_offsets: IntArray,
    first_link: IntArray,
    n_slots: IntArray,
    own_link: IntArray,
    places: Places,
    links: Links,
    link_variable: IntArray,
    negated: BoolArray,
    eta: FloatArray,
    eta_v: FloatArray,
    messages: FloatArray,
    of_links: FloatArray,
    duals: FloatArray,
) -> None:
    """Write the result of `_duals`; `of_links` is workspace of zeros."""
    for place in range(len(message_offsets) - 1):
        begin, end = message_offsets[place], message_offsets[place + 1]
        # the state without a slot, in which all are off, comes last
        off = messages[end - 1] if n_slots[place] < end - begin else 0.0
        for i in range(n_slots[place]):
            link, message = first_link[place] + i, messages[begin + i]
            # the two states of a single slot are those of its variable, even if negated
            flips = negated[link] and not places.turned[link_variable[link]]
            of_links[link] = off - message if flips else message - off
    for i in range(len(own_link)):  # scores of single nodes stay with their factors
        v = places.own_additional[i]
        if own_link[i] >= 0 and v >= 0 and eta_v[v] > -np.inf:
            of_links[own_link[i]] -= eta_v[v]
    for v in range(len(eta)):
        first, last, root, total = links.offsets[v], links.offsets[v + 1], links.root_degree[v], 0.0
        for e in range(first, last):
            total += of_links[links.order[e]]
        for e in range(first, last):
            sign = -1.0 if links.negated[e] else 1.0
            held = of_links[links.order[e]] + (sign * eta[v] - total) / float(last - first)
            duals[e] = sign * root * held - eta[v] / root if eta[v] > -np.inf else 0.0
