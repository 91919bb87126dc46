"""The interface of local solvers: closed forms, active sets, and a factor type's own solver.

One solver serves the factors of one bucket. The compiled loop calls it by the words of its
`lpsmap_core.kernels.entries.SolverRecord`. Interpreted kernels call the object itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import SolverRecord, address_of, lazy_place, solver_at
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.finite_scores import NOTHING_BARRED, make_rows_finite
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_address
from lpsmap_jit.compile import interpreted_by, kernel, leaf
from lpsmap_jit.interrupts import halt, raise_interrupt
from lpsmap_jit.lazy_kernels import kernel_at
from lpsmap_jit.memory import n_words, record_in
from lpsmap_jit.native import Callback, call_python, invoke, write_words
from lpsmap_jit.tiers import interprets

__all__ = [
    "ANSWER",
    "OPTIMAL",
    "RUNNING",
    "STALLED",
    "CallArguments",
    "LocalSolver",
    "SolverDescription",
    "call_oracle",
    "call_solver",
    "has_failed",
    "multiply_by",
    "solve_by",
]

RUNNING, OPTIMAL, STALLED = 0, 1, 2
"""Status of a factor's local problem: not solved yet, solved, solved up to rounding."""

ANSWER, _SOLVE, _MULTIPLY = -1, -2, -3
"""The methods of a solver that compiled code calls."""


class CallArguments(NamedTuple):
    """The arguments of a call from compiled code to a method such as `LocalSolver.solve`."""

    rows: IntArray
    first: FloatArray
    second: FloatArray
    third: FloatArray
    fourth: FloatArray
    max_iterations: int


class SolverDescription(NamedTuple):
    """The description of a solver in `FactorGraph.plan`."""

    name: str
    function: Callable[..., Any]
    """The function of the factor type or of the solver that does the work."""
    reason: str


class LocalSolver:
    """Solves and differentiates the local problems of a bucket, and stores their faces.

    A subclass overrides `solve` and `jvp` in Python, or names compiled kernels in `kernels`. All
    other attributes have defaults that are right for a closed form. `Factor.local_solver` returns
    the class for a factor type.

    Parameters
    ----------
    bucket
        The factors, all of one type.
    delta
        Square roots of the degrees, one for each slot.
    barred
        For each additional, whether it is forbidden. If None, no slot is forced either.

    Notes
    -----
    Several threads call a solver at once, each for its own rows, unless it is `vectorised`.
    """

    kernels: ClassVar[tuple[tuple[Any, Any], ...]] = ()
    """Compiled kernels, in pairs with the arguments of `solve` and of `jvp`. Their first argument
    is the solver, from which a function made by `reader_of` reads the solver's record. The loop
    calls the first pair. Further pairs, which are compiled at their first call, are for `solve_by`
    and `multiply_by`."""

    vectorised: bool = True
    """Whether it is much faster on many rows at once, like Python and array code. The loop then
    passes all rows at once, on one thread. Compiled kernels set False."""

    iterates: ClassVar[bool] = False
    """Whether it iterates and writes the `status` of every factor. With ``max_inner_iter`` and in
    LP-MAP the active set replaces it."""

    lists_structures: ClassVar[bool] = False
    """Whether it finds solutions as mixtures of structures, by the type's oracle, which
    `structures` lists. Otherwise an active set finds the structures of a solution on demand."""

    faces_complete: ClassVar[bool] = True
    """Whether `jvp` can follow `solve` directly, without `complete_faces`."""

    starts_warm: ClassVar[bool] = False
    """Whether `copy_from` copies any state."""

    function: ClassVar[str] = "local_solver"
    """The attribute of the factor type that errors about an invalid solution name."""

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        """Store the data of the local problems.

        A subclass creates the arrays of `own_record` before it calls this.
        """
        self.bucket, self.delta = bucket, delta
        self.forbids = barred is not None
        self.barred = NOTHING_BARRED if barred is None else barred
        self.status = np.zeros(bucket.n_factors if self.iterates else 0, dtype=np.int64)
        self._own, self._sets = self.own_record(), self._sets_record()
        self._callback: Callback | None = None
        self._words: list[IntArray] = []
        if not interprets():
            self._write_record()

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
            Outputs: scaled marginals of the slots, and marginals of the additionals.
        max_iterations
            A limit for solvers that iterate; 0 for as many as needed, -1 for a few.
        """
        if not self.kernels:
            raise NotImplementedError
        self.kernels[0][0](self.handle, rows, a, eta_v, z, v, max_iterations)
        self.raise_error()

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
        if not self.kernels:
            raise NotImplementedError
        self.kernels[0][1](self.handle, rows, d_u, d_v, out_u, out_v)

    def bind(
        self, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> Callable[[IntArray], None]:
        """Return `jvp` as a function of the rows alone, for many products on the same arrays."""

        def multiply(rows: IntArray) -> None:
            self.jvp(rows, d_u, d_v, out_u, out_v)

        return multiply

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Prepare solved `rows` for `jvp`; `a`, `eta_v` and `z` are those of `solve`."""

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of the solutions of `rows`, with their weights.

        Called only if `lists_structures`.
        """
        raise NotImplementedError

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
        once; only the contents of the arrays may change.
        """
        return None

    def _sets_record(self) -> Any:
        """Return the additional record of active sets, or None."""
        return None

    def answer(self, rows: IntArray) -> None:
        """Run Python code for compiled kernels, which call it by `call_oracle`."""

    def make_finite(self, rows: IntArray, a: FloatArray, eta_v: FloatArray) -> None:
        """Replace the infinite scores of forced slots in `a` by finite ones that decide.

        Their size follows from the finite scores in `a` and `eta_v` of the factors in `rows`.
        """
        if self.forbids:
            make_rows_finite(rows, self.bucket.factors, a, eta_v, self.barred)

    def unsolved(self) -> IntArray:
        """Return the factors whose latest local problem reached the iteration limit."""
        return np.flatnonzero(self.status == RUNNING)

    def raise_error(self) -> None:
        """Raise an error of Python code inside a compiled loop, or of an interrupt."""
        raise_interrupt()
        if self._callback is not None:
            self._callback.raise_error()

    @property
    def handle(self) -> Any:
        """The first argument of its kernels."""
        return self if interprets() else self._words[-1]

    def _pairs(self) -> tuple[tuple[Any, Any], ...]:
        """Return the kernels for the bucket."""
        return self.kernels or ((_solve_in_python, _multiply_in_python),)

    def _write_record(self) -> None:
        """Write the record for compiled loops, after the records that it refers to."""
        self._check_kernels()
        self._callback = Callback(self._called)
        (solve, multiply), *further = self._pairs()
        places = [
            (lazy_place(solve, "solve"), lazy_place(multiply, "jvp")) for solve, multiply in further
        ]
        record = SolverRecord(
            address_of(solve, "solve"),
            lazy_place(multiply, "jvp"),
            np.array(places, dtype=np.int64).reshape(-1),
            self._callback.address,
            np.zeros(1, dtype=np.int64),
            self.status,
            0 if self._own is None else self._written(self._own),
            0 if self._sets is None else self._written(self._sets),
        )
        self._written(record)
        self._record = record  # keeps its arrays alive

    def _written(self, record: Any) -> int:
        """Write a record and return the address of its words, valid while the solver exists."""
        kind: Any = type(record)
        self._words.append(np.empty(n_words(kind), dtype=np.int64))
        address: int = write_words(record, self._words[-1])
        return address

    def _check_kernels(self) -> None:
        """Raise unless `kernels` can be called by address."""
        compiled = [hasattr(function, "overloads") for pair in self.kernels for function in pair]
        if not all(compiled):
            raise TypeError(
                f"{type(self).__name__}.kernels: got {self.kernels!r:.80}; expected pairs of "
                "functions compiled by @kernel or @leaf."
            )

    def _called(self, what: int, argument: int) -> None:
        """Run the method that a compiled loop calls."""
        arguments = record_in(CallArguments, argument)
        if what == ANSWER:
            self.answer(arguments.rows)
        elif what == _SOLVE:
            self.solve(*arguments)
        else:
            self.jvp(*arguments[:-1])


# -------------------------------------------------------------------- for a solver's own kernels


def _answer(solver: Any, rows: IntArray) -> bool:
    solver.answer(rows)
    return True


def _solve_by(solver: Any, k: int, *arguments: Any) -> None:
    solver.kernels[k][0](solver, *arguments)


def _multiply_by(solver: Any, k: int, *arguments: Any) -> None:
    solver.kernels[k][1](solver, *arguments)


@leaf
def call_solver(solver: Any, what: int, arguments: CallArguments) -> bool:
    """Call a solver's Python code; false if it raised, on which all kernels return."""
    record = solver_at(solver)
    record.failed[0] = call_python(record.call, what, by_address(arguments))
    if record.failed[0] != 0:
        halt()
    return record.failed[0] == 0  # type: ignore[no-any-return]


@leaf
def has_failed(solver: Any) -> bool:
    """Return whether a solver's Python code has raised."""
    return solver_at(solver).failed[0] != 0  # type: ignore[no-any-return]


@interpreted_by(_answer)
@kernel
def call_oracle(solver: Any, rows: IntArray) -> bool:
    """Call a solver's method `answer` for some rows; return false if it raised.

    The kernel then has to return at once.
    """
    nothing = np.empty(0)
    arguments = CallArguments(np.ascontiguousarray(rows), nothing, nothing, nothing, nothing, 0)
    return call_solver(solver, ANSWER, arguments)


@interpreted_by(_solve_by)
@leaf
def solve_by(
    solver: Any,
    k: int,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    """Solve some local problems by pair `k` of a solver's kernels; further pairs count from 1."""
    address = kernel_at(solver_at(solver).further[2 * k - 2])
    if address != 0:  # otherwise Python raised, and all kernels return
        invoke(address, (solver, rows, a, eta_v, z, v, np.int64(max_iterations)))


@interpreted_by(_multiply_by)
@leaf
def multiply_by(
    solver: Any,
    k: int,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply some local Jacobians by pair `k` of a solver's kernels, as in `solve_by`."""
    address = kernel_at(solver_at(solver).further[2 * k - 1])
    if address != 0:
        invoke(address, (solver, rows, d_u, d_v, out_u, out_v))


# -------------------------------------------------------------------- solvers in Python


@kernel
def _solve_in_python(
    solver: IntArray,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    rows = np.ascontiguousarray(rows)
    call_solver(solver, _SOLVE, CallArguments(rows, a, eta_v, z, v, max_iterations))


@kernel
def _multiply_in_python(
    solver: IntArray,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    rows = np.ascontiguousarray(rows)
    call_solver(solver, _MULTIPLY, CallArguments(rows, d_u, d_v, out_u, out_v, 0))
