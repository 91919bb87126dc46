"""Results of any engines in NumPy: other array libraries, temperatures, parts that engines share.

Results of plugins are validated: a bug of a plugin is not reported as the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.options import Options, options_of_engine
from lpsmap_core.engine.protocol import Backend, Engine, NumpyBackend, SolvedGraph, WarmStart
from lpsmap_core.engine.status import OK, Status
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray


def solve_in_numpy(
    engine: Engine,
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> SolvedGraph:
    """Solve a part by any engine, with NumPy arrays as inputs and results; see `Engine.solve`.

    An engine of another library computes on the first device of its backend. With a temperature T,
    the weight of the quadratic term, the objective is T times that of scores divided by T, for
    which the engine solves.
    """
    temperature = options.quadratic or 1.0
    if engine.backend is NumpyBackend and temperature == 1.0:
        return engine.solve(part, eta, eta_v, skip, options, warm)
    backend = engine.backend()
    device = backend.devices()[0]
    scaled = (_divided(scores, temperature) for scores in (eta, eta_v))
    theirs, theirs_v = (backend.asarray(scores, device) for scores in scaled)
    solved = engine.solve(part, theirs, theirs_v, skip, options_of_engine(options), warm)
    if not isinstance(solved, SolvedGraph):
        return solved  # `validate_solved` reports it
    everything = np.ones(part.n_components, dtype=bool)
    return MergedGraph([Result(solved, everything, temperature, backend, device)])


def _divided(scores: FloatArray, temperature: float) -> FloatArray:
    """Return scores divided by a temperature, unless that overflows."""
    with np.errstate(over="ignore"):
        quotient = scores / temperature
    over = np.isinf(quotient) & np.isfinite(scores)
    if over.any():
        raise ValueError(
            f"temperature: got {temperature:g}, by which a score of {scores[over][0]:g} is not "
            "divisible without an overflow; expected a higher one, or smaller scores."
        )
    return quotient


Array = TypeVar("Array", bound=npt.NDArray[Any])


class Result(NamedTuple):
    """The result of an engine, the components that are taken from it, and the way to NumPy."""

    solved: SolvedGraph
    components: BoolArray
    temperature: float = 1.0
    """The temperature by which the scores were divided."""
    backend: Backend | None = None
    """The library of the engine's arrays; None for NumPy and a temperature of 1."""
    device: str = ""

    def numbers(self, array: Any) -> FloatArray:
        """Return an array of the library in NumPy."""
        if self.backend is None:
            return array  # type: ignore[no-any-return]
        return np.array(self.backend.to_numpy(array), dtype=np.float64)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian of the components; see `SolvedGraph.multiply`."""
        if not self.components.all():
            chosen = self.components if chosen is None else self.components & chosen
        if self.backend is None:
            return self.solved.multiply(d, d_v, chosen, threads)
        theirs, theirs_v = (self.backend.asarray(x, self.device) for x in (d, d_v))
        out, out_v = self.solved.multiply(theirs, theirs_v, chosen, threads)
        return self.numbers(out) / self.temperature, self.numbers(out_v) / self.temperature


class MergedGraph(SolvedGraph):
    """A part whose components were solved by one or several engines, in NumPy.

    Parameters
    ----------
    results
        The results of the engines; no component is in two of them.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        first, _, temperature, *_ = results[0]
        self.part, self.quadratic = first.part, first.quadratic * temperature
        self.iterations: IntArray = self._merged(lambda result: result.solved.iterations)
        self.primal_residual, self.dual_residual = (
            self._merged(lambda result: result.solved.primal_residual),
            self._merged(lambda result: result.solved.dual_residual),
        )

    def _merged(
        self,
        numbers: Callable[[Result], Array],
        spread: Callable[[BoolArray], BoolArray] | None = None,
    ) -> Array:
        """Merge the numbers of components, or of entries to which `spread` maps components."""
        first, *others = self._results
        merged = numbers(first).copy() if others else numbers(first)
        for result in others:
            chosen = result.components if spread is None else spread(result.components)
            merged[chosen] = numbers(result)[chosen]
        return merged

    def _on_variables(self, values: BoolArray) -> BoolArray:
        """Return for each variable the value of its component."""
        return values[self.part.component]

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        return self._merged(lambda result: result.solved.status())

    def unfinished(self) -> BoolArray:
        """Return which components core's engine has to continue."""
        return self._merged(lambda result: result.solved.unfinished())

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] per variable."""
        return self._merged(lambda r: r.numbers(r.solved.marginals()), self._on_variables)

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._merged(lambda r: r.numbers(r.solved.additionals()), self.part.on_additionals)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian, whose blocks are the components."""
        if len(self._results) == 1:
            return self._results[0].multiply(d, d_v, chosen, threads)
        products = [result.multiply(d.copy(), d_v, chosen, threads) for result in self._results]
        out, out_v = zip(*products, strict=True)
        return np.sum(out, axis=0), np.sum(out_v, axis=0)

    def takes(self, d: FloatArray) -> bool:
        """Return whether all solved graphs accept a vector without scaling."""
        own = [result.solved for result in self._results if result.backend is None]
        converts = len(own) < len(self._results)
        return all(solved.takes(d) for solved in own) and (not converts or super().takes(d))

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the structures of some factors, from the engines that solved their components."""
        component = self.part.buckets[b].component[rows]
        return join_vertices(
            [r.solved.structures(b, rows[r.components[component]]) for r in self._results]
        )

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return (
            self._merged(lambda r: r.solved.forbidden()[0], self._on_variables),
            self._merged(lambda r: r.solved.forbidden()[1], self.part.on_additionals),
        )

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective."""
        return self._merged(lambda result: result.temperature * result.solved.gap())

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error of every component."""
        return self._merged(lambda result: result.solved.error_bound(threads))

    def assignment_bound(self) -> FloatArray:
        """Return an upper bound on the score of any assignment, for every component."""
        return self._merged(lambda r: r.temperature * r.solved.assignment_bound())

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (bucket, row) pairs of contradicting factors of each infeasible component."""
        return {
            component: factors
            for result in self._results
            for component, factors in result.solved.contradictions().items()
            if result.components[component]
        }

    def trace(self) -> FloatArray | None:
        """Return the residuals of all iterations.

        Components with a shorter trace, or without one, repeat their last residuals.
        """
        traces = [result.solved.trace() for result in self._results]
        length = max((len(trace) for trace in traces if trace is not None), default=0)
        if not length:
            return None
        last = np.stack([self.primal_residual, self.dual_residual])
        merged = np.tile(last, (length, 1, 1))
        for trace, result in zip(traces, self._results, strict=True):
            if trace is not None:
                taken = result.components
                merged[: len(trace), :, taken] = trace[:, :, taken]
        return merged

    def end(self) -> WarmStart | None:
        """Return the final iterates of the engines as one warm start."""
        if len(self._results) == 1:
            return self._results[0].solved.end()
        return merge_ends(self.part, self._results)


def merge_ends(part: Part, results: Sequence[Result]) -> WarmStart | None:
    """Merge the final iterates of engines into one warm start; None if no engine returns one."""
    start: WarmStart | None = None
    for result in results:
        end = result.solved.end()
        if end is None:
            continue
        known = end.known & result.components
        if start is None:  # often the only one: nothing is copied
            start = WarmStart(*end[:3], known)
            continue
        of_variables = known[part.component]
        of_links = np.repeat(of_variables, np.diff(part.variable_offsets))
        chosen = of_variables, of_links, known, known
        both = zip(chosen, end[:4], start[:4], strict=True)
        start = WarmStart(*(np.where(one, final, merged) for one, final, merged in both))
    return start if start is not None and start.known.any() else None


# -------------------------------------------------------------------- validation

ENGINE_TOLERANCE = 1e-3
"""Distance by which values may lie outside their range, for the tolerance of an engine."""


def validate_solved(engine: Engine, part: Part, solved: object, bad: BoolArray) -> None:
    """Validate the result of an engine for a part, except values of `bad` components.

    The message of the error names the engine, the fault and the expected result.
    """
    if not isinstance(solved, SolvedGraph):
        raise _wrong_solution(engine, f"an object of type {type(solved).__name__}", "a SolvedGraph")
    n_components, given = part.n_components, solved.status()
    status = np.asarray(given, dtype=object)
    shape = getattr(given, "shape", None)
    if shape != (n_components,) or not set(map(type, status.tolist())) <= {Status}:
        expected = f"an array of {n_components} Status, one per component"
        raise _wrong_solution(engine, f"status {given!r:.80}", expected)
    for name in ("iterations", "primal_residual", "dual_residual"):
        shape = getattr(getattr(solved, name, None), "shape", None)
        if shape != (n_components,):
            raise _wrong_solution(engine, f"{name} of shape {shape}", f"shape {(n_components,)}")
    trusted = np.isin(status, np.array(OK)) & ~bad
    of_variables = solved.marginals(), part.component, "numbers of 0 to 1"
    arrays = {"marginals": of_variables}
    if not solved.lazy_additionals:
        of_additionals = solved.additionals(), part.additional_component, "numbers of 0 or more"
        arrays["additionals"] = of_additionals
    for name, (returned, component, expected) in arrays.items():
        values, most = np.asarray(returned), 1.0 if name == "marginals" else np.inf
        if getattr(returned, "shape", None) != component.shape or values.dtype.kind != "f":
            got = f"{name} of shape {values.shape} and {values.dtype}"
            got += f", in a {type(returned).__name__}"
            raise _wrong_solution(engine, got, f"an array of floats of shape {component.shape}")
        within = (values >= -ENGINE_TOLERANCE) & (values <= most + ENGINE_TOLERANCE)
        for e in np.flatnonzero(trusted[component] & ~within)[:1]:
            got = f"{name} with {values[e]:g} in component {component[e]}, "
            got += f"whose status is {status[component[e]].name}"
            raise _wrong_solution(engine, got, f"{expected}, or another status")


def _wrong_solution(engine: Engine, got: str, expected: str) -> RuntimeError:
    cls = type(engine)
    return RuntimeError(
        f"engine {engine.name!r} returned {got}; expected {expected}. This is a bug of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: report it to its author, and "
        "solve with engine='auto'."
    )
