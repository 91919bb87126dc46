"""The interface of engines, of their results, and of the array libraries that they compute with.

The rest of the library uses nothing else.

An engine receives a `Part`, the flat arrays of a graph's factors, with scores in the order of its
variables and of the additionals of its buckets. It returns a `SolvedGraph` with results for each
component. Core's engine is `lpsmap_core.engine.compiled`; plugins provide others by the hook
``lpsmap_engines``. Several engines may share a part, each with its own components.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.status import OK
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf


class Backend(abc.ABC):
    """An array library that follows the array API standard, and the devices that it finds.

    Plugins provide backends by the hook ``lpsmap_backends``, and `lpsmap_core.installed` finds
    them. Core computes with NumPy. An engine of another library names its backend. The conformance
    kit compares every closed form in array-API code with its NumPy result on every device.
    """

    name: ClassVar[str]
    """Name of the backend, such as ``"torch"``."""

    @abc.abstractmethod
    def devices(self) -> Sequence[str]:
        """Return the names of the available devices; empty if the library is missing."""

    @abc.abstractmethod
    def asarray(self, array: npt.NDArray[Any], device: str) -> Any:
        """Convert a NumPy array to an array of this library on a device, of the same dtype.

        Parameters
        ----------
        array
            Of any shape; float64, int64, int8 or bool.
        device
            One of `devices`.
        """

    @abc.abstractmethod
    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """Convert an array of this library, on any device, to a NumPy array."""


class NumpyBackend(Backend):
    """NumPy on the processor."""

    name = "numpy"

    def devices(self) -> Sequence[str]:
        """Return the only device."""
        return ["cpu"]

    def asarray(self, array: npt.NDArray[Any], device: str) -> Any:
        """Return the array."""
        return array

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """Return the array."""
        return np.asarray(array)


MIN_UNSCALED, MAX_UNSCALED = 1e-100, 1e100
"""Magnitudes whose squares, times the factors that engines use, neither underflow nor overflow."""


@leaf
def need_no_scaling(d: FloatArray) -> bool:
    """Return whether every number of a vector is zero or within the unscaled range."""
    n_ordinary = 0
    for i in range(d.size):
        size = abs(d[i])
        n_ordinary += ((size >= MIN_UNSCALED) & (size <= MAX_UNSCALED)) | (size == 0.0)
    return n_ordinary == d.size


class WarmStart(NamedTuple):
    """The starting point of an engine, for the components that are `known`.

    The engine may overwrite `u` and `duals`.
    """

    u: FloatArray
    """One scaled mean per variable, its marginal divided by the square root of its degree."""
    duals: FloatArray
    """One dual variable per link, in the order of the variables; they sum to zero over the links of
    each variable."""
    step_size: FloatArray
    """Step sizes of the components."""
    known: BoolArray
    """Whether there is a starting point for a component."""
    first_step_size: FloatArray | None = None
    """First step sizes, which are proportional to the scores; None if the scores are the same."""
    solved: object = None
    """Further state of the engine that ended there, such as active sets."""


class SolvedGraph(abc.ABC):
    """A solved part: the result of an engine.

    Methods with a default are optional: an infinite bound claims nothing.

    Attributes
    ----------
    part
        The solved part.
    iterations
        (n_components,) outer iterations.
    primal_residual, dual_residual
        (n_components,) largest disagreement of a variable's copies, and largest change of the
        scores that would make the copies optimal; both in units of marginals.
    quadratic
        Weight of the quadratic term.
    """

    part: Part
    iterations: IntArray
    primal_residual: FloatArray
    dual_residual: FloatArray
    quadratic: float = 1.0
    lazy_additionals: ClassVar[bool] = False
    """Whether `additionals` computes them when it is called, since there may be many. They are then
    not validated, which would call it in every solve."""

    @abc.abstractmethod
    def status(self) -> npt.NDArray[np.object_]:
        """Return the `Status` of every component, in a new array."""

    @abc.abstractmethod
    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] per variable, in a new array."""

    @abc.abstractmethod
    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""

    @abc.abstractmethod
    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply the symmetric Jacobian of the solution in the scores with a vector.

        Parameters
        ----------
        d
            One number per variable; may be overwritten.
        d_v
            One number per additional; empty for zeros.
        chosen
            Components to treat, None for all. The results of other components are zero.
        threads
            Number of threads that may be used.

        Returns
        -------
        out, out_v
            The product's entries for the variables and for the additionals.
        """

    def unfinished(self) -> BoolArray:
        """Return which components core's engine has to continue, from the end of this solve.

        Called only if `Engine.prefers` chose the engine. The default is the unsolved components.
        """
        return np.array([status not in OK for status in self.status().tolist()], dtype=bool)

    def takes(self, d: FloatArray) -> bool:
        """Return whether `multiply` takes a vector without scaling.

        Otherwise the vector is scaled first, and its numbers that are not finite become zeros. The
        default accepts vectors whose squares neither underflow nor overflow.

        Parameters
        ----------
        d
            One number per variable.
        """
        return bool(need_no_scaling(d))

    @abc.abstractmethod
    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of the factors `rows` of bucket `b`.

        The owners of the structures are numbers in `rows`.
        """

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals a score of ``-inf`` forbids."""
        part = self.part
        return np.zeros(part.n_variables, dtype=bool), np.zeros(part.n_additionals, dtype=bool)

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective, for every component."""
        return np.full(self.part.n_components, np.inf)

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the 2-norm of the error of the marginals, for every component.

        Parameters
        ----------
        threads
            Number of threads that may be used.
        """
        return np.full(self.part.n_components, np.inf)

    def assignment_bound(self) -> FloatArray:
        """Return an upper bound on the score of any assignment, for every component."""
        return np.full(self.part.n_components, np.inf)

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (bucket, row) pairs of contradicting factors of each infeasible component."""
        return {}

    def trace(self) -> FloatArray | None:
        """Return the (n_iterations, 2, n_components) residuals; None if they were not kept."""
        return None

    def end(self) -> WarmStart | None:
        """Return the end of the solve as a warm start, in new arrays, or None."""
        return None


class Engine(abc.ABC):
    """Solves graphs. Plugins provide engines by the hook ``lpsmap_engines``.

    An engine is constructed without arguments, and keeps no state between solves.
    """

    name: ClassVar[str]
    """Name of the engine, such as ``"compiled"``."""
    backend: ClassVar[type[Backend]] = NumpyBackend
    """The library whose arrays `solve` takes for scores, and its solved graphs for vectors.

    Marginals, additionals and products are arrays of this library, on the device of the scores. For
    graphs in NumPy they are converted; an adapter of the same library passes its arrays unchanged.
    """
    needs_no_start: ClassVar[bool] = False
    """Whether the engine gets its components even if there is a warm start. Otherwise core's engine
    continues from the warm start, unless this engine solves the whole part."""

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return a sentence that says why the engine cannot solve a part with these options.

        Parameters
        ----------
        part
            The part.
        options
            Limits and settings of the solve.

        Returns
        -------
        str or None
            None if the engine can solve it.
        """
        return None

    def serves(self, part: Part) -> BoolArray | None:
        """Return for each component whether the engine can solve it, or None for all.

        If the user names this engine, core's engine solves the other components.

        Parameters
        ----------
        part
            The part.
        """
        return None

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Return for each component whether ``engine="auto"`` should give it to this engine first.

        Core's engine continues unfinished components. `refuses` is not called.

        Parameters
        ----------
        part
            The part.
        options
            Limits and settings of the solve.

        Returns
        -------
        BoolArray or None
            None for no component. This must be fast, because every solve calls it.
        """
        return None

    @abc.abstractmethod
    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedGraph:
        """Solve a part.

        Parameters
        ----------
        part
            The part.
        eta
            Scores of its variables, finite or ``-inf``. They must not be changed.
        eta_v
            Scores of the additionals of all buckets, finite or ``-inf``.
        skip
            Components to skip; their scores are arbitrary.
        options
            Limits and settings.
        warm
            The starting point; None to start from zero.
        """
