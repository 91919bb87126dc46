"""Several engines that share a part: each has the components that it prefers, core's the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.checked import check_solved
from lpsmap_core.engine.compiled import CompiledEngine, SolvedPart
from lpsmap_core.engine.in_numpy import solve_in_numpy
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Preference", "SharedEngine", "SolvedTogether"]

Array = TypeVar("Array", bound=npt.NDArray[Any])
Share = tuple[SolvedGraph, BoolArray]


class Preference(NamedTuple):
    """An engine, and the components that it prefers."""

    engine: Engine
    components: BoolArray


class SolvedTogether(SolvedGraph):
    """A part whose components different engines solved.

    Parameters
    ----------
    shares
        What each engine returned, and the components that count in it, none of them in two.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        first = shares[0][0]
        self.part, self.quadratic = first.part, first.quadratic
        self.iterations: IntArray = self._merged(lambda solved: solved.iterations)
        self.primal_residual: FloatArray = self._merged(lambda solved: solved.primal_residual)
        self.dual_residual: FloatArray = self._merged(lambda solved: solved.dual_residual)

    def _merged(
        self, numbers: Callable[[SolvedGraph], Array], component: IntArray | None = None
    ) -> Array:
        """Return numbers of components, or of what lies in the `component` given for each."""
        (first, _), *others = self._shares
        merged = numbers(first).copy()
        for solved, mine in others:
            chosen = mine if component is None else mine[component]
            merged[chosen] = numbers(solved)[chosen]
        return merged

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        return self._merged(lambda solved: solved.status())

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] a variable."""
        return self._merged(lambda solved: solved.marginals(), self.part.component)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._merged(lambda solved: solved.additionals(), self.part.additional_component)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian, whose blocks are the components."""
        products = [
            solved.multiply(d.copy(), d_v, mine if chosen is None else mine & chosen, threads)
            for solved, mine in self._shares
        ]
        out, out_v = zip(*products, strict=True)
        return np.sum(out, axis=0), np.sum(out_v, axis=0)

    def takes(self, d: FloatArray) -> bool:
        """Return whether all engines take a vector as it is."""
        return all(solved.takes(d) for solved, _ in self._shares)

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return rows' structures, from the engines that solved their components."""
        component = self.part.buckets[b].component[rows]
        groups = [solved.structures(b, rows[mine[component]]) for solved, mine in self._shares]
        return join_vertices(groups)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return (
            self._merged(lambda solved: solved.forbidden()[0], self.part.component),
            self._merged(lambda solved: solved.forbidden()[1], self.part.additional_component),
        )

    def gap(self) -> FloatArray:
        """Return how far the maximum can lie above the objective."""
        return self._merged(lambda solved: solved.gap())

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error of every component."""
        return self._merged(lambda solved: solved.error_bound(threads))

    def assignment_bound(self) -> FloatArray:
        """Return for every component what no assignment of its variables scores more than."""
        return self._merged(lambda solved: solved.assignment_bound())

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, row) of factors that contradict, for each infeasible component."""
        return {
            component: which
            for solved, mine in self._shares
            for component, which in solved.contradictions().items()
            if mine[component]
        }

    def trace(self) -> FloatArray | None:
        """Return the residuals of all iterations; where an engine kept none, the last ones."""
        traces = [solved.trace() for solved, _ in self._shares]
        length = max((len(trace) for trace in traces if trace is not None), default=0)
        if not length:
            return None
        last = np.stack([self.primal_residual, self.dual_residual])
        merged = np.tile(last, (length, 1, 1))
        for trace, (_, mine) in zip(traces, self._shares, strict=True):
            if trace is not None:
                merged[: len(trace), :, mine] = trace[:, :, mine]
        return merged

    def end(self) -> WarmStart | None:
        """Return where the engines ended."""
        return joined_ends(self.part, self._shares)


def joined_ends(part: Part, shares: Sequence[Share]) -> WarmStart | None:
    """Return where several engines ended; None if none of them says so.

    Parameters
    ----------
    part
        What they solved.
    shares
        What each returned, and the components that count in it.
    """
    n_variables, n_links, n = part.n_variables, part.n_links, part.n_components
    start = WarmStart(np.zeros(n_variables), np.zeros(n_links), np.zeros(n), np.zeros(n, bool))
    of_link = np.repeat(part.component, np.diff(part.variable_offsets))
    for solved, mine in shares:
        end = solved.end()
        if end is not None:
            chosen = mine[part.component], mine[of_link], mine, mine
            for ours, theirs, which in zip(start[:4], end[:4], chosen, strict=True):
                ours[which] = theirs[which]
    return start if start.known.any() else None


class SharedEngine(Engine):
    """Engines that prefer components, and core's engine for the others.

    Parameters
    ----------
    preferences
        The engines, in the order in which they choose.
    """

    name = "shared"

    def __init__(self, preferences: Sequence[Preference]) -> None:
        self.preferences = preferences
        self.core = CompiledEngine()

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why core's engine cannot solve a part, if so: it may have to go on with any."""
        return self.core.refuses(part, options)

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedGraph:
        """Solve a part, see `Engine.solve`. From a warm start core's engine goes on."""
        left = ~skip
        shares: list[Share] = []
        ends: list[Share] = []
        for engine, components in self.preferences:
            mine = components & left
            if not mine.any() or not (warm is None or engine.needs_no_start):
                continue
            solved = solve_in_numpy(engine, part, eta, eta_v, ~mine, options)
            if not isinstance(solved, SolvedPart):
                check_solved(engine, part, solved, ~mine)
            unfinished = mine & solved.unfinished()
            shares.append((solved, mine & ~unfinished))
            if unfinished.any():
                ends.append((solved, unfinished))
            left &= ~mine | unfinished
        finished = ~skip & ~left
        if not finished.any() or left.any():
            start = joined_ends(part, ends) if warm is None else warm
            rest = self.core.solve(part, eta, eta_v, ~left, options, start)
            if not finished.any():
                return rest
            shares.insert(0, (rest, ~finished))
        return shares[0][0] if len(shares) == 1 else SolvedTogether(shares)
