"""Engines of plugins: other array libraries, temperatures, and validation of their results.

A bug of a plugin is not reported as the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lpsmap_core.engine.options import Options, options_of_engine
from lpsmap_core.engine.protocol import Backend, Engine, NumpyBackend, SolvedGraph, WarmStart
from lpsmap_core.engine.status import Status
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray


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
    return AdaptedSolvedGraph(solved, backend, device, temperature)


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


def _of_solved(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls that of the engine's result."""

    @functools.wraps(method, updated=())  # abstract methods are marked in their dictionary
    def own(self: AdaptedSolvedGraph, *arguments: Any) -> Any:
        return getattr(self.solved, method.__name__)(*arguments)

    return own


class AdaptedSolvedGraph(SolvedGraph):
    """A solved graph that takes and returns NumPy arrays, for scores before their division.

    Parameters
    ----------
    solved
        The result of the engine.
    backend, device
        The library and the device of its arrays.
    temperature
        The temperature by which the scores were divided.
    """

    def __init__(
        self, solved: SolvedGraph, backend: Backend, device: str, temperature: float
    ) -> None:
        self.solved, self._backend, self._device = solved, backend, device
        self.part, self.quadratic = solved.part, solved.quadratic * temperature
        self._temperature = temperature
        self.iterations = solved.iterations
        self.primal_residual, self.dual_residual = solved.primal_residual, solved.dual_residual

    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] per variable."""
        return self._numbers(self.solved.marginals())

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self._numbers(self.solved.additionals())

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian; see `SolvedGraph.multiply`."""
        theirs, theirs_v = (self._backend.asarray(x, self._device) for x in (d, d_v))
        out, out_v = self.solved.multiply(theirs, theirs_v, chosen, threads)
        t = self._temperature
        return self._numbers(out) / t, self._numbers(out_v) / t

    def _numbers(self, array: Any) -> FloatArray:
        """Convert an array of the library to a new float64 array."""
        return np.array(self._backend.to_numpy(array), dtype=np.float64)

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective."""
        return self._temperature * self.solved.gap()

    def assignment_bound(self) -> FloatArray:
        """Return an upper bound on the score of any assignment, for every component."""
        return self._temperature * self.solved.assignment_bound()

    # results that are in NumPy, and do not depend on the scale of the scores
    status = _of_solved(SolvedGraph.status)
    unfinished = _of_solved(SolvedGraph.unfinished)
    structures = _of_solved(SolvedGraph.structures)
    forbidden = _of_solved(SolvedGraph.forbidden)
    error_bound = _of_solved(SolvedGraph.error_bound)
    contradictions = _of_solved(SolvedGraph.contradictions)
    trace = _of_solved(SolvedGraph.trace)
    end = _of_solved(SolvedGraph.end)


ENGINE_TOLERANCE = 1e-3
"""Distance by which values may lie outside their range, for the tolerance of an engine."""


def validate_solved(engine: Engine, part: Part, solved: object, bad: BoolArray) -> None:
    """Validate the result of an engine for a part, except values of `bad` components.

    The message of the error names the engine, the fault and the expected result.
    """
    if not isinstance(solved, SolvedGraph):
        raise _wrong_solution(engine, f"an object of type {type(solved).__name__}", "a SolvedGraph")
    n_components = part.n_components
    given = solved.status()
    status = np.asarray(given, dtype=object)
    shape = getattr(given, "shape", None)
    if shape != (n_components,) or not set(map(type, status.tolist())) <= {Status}:
        expected = f"an array of {n_components} Status, one per component"
        raise _wrong_solution(engine, f"status {given!r:.80}", expected)
    for name in ("iterations", "primal_residual", "dual_residual"):
        shape = getattr(getattr(solved, name, None), "shape", None)
        if shape != (n_components,):
            raise _wrong_solution(engine, f"{name} of shape {shape}", f"shape {(n_components,)}")
    trusted = ((status == Status.SOLVED) | (status == Status.CONVERGED)) & ~bad
    arrays = (
        ("marginals", solved.marginals(), trusted[part.component], 1.0),
        ("additionals", solved.additionals(), part.on_additionals(trusted), np.inf),
    )
    for name, returned, mine, most in arrays:
        values = np.asarray(returned)
        if getattr(returned, "shape", None) != mine.shape or values.dtype.kind != "f":
            got = (
                f"{name} of shape {values.shape} and {values.dtype}, in a {type(returned).__name__}"
            )
            raise _wrong_solution(engine, got, f"an array of floats of shape {mine.shape}")
        wrong = np.flatnonzero(
            mine & ~((values >= -ENGINE_TOLERANCE) & (values <= most + ENGINE_TOLERANCE))
        )
        if wrong.size:
            e = wrong[0]
            of = part.component if name == "marginals" else part.additional_component
            got = f"{name} with {values[e]:g} in component {of[e]}, "
            got += f"whose status is {status[of[e]].name}"
            expected = "numbers of 0 to 1" if most == 1.0 else "numbers of 0 or more"
            raise _wrong_solution(engine, got, f"{expected}, or another status")


def _wrong_solution(engine: Engine, got: str, expected: str) -> RuntimeError:
    cls = type(engine)
    return RuntimeError(
        f"engine {engine.name!r} returned {got}; expected {expected}. This is a bug of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: report it to its author, and "
        "solve with engine='auto'."
    )
