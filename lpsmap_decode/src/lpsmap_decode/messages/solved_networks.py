"""The solution of networks of tables by message passing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status, leaf
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Links,
    Part,
    Vertices,
    WarmStart,
    cached_property,
    first_step_sizes,
)
from lpsmap_decode.networks.ascent import AscentResult
from lpsmap_decode.networks.best_states import add_additionals
from lpsmap_decode.networks.messages import Potentials, Shares
from lpsmap_decode.networks.network import Places, networks_of
from lpsmap_decode.results.score_units import in_units
from lpsmap_decode.tolerances import BOUND_ROUNDING

__all__ = ["SolvedNetworks"]

EXACT = 1e-12
"""Relative gaps up to this are rounding errors."""

TIED = 1e-6
"""Relative difference below which beliefs of a node count as tied."""


class SolvedNetworks(SolvedGraph):
    """The networks of a part, solved by message passing.

    Parameters
    ----------
    part, eta, eta_v, options
        As in `Engine.solve`.
    served
        For each component, whether it is a network that was solved.
    eliminated
        For each component, whether it was solved by elimination, without messages.
    unit
        For each component, the unit of its scores, in which all that follows is.
    given, shares, found
        The finite scores of the networks, the messages, and the answers.
    decisive
        Minus the finite score that replaces ``-inf``.
    """

    quadratic = 0.0
    lazy_additionals = True

    def __init__(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        options: Options,
        served: BoolArray,
        eliminated: BoolArray,
        unit: FloatArray,
        given: Potentials,
        shares: Shares,
        found: AscentResult,
        decisive: float,
    ) -> None:
        self.part, self._eta, self._eta_v, self._options = part, eta, eta_v, options
        self._served, self._eliminated, self._decisive = served, eliminated, decisive
        self._unit, self._given, self._shares, self.found = unit, given, shares, found
        self.iterations = found.passes
        self.primal_residual = np.zeros(len(found.passes))
        self.dual_residual = unit * np.maximum(found.bound - found.score, 0.0)

    @cached_property
    def _met(self) -> BoolArray:
        """For each component, whether an allowed answer attains its bound up to the tolerance.

        An answer that uses a forbidden state or entry does not count.
        """
        score = self.found.score
        near = self.gap() <= self._options.tol * self._unit * np.maximum(1.0, np.abs(score))
        met: BoolArray = near & (score > -0.5 * self._decisive)
        return met

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        met = self._met
        status: npt.NDArray[np.object_] = np.full(len(met), Status.ITERATION_LIMIT, dtype=object)
        status[met] = Status.CONVERGED
        size = self._unit * np.maximum(1.0, np.abs(self.found.score))
        status[met & (self.dual_residual <= EXACT * size)] = Status.SOLVED
        return status

    def unfinished(self) -> BoolArray:
        """Return which components are left to core's engine, without those to be searched."""
        return ~(self._served if self._options.exact else self._met)

    def marginals(self) -> FloatArray:
        """Return a number in [0, 1] for each variable."""
        return networks_of(self.part).means(self.found.marginals)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._additionals

    @cached_property
    def _additionals(self) -> FloatArray:
        networks, v = networks_of(self.part), np.zeros(self.part.n_additionals)
        add_additionals(networks.network, networks.places, self._given, self.found.marginals, v)
        return v

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return zeros: the solution is piecewise constant."""
        return np.zeros(len(d)), np.zeros(self.part.n_additionals)

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the structures of rows, from the active sets of core's engine."""
        return self._closer.structures(b, rows)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return np.isneginf(self._eta), np.isneginf(self._eta_v)

    def gap(self) -> FloatArray:
        """Return an upper bound on the distance of the maximum from the score of the answer."""
        return self.assignment_bound() - self._unit * self.found.score

    def assignment_bound(self) -> FloatArray:
        """Return the bound of the messages, with a safety margin."""
        rounding = np.where(self._eliminated, 0.0, BOUND_ROUNDING * self._decisive)
        return self._unit * (self.found.bound + rounding)

    def end(self) -> WarmStart:
        """Return the warm start for core's engine."""
        part, networks, met = self.part, networks_of(self.part), self._met
        on = networks.means(self.found.marginals)
        means = np.where(met[part.component], on, _tied_means(part, self._shares))
        # duals of scores that replace -inf are useful only with the solution itself
        free = np.ones(part.n_components, dtype=bool)
        free[part.component[np.isneginf(self._eta)]] = False
        free[part.components_of_additionals(np.flatnonzero(np.isneginf(self._eta_v)))] = False
        free &= ~networks.strict
        known = self._served & ~self._eliminated & (met | free)
        no_direct = np.zeros(part.n_components, dtype=bool)
        step_size = first_step_sizes(part, no_direct, self._eta, self._eta_v, self._options)
        unit, eta, eta_v = in_units(part, self._eta, self._eta_v)
        duals = np.repeat(unit[part.component], np.diff(part.variable_offsets))
        duals *= _duals(part, eta, eta_v, self._shares)
        return WarmStart(means / part.root_degree, duals, step_size, known)

    @cached_property
    def _closer(self) -> SolvedGraph:
        """The solution of core's engine, started from the messages."""
        given = self.part, self._eta, self._eta_v, ~self._served
        return CompiledEngine().solve(*given, self._options, self.end())


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
