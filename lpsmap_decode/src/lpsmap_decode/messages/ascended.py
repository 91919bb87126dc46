"""Where messages end: mostly at an answer that meets their bound.

Active sets take many iterations over tables. Messages need a few passes for duals of nearly the
best bound. Where an answer scores as much, that is the solution, and no loop is needed. Elsewhere
the loop sets out from both. Where the best assignment is asked for, small networks are eliminated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from lpsmap_core import Options
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    WarmStart,
    first_step_sizes,
    out_of_time,
    raise_interrupt,
)
from lpsmap_decode.networks.ascent import Ascent, ascend, new_ascent
from lpsmap_decode.networks.messages import Potentials, Shares, finite_scores, new_shares
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.networks.small import eliminate_small, small_orders
from lpsmap_decode.networks.tables import has_tables

__all__ = ["Ascended", "ascend_networks", "slow_components"]

MOST_PASSES = 1000
"""Pairs of passes. Where they do not suffice, the loop goes on from there."""

STILL = 1e-3
"""Relative change of the bound in four of them, in units of the tolerance, below which they end."""

TIED = 1e-6
"""Difference of beliefs that counts as none, relative to the largest of a node's."""

LARGEST = 1e9
"""Of the summed magnitudes: messages lose the digits that scores beyond have."""

ROUNDING = 1e-13
"""What rounding may hide of bounds, in units of the summed magnitudes of the scores."""


@dataclass(frozen=True)
class Ascended:
    """Where messages ended."""

    part: Part
    eta: FloatArray
    eta_v: FloatArray
    served: BoolArray
    """For each component, whether it is a network that was to be solved."""
    eliminated: BoolArray
    """For each component, whether its answer is the best assignment, which no messages bound."""
    given: Potentials
    shares: Shares
    found: Ascent
    decisive: float
    """Minus what stands for ``-inf``."""
    tol: float

    @property
    def rounding(self) -> FloatArray:
        """What rounding may hide of every component's bound."""
        return np.where(self.eliminated, 0.0, ROUNDING * self.decisive)

    @functools.cached_property
    def met(self) -> BoolArray:
        """For each component, whether an answer meets its bound, up to `tol` of its size.

        One that uses what is forbidden is none.
        """
        bound, score = self.found.bound, self.found.score
        near = bound - score + self.rounding <= self.tol * np.maximum(1.0, np.abs(score))
        met: BoolArray = near & (score > -0.5 * self.decisive)
        return met

    def start(self, options: Options) -> WarmStart:
        """Return where the loop is to set out from."""
        part, found, networks = self.part, self.found, networks_of(self.part)
        met = self.met
        on = networks.means(found.marginals)
        means = np.where(met[part.component], on, _tied_means(part, self.shares))
        # duals of what outweighs all else are no start but for the solution itself
        free = np.ones(part.n_components, dtype=bool)
        free[part.component[np.isneginf(self.eta)]] = False
        free[part.additional_component[np.isneginf(self.eta_v)]] = False
        free &= ~networks.strict
        known = self.served & ~self.eliminated & (met | free)
        no_direct = np.zeros(part.n_components, dtype=bool)
        step_size = first_step_sizes(part.first_variable, no_direct, self.eta, options)
        duals = _duals(part, self.eta, self.eta_v, self.shares)
        return WarmStart(means / part.root_degree, duals, step_size, known)


def slow_components(part: Part) -> BoolArray:
    """Return which components have active sets over tables, which take many iterations."""
    slow = np.zeros(part.n_components, dtype=bool)
    for bucket in part.buckets:
        if bucket.type.projection_kernel is None and has_tables(bucket.type):
            slow[bucket.component] = True
    return slow


def ascend_networks(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, options: Options
) -> Ascended:
    """Pass messages in networks that have active sets, or that will be searched.

    Parameters
    ----------
    part, eta, eta_v
        As for `Engine.solve`.
    chosen
        The components that are to be solved.
    options
        Its options.
    """
    networks, slow = networks_of(part), slow_components(part)
    whole, served = networks.network, networks.covered & chosen
    scores = networks.scores(eta, eta_v)
    states, entries, decisive = finite_scores(*scores)
    if decisive > LARGEST:
        served = np.zeros_like(served)
    given, shares = Potentials(states, entries, np.zeros(len(states))), new_shares(whole)
    found, eliminated = new_ascent(whole, part.n_components), np.zeros_like(served)
    if options.exact:
        orders, small = _orders(part)
        where = networks.first_node, networks.first_table
        eliminate_small(served & small, *where, whole, *scores, orders, found)
        eliminated = found.score > -np.inf
        served = eliminated | (served & (slow | networks.of_pairs))
    ascend(
        served & ~eliminated,
        networks.first_node,
        networks.of_binaries,
        whole,
        given,
        shares,
        min(MOST_PASSES, options.max_iter),
        options.tol,
        STILL * options.tol,
        found,
    )
    raise_interrupt()
    rest = given, shares, found, decisive, options.tol
    return Ascended(part, eta, eta_v, served, eliminated, *rest)


def _orders(part: Part) -> tuple[IntArray, BoolArray]:
    """Return in which order to eliminate components' nodes, and where to; found once if in time.

    Graphs whose links are the same can have other nodes: their factors' types say what those are.
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
    """Return marginals that spread over every node's best beliefs, evenly."""
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
    """Return the loop's duals that the messages are, in its order of links."""
    networks = networks_of(part)
    of_links, network = np.zeros(part.n_links), networks.network
    last = np.repeat(network.message_offsets[1:] - 1, np.diff(network.message_offsets))
    off = np.where(networks.link[last] < 0, shares.messages[last], 0.0)  # of no slot on
    there = networks.link >= 0
    link = networks.link[there]
    # the two states of a single slot are those of its variable, also where it is negated
    sign = np.where(networks.places.turned[part.link_variable[link]], 1.0, part.sign[link])
    of_links[link] = sign * (shares.messages - off)[there]
    # what a factor scores of single nodes stays with it
    padded = np.append(np.where(np.isneginf(eta_v), 0.0, eta_v), 0.0)
    there = networks.own_link >= 0
    of_links[networks.own_link[there]] -= padded[networks.places.own_additional[there]]
    variable = part.link_variable
    scores = np.where(np.isneginf(eta), 0.0, eta)
    of_slots = part.sign * scores[variable]
    total = np.bincount(variable, of_links, part.n_variables)
    degree = np.diff(part.variable_offsets)
    of_links += (of_slots - total[variable]) / degree[variable]
    duals = part.sign * part.delta * of_links - (scores / part.root_degree)[variable]
    duals[np.isneginf(eta)[variable]] = 0.0
    return duals[part.links.order]
