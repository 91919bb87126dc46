"""What a solver of local problems is: closed forms, active sets, and those of factor types.

One solver serves the factors of one bucket. The compiled loop knows it by the words of its
`lpsmap_jit.native.SolverRecord`; where kernels are interpreted, by the object itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import SolverRecord, address_of, later, solver_at
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.forced import NOTHING_BARRED, decide_rows
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
    "LocalSolver",
    "Question",
    "SolverDescription",
    "ask_solver",
    "call_solver",
    "has_failed",
    "multiply_by",
    "solve_by",
]

RUNNING, OPTIMAL, STALLED = 0, 1, 2
"""Status of a factor's local problem: not solved yet, solved, solved as far as rounding lets it."""

ANSWER, _SOLVE, _MULTIPLY = -1, -2, -3
"""What compiled code calls Python for."""


class Question(NamedTuple):
    """What compiled code calls Python with: the arguments of `LocalSolver.solve`, or of another."""

    rows: IntArray
    first: FloatArray
    second: FloatArray
    third: FloatArray
    fourth: FloatArray
    max_iterations: int


class SolverDescription(NamedTuple):
    """What `FactorGraph.plan` says of a solver."""

    name: str
    function: Callable[..., Any]
    """The function of the factor type, or of the solver, that does the work."""
    reason: str


class LocalSolver:
    """Solves and differentiates the local problems of a bucket; keeps the faces that it found.

    A subclass overrides `solve` and `jvp` in Python, or names compiled kernels in `kernels`. All
    else has defaults, which are right for a closed form. `Factor.local_solver` says which class
    serves a factor type.

    Parameters
    ----------
    bucket
        The factors, all of one type.
    delta
        Square roots of the degrees, one for each slot.
    barred
        For each additional, whether it is forbidden. Without it, no slot is forced either.

    Notes
    -----
    A solver is called by several threads at once, each for other rows, unless it is `vectorised`.
    """

    kernels: ClassVar[tuple[tuple[Any, Any], ...]] = ()
    """Compiled kernels, in pairs of the arguments of `solve` and of `jvp`, before which comes what
    a `reader_of` the solver's record takes. The loop calls the first pair. Further pairs, which are
    compiled when they are first needed, serve `solve_by` and `multiply_by`."""

    vectorised: bool = True
    """Whether it serves many rows at once much faster than one by one, as Python and array code do.
    The loop then hands it all rows at once, on one thread. Compiled kernels say False."""

    iterates: ClassVar[bool] = False
    """Whether it iterates, so that `status` says of every factor how it ended. With
    ``max_inner_iter`` and in LP-MAP the active set takes its place."""

    lists_structures: ClassVar[bool] = False
    """Whether it finds solutions as mixtures of structures, by the type's oracle, and `structures`
    lists them. Otherwise an active set finds the structures of a solution when they are wanted."""

    faces_complete: ClassVar[bool] = True
    """Whether `jvp` can be called after `solve` alone, without `complete_faces`."""

    starts_warm: ClassVar[bool] = False
    """Whether `copy_from` takes anything over."""

    function: ClassVar[str] = "local_solver"
    """What of the factor type an error about a wrong solution names."""

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        """Keep what the local problems are made of.

        A subclass makes the arrays of `own_record` before it calls this.
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
        """Return what `FactorGraph.plan` says of it where it serves `factor_type`."""
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
            Scores of all slots and of all additionals. Those of forced slots are infinite;
            `make_finite` replaces them.
        z, v
            Scaled marginals of the slots, and marginals of the additionals. What they hold before
            is of no use.
        max_iterations
            A limit for solvers that iterate; 0 for as many as it takes, -1 for a few.
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
            The vectors: a number for every slot, and one for every additional.
        out_u, out_v
            The products, likewise; only entries of `rows` are written.
        """
        if not self.kernels:
            raise NotImplementedError
        self.kernels[0][1](self.handle, rows, d_u, d_v, out_u, out_v)

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Prepare solved `rows` for `jvp`; `a`, `eta_v` and `z` are those of `solve`."""

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures that make the solutions of `rows`, with their weights.

        Called only if `lists_structures`.
        """
        raise NotImplementedError

    def copy_from(self, other: LocalSolver) -> None:
        """Start from what the solver `other` ended with.

        It solved factors of the same structures, over variables of the same degrees; it may be of
        another class. Called before the first `solve`, only if `starts_warm`.
        """

    def forget(self, rows: IntArray) -> None:
        """Forget what an earlier solve of `rows` has found: other structures are allowed now."""

    def own_record(self) -> Any:
        """Return what the kernels read: a named tuple of arrays and numbers, or None.

        Annotations say what they are, `FloatArray` for an array of one axis. `reader_of` makes of
        its type a function that reads it. It is asked for once: what changes is in the arrays.
        """
        return None

    def _sets_record(self) -> Any:
        """Return the record that active sets keep beside that, or None."""
        return None

    def answer(self, rows: IntArray) -> None:
        """Do for compiled kernels what only Python can, when they call `ask_solver`."""

    def make_finite(self, rows: IntArray, a: FloatArray, eta_v: FloatArray) -> None:
        """Replace infinite scores by finite ones that decide: those in `a` of forced slots.

        Finite ones of the slots and in `eta_v` of the additionals of `rows` say how large they are.
        """
        if self.forbids:
            decide_rows(rows, self.bucket.factors, a, eta_v, self.barred)

    def unsolved(self) -> IntArray:
        """Return the factors whose latest local problem hit the iteration limit."""
        return np.flatnonzero(self.status == RUNNING)

    def raise_error(self) -> None:
        """Raise what was raised inside a compiled loop: by Python code, or for an interruption."""
        raise_interrupt()
        if self._callback is not None:
            self._callback.raise_error()

    @property
    def handle(self) -> Any:
        """What its kernels are called with."""
        return self if interprets() else self._words[-1]

    def _pairs(self) -> tuple[tuple[Any, Any], ...]:
        """Return the kernels that serve the bucket."""
        return self.kernels or ((_solve_in_python, _multiply_in_python),)

    def _write_record(self) -> None:
        """Write what compiled loops need to know: its record, after the records that this names."""
        self._check_kernels()
        self._callback = Callback(self._called)
        (solve, multiply), *further = self._pairs()
        places = [(later(solve, "solve"), later(multiply, "jvp")) for solve, multiply in further]
        record = SolverRecord(
            address_of(solve, "solve"),
            later(multiply, "jvp"),
            np.array(places, dtype=np.int64).reshape(-1),
            self._callback.address,
            np.zeros(1, dtype=np.int64),
            self.status,
            0 if self._own is None else self._written(self._own),
            0 if self._sets is None else self._written(self._sets),
        )
        self._written(record)
        self._record = record  # which holds its arrays

    def _written(self, record: Any) -> int:
        """Write a record and return the address of its words, which are valid while this lives."""
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
                "functions that @kernel or @leaf has compiled."
            )

    def _called(self, what: int, argument: int) -> None:
        """Do for a compiled loop what only Python can."""
        question = record_in(Question, argument)
        if what == ANSWER:
            self.answer(question.rows)
        elif what == _SOLVE:
            self.solve(*question)
        else:
            self.jvp(*question[:-1])


# -------------------------------------------------------------------- for a solver's own kernels


def _answer(solver: Any, rows: IntArray) -> bool:
    solver.answer(rows)
    return True


def _solve_by(solver: Any, k: int, *arguments: Any) -> None:
    solver.kernels[k][0](solver, *arguments)


def _multiply_by(solver: Any, k: int, *arguments: Any) -> None:
    solver.kernels[k][1](solver, *arguments)


@leaf
def call_solver(solver: Any, what: int, question: Question) -> bool:
    """Let a solver's Python code answer; false if it raised, on which all kernels come out."""
    record = solver_at(solver)
    record.failed[0] = call_python(record.call, what, by_address(question))
    if record.failed[0] != 0:
        halt()
    return record.failed[0] == 0  # type: ignore[no-any-return]


@leaf
def has_failed(solver: Any) -> bool:
    """Return whether a solver's Python code raised."""
    return solver_at(solver).failed[0] != 0  # type: ignore[no-any-return]


@interpreted_by(_answer)
@kernel
def ask_solver(solver: Any, rows: IntArray) -> bool:
    """Call a solver's method `answer` for some rows; return false if it raised.

    A kernel then returns at once.
    """
    nothing = np.empty(0)
    question = Question(np.ascontiguousarray(rows), nothing, nothing, nothing, nothing, 0)
    return call_solver(solver, ANSWER, question)


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
    """Solve some local problems by the pair number `k`, from 1 on, of a solver's kernels."""
    address = kernel_at(solver_at(solver).further[2 * k - 2])
    if address != 0:  # else Python raised, and all kernels come out
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
    """Multiply some local Jacobians by the pair number `k`, from 1 on, of a solver's kernels."""
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
    call_solver(solver, _SOLVE, Question(rows, a, eta_v, z, v, max_iterations))


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
    call_solver(solver, _MULTIPLY, Question(rows, d_u, d_v, out_u, out_v, 0))
