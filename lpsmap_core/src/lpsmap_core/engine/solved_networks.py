"""Networks solved by messages alone: an answer that meets the bound."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.messages import Ascended
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import SolvedGraph, WarmStart
from lpsmap_core.engine.status import Status
from lpsmap_core.kernels.arrays import BoolArray, FloatArray, IntArray
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.tables.rounding import write_entries

__all__ = ["SolvedNetworks", "is_settled"]

EXACT = 1e-12
"""Gaps up to this, relative to the bound, are rounding."""


def is_settled(ascended: Ascended, chosen: BoolArray, options: Options) -> bool:
    """Return whether nothing is left to do in the chosen components, or only a search."""
    done = ascended.served if options.exact else ascended.met
    return bool((done | ~chosen).all())


class SolvedNetworks(SolvedGraph):
    """A part of networks as messages left it.

    Parameters
    ----------
    ascended
        Where they ended.
    options
        The solve's.
    look_closer
        Solves the part by the loop, from a start.
    """

    quadratic = 0.0

    def __init__(
        self, ascended: Ascended, options: Options, look_closer: Callable[[WarmStart], SolvedGraph]
    ) -> None:
        found = ascended.found
        self.part = ascended.part
        self.iterations: IntArray = found.passes
        self.primal_residual = np.zeros(len(found.passes))
        self.dual_residual = np.maximum(found.bound - found.score, 0.0)
        self._ascended, self._options, self._look_closer = ascended, options, look_closer

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        ascended = self._ascended
        status: npt.NDArray[np.object_] = np.empty(self.part.n_components, dtype=object)
        status.fill(Status.CONVERGED)
        if not ascended.met.all():
            status[~ascended.met] = Status.ITERATION_LIMIT
        size = np.maximum(1.0, np.abs(ascended.found.score))
        status[ascended.met & (self.dual_residual <= EXACT * size)] = Status.SOLVED
        return status

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] a variable."""
        return self.part.networks.means(self._ascended.found.marginals)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._additionals

    @functools.cached_property
    def _additionals(self) -> FloatArray:
        networks, found, given = self.part.networks, self._ascended.found, self._ascended.given
        entries = np.empty(len(given.entries))
        write_entries(networks.network, given, found.marginals, entries)
        n_additionals = int(self.part.blocks.first_additional[-1])
        return networks.additionals(found.marginals, entries, n_additionals)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return zeros: solutions are constant until they jump."""
        return np.zeros(len(d)), np.zeros(len(self.additionals()))

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
        return self._look_closer(self.end())
