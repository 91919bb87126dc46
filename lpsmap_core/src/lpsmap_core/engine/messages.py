"""Where the loop starts without the quadratic term: at the end of messages, for networks.

Active sets take many iterations over tables. Messages need a few passes for duals of nearly the
best bound, and where they agree on one assignment, that is the solution. The loop then sets out
from both, and mostly finds that there is nothing left to do.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.state import sums
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.kernels.interrupts import raise_interrupt
from lpsmap_core.layout.layout import Part
from lpsmap_core.tables.messages import Potentials, Shares, ascend, finite_scores, new_shares

__all__ = ["start_from_messages"]

MOST_PASSES = 300
"""Pairs of passes. Where they do not suffice, the loop goes on from there."""

STILL = 1e-3
"""Relative change of the bound in four of them, in units of the tolerance, below which they end."""

TIED = 1e-6
"""Difference of beliefs that counts as none, relative to the largest of a node's."""

LARGEST = 1e9
"""Of the summed magnitudes: messages lose the digits that scores beyond have."""


def start_from_messages(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, options: Options
) -> WarmStart | None:
    """Return where messages end, for networks that have active sets, or that will be searched.

    Parameters
    ----------
    part, eta, eta_v
        As for `Engine.solve`.
    chosen
        The components that are to be solved.
    options
        Its options.
    """
    slow = np.zeros(part.n_components, dtype=bool)  # for active sets, that is
    for bucket in part.buckets:
        if bucket.type.projection_kernel is None and bucket.type.as_tables is not None:
            slow[bucket.component] = True
    networks = part.networks if options.exact or slow.any() else None
    if networks is None:
        return None
    slow = (slow | (networks.of_pairs & options.exact)) & networks.covered & chosen & ~part.direct
    states, entries, decisive = finite_scores(*networks.scores(eta, eta_v))
    if not slow.any() or decisive > LARGEST:
        return None
    n, network = part.n_components, networks.network
    given, shares = Potentials(states, entries, np.zeros(len(states))), new_shares(network)
    best = np.zeros(len(network.n_states), dtype=np.int64)
    score, bound = np.full(n, -np.inf), np.full(n, np.inf)
    passes = np.zeros(n, dtype=np.int64)
    found = best, score, bound, passes
    components, still = np.flatnonzero(slow), STILL * options.tol
    ascend(components, networks.first_node, network, given, shares, MOST_PASSES, still, *found)
    raise_interrupt()
    tight = bound - score <= options.tol * np.maximum(1.0, np.abs(bound))
    on = np.where(networks.assignment(best), 1.0, 0.0)
    means = np.where(tight[part.component], on, _tied_means(part, shares))
    # duals of what outweighs all else are no start but for the solution itself
    free = np.ones(n, dtype=bool)
    free[part.component[np.isneginf(eta)]] = False
    free[part.additional_component[np.isneginf(eta_v)]] = False
    free &= ~networks.strict
    known = slow & (tight | free)
    step_size = first_step_sizes(part.first_variable, np.zeros(n, dtype=bool), eta, options)
    return WarmStart(means / part.root_degree, _duals(part, eta, eta_v, shares), step_size, known)


def _tied_means(part: Part, shares: Shares) -> FloatArray:
    """Return marginals that spread over every node's best beliefs, evenly."""
    networks, network = part.networks, part.networks.network
    owner = np.repeat(np.arange(len(network.n_states)), network.n_states)
    most = np.full(len(network.n_states), -np.inf)
    np.maximum.at(most, owner, shares.beliefs)
    size = np.maximum(1.0, np.abs(most))
    tied = shares.beliefs >= (most - TIED * size)[owner]
    share = tied / np.bincount(owner, tied, minlength=len(most))[owner]
    means = networks.turned.astype(np.float64)
    there = networks.variable >= 0
    variable = networks.variable[there]
    means[variable] = np.where(networks.turned[variable], 1.0 - share[there], share[there])
    return means


def _duals(part: Part, eta: FloatArray, eta_v: FloatArray, shares: Shares) -> FloatArray:
    """Return the loop's duals that the messages are, in its order of links."""
    networks = part.networks
    of_links, network = np.zeros(part.n_links), networks.network
    last = np.repeat(network.message_offsets[1:] - 1, np.diff(network.message_offsets))
    off = np.where(networks.link[last] < 0, shares.messages[last], 0.0)  # of no slot on
    there = networks.link >= 0
    link = networks.link[there]
    # the two states of a single slot are those of its variable, also where it is negated
    sign = np.where(networks.turned[part.link_variable[link]], 1.0, part.sign[link])
    of_links[link] = sign * (shares.messages - off)[there]
    # what a factor scores of single nodes stays with it
    padded = np.append(np.where(np.isneginf(eta_v), 0.0, eta_v), 0.0)
    there = networks.own_link >= 0
    of_links[networks.own_link[there]] -= padded[networks.own_additional[there]]
    variable = part.link_variable
    scores = np.where(np.isneginf(eta), 0.0, eta)
    of_slots = part.sign * scores[variable]
    total = sums(variable, of_links, part.n_variables)
    degree = np.diff(part.variable_offsets)
    of_links += (of_slots - total[variable]) / degree[variable]
    duals = part.sign * part.delta * of_links - (scores / part.root_degree)[variable]
    duals[np.isneginf(eta)[variable]] = 0.0
    return duals[part.links.order]
