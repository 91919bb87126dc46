"""The solution of networks of tables by message passing."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Vertices, WarmStart
from lpsmap_decode.messages.message_passing import MessageResult
from lpsmap_decode.networks.best_states import add_additionals
from lpsmap_decode.networks.network import networks_of

__all__ = ["SolvedNetworks"]

EXACT = 1e-12
"""Relative gaps up to this are rounding errors."""


class SolvedNetworks(SolvedGraph):
    """The networks of a part, solved by message passing.

    Parameters
    ----------
    ascended
        The result of message passing.
    options
        The options of the solve.
    """

    quadratic = 0.0
    lazy_additionals = True

    def __init__(self, ascended: MessageResult, options: Options) -> None:
        found = ascended.found
        self.part = ascended.part
        self._ascended, self._options = ascended, options
        self.iterations = found.passes
        self.primal_residual = np.zeros(len(found.passes))
        self.dual_residual = np.maximum(found.bound - found.score, 0.0)

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        met = self._ascended.met
        status: npt.NDArray[np.object_] = np.full(len(met), Status.ITERATION_LIMIT, dtype=object)
        status[met] = Status.CONVERGED
        size = np.maximum(1.0, np.abs(self._ascended.found.score))
        status[met & (self.dual_residual <= EXACT * size)] = Status.SOLVED
        return status

    def unfinished(self) -> BoolArray:
        """Return which components are left to core's engine, without those to be searched."""
        ascended = self._ascended
        return ~(ascended.served if self._options.exact else ascended.met)

    def marginals(self) -> FloatArray:
        """Return a number in [0, 1] for each variable."""
        return networks_of(self.part).means(self._ascended.found.marginals)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._additionals

    @functools.cached_property
    def _additionals(self) -> FloatArray:
        networks, found, given = networks_of(self.part), self._ascended.found, self._ascended.given
        v = np.zeros(self.part.n_additionals)
        add_additionals(networks.network, networks.places, given, found.marginals, v)
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
        return np.isneginf(self._ascended.eta), np.isneginf(self._ascended.eta_v)

    def gap(self) -> FloatArray:
        """Return an upper bound on the distance of the maximum from the score of the answer."""
        return self.assignment_bound() - self._ascended.found.score

    def assignment_bound(self) -> FloatArray:
        """Return the bound of the messages."""
        return self._ascended.found.bound + self._ascended.rounding

    def end(self) -> WarmStart:
        """Return the warm start for core's engine."""
        return self._ascended.start(self._options)

    @functools.cached_property
    def _closer(self) -> SolvedGraph:
        """The solution of core's engine, started from the messages."""
        ascended = self._ascended
        given = self.part, ascended.eta, ascended.eta_v, ~ascended.served
        return CompiledEngine().solve(*given, self._options, self.end())
