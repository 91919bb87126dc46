"""What an engine is, and what it returns: all that the rest of the library knows of either.

An engine is handed a `Part`, the flat arrays of a graph's factors, with scores in the order of its
variables and of its buckets' additionals. It returns a `SolvedGraph`, which answers for the
components one by one. The engine of core is `lpsmap_core.engine.compiled`; plugins offer others by
the hook ``lpsmap_engines``. Several may share a part, each with components of its own.
"""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.backends import Backend, NumpyBackend
from lpsmap_core.engine.cotangents import are_ordinary
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.status import OK
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.vertices import Vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Engine", "SolvedGraph", "WarmStart"]


class WarmStart(NamedTuple):
    """Where an engine starts, instead of from nothing, in the components that are `known`."""

    u: FloatArray
    """One scaled mean a variable, its marginal over the square root of its degree."""
    duals: FloatArray
    """One dual variable a link, in the order of the variables; they sum to zero over each one's."""
    step_size: FloatArray
    """Step sizes of the components."""
    known: BoolArray
    first_step_size: FloatArray | None = None
    """What step sizes were first, in proportion to the scores, if these may be others now."""
    solved: object = None
    """What else the engine that ended there keeps, such as active sets to start with."""


class SolvedGraph(abc.ABC):
    """A solved part: what engines answer for their solutions.

    What has a default here an engine may do without: a bound of infinity claims nothing.

    Attributes
    ----------
    part
        What was solved.
    iterations
        (n_components,) outer iterations.
    primal_residual, dual_residual
        (n_components,) largest disagreement of a variable's copies, and what the scores would have
        to change by for the copies to be the best ones; both in units of marginals.
    quadratic
        What the quadratic term counted.
    """

    part: Part
    iterations: IntArray
    primal_residual: FloatArray
    dual_residual: FloatArray
    quadratic: float = 1.0

    @abc.abstractmethod
    def status(self) -> npt.NDArray[np.object_]:
        """Return the `Status` of every component, as an array of one's own."""

    @abc.abstractmethod
    def marginals(self) -> FloatArray:
        """Return one number in [0, 1] a variable, in an array of the caller's own."""

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
            One number per additional; or none at all, for zeros.
        chosen
            Components to treat, the results of others are zero; None for all.
        threads
            Number of threads that may be used.

        Returns
        -------
        out, out_v
            The product's entries for the variables and for the additionals.
        """

    def unfinished(self) -> BoolArray:
        """Return which components core's engine has to go on with, from where this one ended.

        Read only where `Engine.prefers` chose the engine: those that are not solved.
        """
        return np.array([status not in OK for status in self.status().tolist()], dtype=bool)

    def takes(self, d: FloatArray) -> bool:
        """Return whether `multiply` gets a vector as it is, because all numbers have squares.

        Otherwise it gets one that is scaled, with zeros in place of what is not finite.

        Parameters
        ----------
        d
            One number per variable.
        """
        return are_ordinary(d)

    @abc.abstractmethod
    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of some factors of bucket `b`, owned by their rows."""

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden, by ``-inf`` or by far less."""
        n_additionals = int(self.part.blocks.first_additional[-1])
        return np.zeros(self.part.n_variables, dtype=bool), np.zeros(n_additionals, dtype=bool)

    def gap(self) -> FloatArray:
        """Return for every component how far the maximum can lie above the objective."""
        return np.full(self.part.n_components, np.inf)

    def error_bound(self, threads: int) -> FloatArray:
        """Return for every component a bound on the 2-norm of the marginals' error.

        Parameters
        ----------
        threads
            Number of threads that may be used.
        """
        return np.full(self.part.n_components, np.inf)

    def assignment_bound(self) -> FloatArray:
        """Return for every component what no assignment of its variables scores more than."""
        return np.full(self.part.n_components, np.inf)

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, row) of factors that contradict, for each infeasible component."""
        return {}

    def trace(self) -> FloatArray | None:
        """Return the (n_iterations, 2, n_components) residuals, if they were asked for and kept."""
        return None

    def end(self) -> WarmStart | None:
        """Return where the solve ended, for another one to start from."""
        return None


class Engine(abc.ABC):
    """Solves graphs. Plugins offer engines by the hook ``lpsmap_engines``.

    An engine is made without arguments, and keeps nothing from one solve to the next.
    """

    name: ClassVar[str]
    """What the engine is known by, such as ``"compiled"``."""
    backend: ClassVar[type[Backend]] = NumpyBackend
    """The library whose arrays `solve` takes for scores, and its solved graphs for vectors.

    Marginals, additionals and products come back in arrays of it, on the device of the scores. A
    graph in NumPy has them converted; an adapter with arrays of this library hands on its own.
    """
    keeps_scores: ClassVar[bool] = True
    """Whether a solved graph may read `eta_v` again, which is a copy then."""
    needs_no_start: ClassVar[bool] = False
    """Whether it gets its components even where there is a warm start, from which core's engine
    goes on otherwise, unless this engine solves the whole part."""

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return in a sentence why it cannot solve a whole part with these options, if so."""
        return None

    def serves(self, part: Part) -> BoolArray | None:
        """Return for each component whether the engine can solve it, or None for all.

        A user who asks for this engine gets core's for the other components.
        """
        return None

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Return for each component whether ``engine="auto"`` should give it to this engine first.

        Core's engine goes on with what it leaves unfinished. `refuses` is not asked.

        Parameters
        ----------
        part
            The part.
        options
            Limits and settings of the solve.

        Returns
        -------
        BoolArray or None
            None for no component. This must be quick, since every solve asks.
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
            Scores of its variables, finite or ``-inf``.
        eta_v
            Scores of the additionals of all buckets, likewise.
        skip
            Components to leave out, whose scores mean nothing.
        options
            Limits and settings.
        warm
            Where to start from.
        """
