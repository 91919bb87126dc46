"""Several engines sharing a part: each solves its preferred components, core's engine the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.plugin_engines import solve_in_numpy, validate_solved
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

Array = TypeVar("Array", bound=npt.NDArray[Any])
PartialResult = tuple[SolvedGraph, BoolArray]
"""The result of an engine, and the components that are taken from it."""


class Preference(NamedTuple):
    """An engine, and the components that it prefers."""

    engine: Engine
    components: BoolArray


class MergedGraph(SolvedGraph):
    """A part whose components were solved by different engines.

    Parameters
    ----------
    results
        The result of each engine and the components taken from it; no component is in two results.
    """

    def __init__(self, results: Sequence[PartialResult]) -> None:
        self._results = results
        first = results[0][0]
        self.part, self.quadratic = first.part, first.quadratic
        self.iterations: IntArray = self._merged(lambda solved: solved.iterations)
        self.primal_residual: FloatArray = self._merged(lambda solved: solved.primal_residual)
        self.dual_residual: FloatArray = self._merged(lambda solved: solved.dual_residual)

    def _merged(
        self,
        numbers: Callable[[SolvedGraph], Array],
        spread: Callable[[BoolArray], BoolArray] | None = None,
    ) -> Array:
        """Merge the numbers of components, or of entries to which `spread` maps components."""
        (first, _), *others = self._results
        merged = numbers(first).copy()
        for solved, taken in others:
            chosen = taken if spread is None else spread(taken)
            merged[chosen] = numbers(solved)[chosen]
        return merged

    def _on_variables(self, values: BoolArray) -> BoolArray:
        """Return for each variable the value of its component."""
        return values[self.part.component]

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        return self._merged(lambda solved: solved.status())

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] per variable."""
        return self._merged(lambda solved: solved.marginals(), self._on_variables)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._merged(lambda solved: solved.additionals(), self.part.on_additionals)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian, whose blocks are the components."""
        products = [
            solved.multiply(d.copy(), d_v, taken if chosen is None else taken & chosen, threads)
            for solved, taken in self._results
        ]
        out, out_v = zip(*products, strict=True)
        return np.sum(out, axis=0), np.sum(out_v, axis=0)

    def takes(self, d: FloatArray) -> bool:
        """Return whether all solved graphs accept a vector without scaling."""
        return all(solved.takes(d) for solved, _ in self._results)

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the structures of some factors, from the engines that solved their components."""
        component = self.part.buckets[b].component[rows]
        groups = [solved.structures(b, rows[taken[component]]) for solved, taken in self._results]
        return join_vertices(groups)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return (
            self._merged(lambda solved: solved.forbidden()[0], self._on_variables),
            self._merged(lambda solved: solved.forbidden()[1], self.part.on_additionals),
        )

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective."""
        return self._merged(lambda solved: solved.gap())

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error of every component."""
        return self._merged(lambda solved: solved.error_bound(threads))

    def assignment_bound(self) -> FloatArray:
        """Return an upper bound on the score of any assignment, for every component."""
        return self._merged(lambda solved: solved.assignment_bound())

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (bucket, row) pairs of contradicting factors of each infeasible component."""
        return {
            component: factors
            for solved, taken in self._results
            for component, factors in solved.contradictions().items()
            if taken[component]
        }

    def trace(self) -> FloatArray | None:
        """Return the residuals of all iterations.

        Components with a shorter trace, or without one, repeat their last residuals.
        """
        traces = [solved.trace() for solved, _ in self._results]
        length = max((len(trace) for trace in traces if trace is not None), default=0)
        if not length:
            return None
        last = np.stack([self.primal_residual, self.dual_residual])
        merged = np.tile(last, (length, 1, 1))
        for trace, (_, taken) in zip(traces, self._results, strict=True):
            if trace is not None:
                merged[: len(trace), :, taken] = trace[:, :, taken]
        return merged

    def end(self) -> WarmStart | None:
        """Return the final iterates of the engines as one warm start."""
        return merge_ends(self.part, self._results)


def merge_ends(part: Part, results: Sequence[PartialResult]) -> WarmStart | None:
    """Merge the final iterates of engines into one warm start; None if no engine returns one."""
    start: WarmStart | None = None
    for solved, taken in results:
        end = solved.end()
        if end is None:
            continue
        known = end.known & taken
        if start is None:  # often the only one: nothing is copied
            start = WarmStart(*end[:3], known)
            continue
        of_variables = known[part.component]
        of_links = np.repeat(of_variables, np.diff(part.variable_offsets))
        chosen = of_variables, of_links, known, known
        both = zip(chosen, end[:4], start[:4], strict=True)
        start = WarmStart(*(np.where(one, final, merged) for one, final, merged in both))
    return start if start is not None and start.known.any() else None


class SharedEngine(Engine):
    """Solves components by the engines that prefer them, and all others by core's engine.

    Parameters
    ----------
    preferences
        The engines and their preferred components, in order of priority.
    """

    name = "shared"

    def __init__(self, preferences: Sequence[Preference]) -> None:
        self.preferences = preferences
        self.core = CompiledEngine()

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why core's engine, which continues unfinished components, cannot solve a part."""
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
        """Solve a part; see `Engine.solve`.

        With a warm start, only engines with `needs_no_start` get their preferred components.
        """
        results, start = self._solve_preferred(part, eta, eta_v, skip, options, warm)
        finished = np.zeros(part.n_components, dtype=bool)
        for _, taken in results:
            finished |= taken
        if not finished.any() or not (finished | skip).all():
            rest = self.core.solve(part, eta, eta_v, skip | finished, options, start)
            if not finished.any():
                return rest
            results.insert(0, (rest, ~finished))
        return results[0][0] if len(results) == 1 else MergedGraph(results)

    def _solve_preferred(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None,
    ) -> tuple[list[PartialResult], WarmStart | None]:
        """Return what the preferring engines finished, and the start of core's engine for the rest.

        A result of which nothing is finished ends here, since its arrays may be large.
        """
        remaining = ~skip
        results: list[PartialResult] = []
        ends: list[PartialResult] = []
        for engine, components in self.preferences:
            assigned = components & remaining
            if not assigned.any() or not (warm is None or engine.needs_no_start):
                continue
            solved = solve_validated(engine, part, eta, eta_v, ~assigned, options)
            unfinished = assigned & solved.unfinished()
            finished = assigned & ~unfinished
            if finished.any():
                results.append((solved, finished))
            if unfinished.any():
                ends.append((solved, unfinished))
            remaining &= ~finished
        return results, merge_ends(part, ends) if warm is None else warm


def solve_validated(
    engine: Engine,
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> SolvedGraph:
    """Solve a part by any engine, with NumPy arrays, and validate what a plugin's returns.

    The arguments are those of `Engine.solve`.
    """
    solved = solve_in_numpy(engine, part, eta, eta_v, skip, options, warm)
    if not isinstance(engine, CompiledEngine | SharedEngine):
        validate_solved(engine, part, solved, skip)
    return solved
