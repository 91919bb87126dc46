"""The interface of local solvers: closed forms, active sets, and a factor type's own solver.

One solver serves the factors of one bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.finite_scores import NOTHING_FORBIDDEN, make_rows_finite
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.memory import hold

RUNNING, OPTIMAL, OPTIMAL_TO_ROUNDING = 0, 1, 2
"""Status of a factor's local problem: not solved yet, solved, solved up to rounding."""

UNTIL_SOLVED, SHORT_RUN = 0, -1
"""Limits that depend on the factors: as many iterations as a solution needs, or a few, for problems
that are followed by similar ones soon."""

NO_RECORD: IntArray = np.empty(0, dtype=np.int64)
"""The handle of a solver without a record."""


class SolverDescription(NamedTuple):
    """The description of a solver in `FactorGraph.plan`."""

    name: str
    function: Callable[..., Any]
    """The function of the factor type or of the solver that does the work."""
    reason: str


class LocalSolver:
    """Solves and differentiates the local problems of a bucket, and stores their faces.

    A subclass overrides `solve` and `jvp`, which write into their arguments and return nothing. All
    other attributes have defaults that are right for a closed form. `Factor.local_solver` returns
    the class for a factor type. A constructor of its own takes the same arguments, and passes them
    on.

    Parameters
    ----------
    bucket
        The factors, all of one type. ``bucket.factors`` is the record that kernels get, with their
        offsets and parameters.
    delta
        Square roots of the degrees, one for each slot.
    forbidden
        For each additional, whether it is forbidden. If None, no slot is forced either.

    Notes
    -----
    Several threads call a solver at once, each for its own rows, unless it is `vectorised`. A
    method without a default raises an error that names it.
    """

    vectorised: bool = True
    """Whether it is much faster on many rows at once, like Python and array code. The loop then
    passes all rows at once, on one thread. Compiled kernels set False."""

    iterates: ClassVar[bool] = False
    """Whether it iterates and writes the `status` of every factor. With ``max_inner_iter`` and in
    LP-MAP the active set replaces it."""

    lists_structures: ClassVar[bool] = False
    """Whether it finds solutions as mixtures of structures, by the type's oracle, which
    `structures` lists. The loop then calls `solve` with an empty `v`, because there may be far more
    additionals than structures, and `write_additionals` on request. Otherwise an active set finds
    the structures of a solution on demand."""

    faces_complete: ClassVar[bool] = True
    """Whether `jvp` can follow `solve` directly, without `complete_faces`."""

    starts_warm: ClassVar[bool] = False
    """Whether `copy_from` copies any state."""

    function: ClassVar[str] = "local_solver"
    """The attribute of the factor type that errors about an invalid solution name."""

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        """Store the data of the local problems.

        A subclass creates the arrays of `own_record` before it calls this.
        """
        self.bucket, self.delta = bucket, delta
        self.forbids = forbidden is not None
        self.forbidden = NOTHING_FORBIDDEN if forbidden is None else forbidden
        self.status = np.zeros(bucket.n_factors if self.iterates else 0, dtype=np.int64)
        record = self.own_record()
        self.handle = NO_RECORD if record is None else hold(record).handle
        """The first argument of its kernels."""

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description in `FactorGraph.plan` for the type `factor_type`."""
        return SolverDescription(cls.__name__, cls.solve, "the type's own solver")

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of the factors in `rows`; write their entries of `z` and `v`.

        Parameters
        ----------
        rows
            Numbers of factors.
        a, eta_v
            Scores of all slots and of all additionals. Scores of forced slots are infinite;
            `make_finite` replaces them.
        z, v
            Outputs: scaled marginals of the slots, and marginals of the additionals, unless `v` is
            empty.
        max_iterations
            A limit for solvers that iterate; 0 for as many as needed, -1 for a few.
        """
        raise NotImplementedError(f"{type(self).__name__}: no method solve; expected one.")

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Write the products of the local Jacobians of `rows` with vectors.

        The Jacobians of ``(z, v)`` in ``(a, eta_v)``, on the faces that `solve` found last.

        Parameters
        ----------
        rows
            Numbers of factors.
        d_u, d_v
            The vectors: one number per slot, and one per additional.
        out_u, out_v
            The products, of the same shapes; only entries of `rows` are written.
        """
        raise NotImplementedError(f"{type(self).__name__}: no method jvp; gradients need it.")

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Prepare solved `rows` for `jvp`; `a`, `eta_v` and `z` are those of `solve`."""

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of the solutions of `rows`, with their weights.

        Called only if `lists_structures`.
        """
        words = "no method structures, but lists_structures is True."
        raise NotImplementedError(f"{type(self).__name__}: {words}")

    def write_additionals(self, rows: IntArray, v: FloatArray) -> None:
        """Write the marginals of the additionals of solved `rows` to `v`.

        Called only if `lists_structures`, and then instead of writing them in `solve`.
        """
        words = "no method write_additionals, but lists_structures is True."
        raise NotImplementedError(f"{type(self).__name__}: {words}")

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the final state of the solver `other`.

        It solved factors with the same structures, over variables of the same degrees; it may be of
        another class. Called before the first `solve`, only if `starts_warm`.
        """

    def forget(self, rows: IntArray) -> None:
        """Reset the state of `rows` from earlier solves: other structures are allowed now."""

    def own_record(self) -> Any:
        """Return the record for the kernels: a named tuple of arrays and numbers, or None.

        Annotations give the types of its fields, such as `FloatArray` for an array of one axis.
        `reader_of` turns the type of the record into a function that reads it. The method is called
        once; only the contents of the arrays may change. In a solver with active sets, the first
        field is their record, a `SetsRecord` that ``super().own_record()`` returns.
        """
        return None

    def make_finite(self, rows: IntArray, a: FloatArray, eta_v: FloatArray) -> None:
        """Replace the infinite scores of forced slots in `a` by finite ones that decide.

        Their size follows from the finite scores in `a` and `eta_v` of the factors in `rows`.
        """
        if self.forbids:
            make_rows_finite(rows, self.bucket.factors, a, eta_v, self.forbidden)

    def unsolved(self) -> IntArray:
        """Return the factors whose latest local problem reached the iteration limit."""
        return np.flatnonzero(self.status == RUNNING)
