"""The NumPy adapter of engines that use other array libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.backends import Backend, NumpyBackend
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["NumpySolvedGraph", "solve_in_numpy"]


def solve_in_numpy(
    engine: Engine,
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> SolvedGraph:
    """Solve a part by any engine, with NumPy arrays as inputs and results.

    An engine of another library computes on the first device of its backend.

    Parameters
    ----------
    engine
        The engine.
    part, eta, eta_v, skip, options, warm
        As for `Engine.solve`.
    """
    if engine.backend is NumpyBackend:
        return engine.solve(part, eta, eta_v, skip, options, warm)
    backend = engine.backend()
    device = backend.devices()[0]
    theirs, theirs_v = (backend.asarray(scores, device) for scores in (eta, eta_v))
    solved = engine.solve(part, theirs, theirs_v, skip, options, warm)
    # `validate_solved` reports any other result
    return NumpySolvedGraph(solved, backend, device) if isinstance(solved, SolvedGraph) else solved


class NumpySolvedGraph(SolvedGraph):
    """A solved graph of another array library that takes and returns NumPy arrays.

    Parameters
    ----------
    solved
        The result of the engine.
    backend, device
        The library and the device of its arrays.
    """

    def __init__(self, solved: SolvedGraph, backend: Backend, device: str) -> None:
        self.solved, self._backend, self._device = solved, backend, device
        self.part, self.quadratic = solved.part, solved.quadratic
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
        return self._numbers(out), self._numbers(out_v)

    def _numbers(self, array: Any) -> FloatArray:
        """Convert an array of the library to a new float64 array."""
        return np.array(self._backend.to_numpy(array), dtype=np.float64)

    # ---------------------------------------------------------------- results that are in NumPy

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        return self.solved.status()

    def unfinished(self) -> BoolArray:
        """Return which components core's engine has to continue."""
        return self.solved.unfinished()

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of some factors."""
        return self.solved.structures(b, rows)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return self.solved.forbidden()

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective."""
        return self.solved.gap()

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error of every component."""
        return self.solved.error_bound(threads)

    def assignment_bound(self) -> FloatArray:
        """Return an upper bound on the score of any assignment, for every component."""
        return self.solved.assignment_bound()

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (bucket, row) pairs of contradicting factors of each infeasible component."""
        return self.solved.contradictions()

    def trace(self) -> FloatArray | None:
        """Return the residuals of all iterations, or None if the engine did not keep them."""
        return self.solved.trace()

    def end(self) -> WarmStart | None:
        """Return the end of the solve as a warm start, or None."""
        return self.solved.end()
