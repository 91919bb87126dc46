"""Networks of tables solved by messages alone, where an answer meets the bound."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Vertices, WarmStart
from lpsmap_decode.messages.ascended import Ascended
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.networks.rounding import write_entries

__all__ = ["SolvedNetworks"]

EXACT = 1e-12
"""Gaps up to this, relative to the bound, are rounding."""


class SolvedNetworks(SolvedGraph):
    """The networks of a part as messages left them.

    Parameters
    ----------
    ascended
        Where messages ended.
    options
        The solve's.
    """

    quadratic = 0.0

    def __init__(self, ascended: Ascended, options: Options) -> None:
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
        """Return which components are left to the loop: not those that a search goes on with."""
        ascended = self._ascended
        return ~(ascended.served if self._options.exact else ascended.met)

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] a variable."""
        return networks_of(self.part).means(self._ascended.found.marginals)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._additionals

    @functools.cached_property
    def _additionals(self) -> FloatArray:
        networks, found, given = networks_of(self.part), self._ascended.found, self._ascended.given
        entries = np.empty(len(given.entries))
        write_entries(networks.network, given, found.marginals, entries)
        return networks.additionals(found.marginals, entries, self.part.n_additionals)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return zeros: solutions are constant until they jump."""
        return np.zeros(len(d)), np.zeros(self.part.n_additionals)

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return rows' structures, of the loop's active sets."""
        return self._closer.structures(b, rows)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return np.isneginf(self._ascended.eta), np.isneginf(self._ascended.eta_v)

    def gap(self) -> FloatArray:
        """Return how far the maximum can lie above the answer's score."""
        return self.assignment_bound() - self._ascended.found.score

    def assignment_bound(self) -> FloatArray:
        """Return the messages' bound."""
        return self._ascended.found.bound + self._ascended.rounding

    def end(self) -> WarmStart:
        """Return where the loop would set out from."""
        return self._ascended.start(self._options)

    @functools.cached_property
    def _closer(self) -> SolvedGraph:
        """The networks as core's engine solves them, from where messages ended."""
        ascended = self._ascended
        given = self.part, ascended.eta, ascended.eta_v, ~ascended.served
        return CompiledEngine().solve(*given, self._options, self.end())
