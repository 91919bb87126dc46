"""Networks solved by messages alone, where an answer meets the bound, beside what else there is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.messages import Ascended
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import SolvedGraph, WarmStart
from lpsmap_core.engine.status import Status
from lpsmap_core.kernels.arrays import BoolArray, FloatArray, IntArray
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_core.tables.rounding import write_entries

__all__ = ["SolvedNetworks", "settled"]

Array = TypeVar("Array", bound=npt.NDArray[Any])

EXACT = 1e-12
"""Gaps up to this, relative to the bound, are rounding."""


def settled(ascended: Ascended, options: Options) -> BoolArray:
    """Return for each component whether nothing is left to do in it, or only a search."""
    return ascended.served if options.exact else ascended.met


class SolvedNetworks(SolvedGraph):
    """A part of networks as messages left it, and what else is in the part as the loop did.

    Parameters
    ----------
    ascended
        Where messages ended.
    options
        The solve's.
    rest
        The part with all components solved that messages left open; None if there are none.
    left
        Which these are.
    look_closer
        Solves the part by the loop, from a start.
    """

    quadratic = 0.0

    def __init__(
        self,
        ascended: Ascended,
        options: Options,
        rest: SolvedGraph | None,
        left: BoolArray,
        look_closer: Callable[[WarmStart], SolvedGraph],
    ) -> None:
        found = ascended.found
        self.part = ascended.part
        self._ascended, self._options, self._look_closer = ascended, options, look_closer
        self._rest, self._left = rest, left
        n = len(found.passes)
        self.iterations: IntArray = self._mixed(found.passes, lambda rest: rest.iterations)
        self.primal_residual = self._mixed(np.zeros(n), lambda rest: rest.primal_residual)
        missing = np.maximum(found.bound - found.score, 0.0)
        self.dual_residual = self._mixed(missing, lambda rest: rest.dual_residual)

    def _mixed(
        self,
        own: Array,
        of_rest: Callable[[SolvedGraph], Array],
        component: IntArray | None = None,
    ) -> Array:
        """Return an array with the numbers of the other components written into it.

        It has a number a component, or numbers of the components given.
        """
        if self._rest is None:
            return own
        left = self._left if component is None else self._left[component]
        own[left] = of_rest(self._rest)[left]
        return own

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        ascended = self._ascended
        status: npt.NDArray[np.object_] = np.empty(self.part.n_components, dtype=object)
        status.fill(Status.CONVERGED)
        if not ascended.met.all():
            status[~ascended.met] = Status.ITERATION_LIMIT
        size = np.maximum(1.0, np.abs(ascended.found.score))
        status[ascended.met & (self.dual_residual <= EXACT * size)] = Status.SOLVED
        return self._mixed(status, lambda rest: rest.status())

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] a variable."""
        own = self.part.networks.means(self._ascended.found.marginals)
        return self._mixed(own, lambda rest: rest.marginals(), self.part.component)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._additionals

    @functools.cached_property
    def _additionals(self) -> FloatArray:
        networks, found, given = self.part.networks, self._ascended.found, self._ascended.given
        entries = np.empty(len(given.entries))
        write_entries(networks.network, given, found.marginals, entries)
        n_additionals = int(self.part.blocks.first_additional[-1])
        own = networks.additionals(found.marginals, entries, n_additionals)
        if self._rest is None:
            return own
        return self._mixed(own, lambda rest: rest.additionals(), self.part.additional_component)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return zeros: solutions are constant until they jump."""
        return np.zeros(len(d)), np.zeros(len(self.additionals()))

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return rows' structures, of the loop's active sets."""
        left = self._left[self.part.buckets[b].component[rows]]
        if self._rest is None or not left.any():
            return self._closer.structures(b, rows)
        groups = [self._rest.structures(b, rows[left])]
        if not left.all():
            groups.append(self._closer.structures(b, rows[~left]))
        return join_vertices(groups)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        if self._rest is not None:
            return self._rest.forbidden()
        return np.isneginf(self._ascended.eta), np.isneginf(self._ascended.eta_v)

    def gap(self) -> FloatArray:
        """Return how far the maximum can lie above the answer's score."""
        own = self._own_bound() - self._ascended.found.score
        return self._mixed(own, lambda rest: rest.gap())

    def assignment_bound(self) -> FloatArray:
        """Return the messages' bound."""
        return self._mixed(self._own_bound(), lambda rest: rest.assignment_bound())

    def _own_bound(self) -> FloatArray:
        return self._ascended.found.bound + self._ascended.rounding

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, row) of factors that contradict, for each infeasible component."""
        return {} if self._rest is None else self._rest.contradictions()

    def trace(self) -> FloatArray | None:
        """Return the residuals of all iterations of the loop; None if there were none."""
        return None if self._rest is None else self._rest.trace()

    def end(self) -> WarmStart:
        """Return where the loop would set out from, or where it ended."""
        start = self._ascended.start(self._options)
        other = None if self._rest is None else self._rest.end()
        if other is None:
            return start
        of_link = np.repeat(self.part.component, np.diff(self.part.variable_offsets))
        for mine, its, owner in (
            (start.u, other.u, self.part.component),
            (start.duals, other.duals, of_link),
            (start.step_size, other.step_size, slice(None)),
            (start.known, other.known, slice(None)),
        ):
            chosen = self._left[owner]
            mine[chosen] = its[chosen]
        return start

    @functools.cached_property
    def _closer(self) -> SolvedGraph:
        return self._look_closer(self.end())
