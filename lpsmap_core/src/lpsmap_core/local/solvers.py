"""Solvers of a bucket's local problems: closed form compiled, closed form on arrays, active set.

Each can be called from Python, and from compiled loops through the functions `solve_rows`,
`multiply_rows` and `mark_unsolved`. Compiled loops find a solver by its record (see
`lpsmap_core.kernels.native`); where they are interpreted, they hold the solvers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from lpsmap_core.kernels.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import interpreted_by, leaf
from lpsmap_core.kernels.late import kernel_at
from lpsmap_core.kernels.native import FAILED, JVP, RECORD_SIZE, SOLVE, STATUS, ints_at, invoke
from lpsmap_core.kernels.tiers import interprets
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.active.steps import RUNNING
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.flows.chains import ChainFlows
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.levels import has_array_code

__all__ = [
    "LocalSolver",
    "SolverChoice",
    "choose_solver",
    "every_solver",
    "local_solver",
    "make_solver_table",
    "mark_unsolved",
    "multiply_rows",
    "solve_rows",
]


class LocalSolver(Protocol):
    """Solves and differentiates local problems; keeps the faces that it found."""

    record: IntArray
    """Where compiled loops find it."""
    vectorised: bool
    """Whether it serves many rows at once much faster than one by one."""

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of the factors in `rows`; write their slots of `z` and `v`.

        The scores `a` of forced slots are infinite; they can have become finite afterwards.
        """

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Write the products of the local Jacobians of `rows` with ``(d_u, d_v)``."""

    def unsolved(self) -> IntArray:
        """Return the factors whose latest local problem hit the iteration limit."""

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Bring the faces of solved rows from what represents `z` to all that it could move on."""

    def raise_error(self) -> None:
        """Raise what was raised inside a compiled loop: by Python code, or for an interruption."""


class SolverChoice(NamedTuple):
    """The solver of a bucket's local problems, and why it is this one."""

    make: Callable[[Bucket, FloatArray, ByteArray | None], LocalSolver]
    name: str
    function: Callable[..., Any]
    """What it calls of the factor type."""
    reason: str

    @property
    def vectorised(self) -> bool:
        """Whether it is array code, which is much faster on many factors at once."""
        return not self.by_structures and not hasattr(self.function, "overloads")

    @property
    def by_structures(self) -> bool:
        """Whether it is an active set on the MAP oracle, or begins with one."""
        return self.make in (ActiveSets, ChainFlows)


def choose_solver(
    factor_type: type[Factor], generic: bool = False, limited: bool = False
) -> SolverChoice:
    """Return the best solver that a factor type offers.

    Parameters
    ----------
    factor_type
        The type.
    generic
        Use the active set on the MAP oracle even where there is a closed form.
    limited
        Whether iterations are limited, which not all closed forms can obey.
    """
    reason = "no closed form"
    if generic:
        reason = "asked for"
    elif limited and factor_type.iterates:
        reason = "iterations are limited"
    elif factor_type.projection_kernel is not None and factor_type.jvp_kernel is not None:
        project = factor_type.projection_kernel
        name = f"closed form, {_compiled(project)}"
        return SolverChoice(CompiledForm, name, project, "kernels for whole buckets")
    elif has_array_code(factor_type):
        name, function = "closed form, array code", factor_type.solve_sparsemap
        return SolverChoice(ArrayForm, name, function, "array code, no kernels")
    oracle = factor_type.map_kernel
    name = f"active set, {_compiled(oracle)} oracle"
    if _is_chain(factor_type) and not (generic or limited):
        name, reason = f"forests, or {name}, then flows", "a chain"
        return SolverChoice(ChainFlows, name, oracle or factor_type.solve_map, reason)
    return SolverChoice(ActiveSets, name, oracle or factor_type.solve_map, reason)


def _is_chain(factor_type: type[Factor]) -> bool:
    """Return whether a type's structures are what the class said that has `chain_states`."""
    said = next(cls for cls in factor_type.__mro__ if "chain_states" in vars(cls))
    same = ("map_kernel", "solve_map", "vertex")
    return factor_type.chain_states is not None and all(
        getattr(factor_type, name) is getattr(said, name) for name in same
    )


def _compiled(function: Callable[..., None] | None) -> str:
    return "compiled" if hasattr(function, "overloads") else "Python"


def local_solver(
    bucket: Bucket,
    delta: FloatArray,
    generic: bool = False,
    limited: bool = False,
    barred: ByteArray | None = None,
) -> LocalSolver:
    """Return the best solver that a bucket's factor type offers, see `choose_solver`.

    Parameters
    ----------
    bucket
        The factors.
    delta
        Square roots of the degrees, one per slot.
    generic, limited
        As in `choose_solver`.
    barred
        For each additional, whether it is forbidden; without, no slot is forced either.
    """
    return choose_solver(bucket.type, generic, limited).make(bucket, delta, barred)


def every_solver(bucket: Bucket, delta: FloatArray) -> dict[str, LocalSolver]:
    """Return all solvers that a bucket's factor type offers, by what they are; see `local_solver`.

    The active set comes first. All must give the same solutions and derivatives.
    """
    solvers: dict[str, LocalSolver] = {"active set": ActiveSets(bucket, delta)}
    if bucket.type.projection_kernel is not None and bucket.type.jvp_kernel is not None:
        solvers["compiled closed form"] = CompiledForm(bucket, delta)
    if _is_chain(bucket.type):
        solvers["forests, or active set, then flows"] = ChainFlows(bucket, delta)
    if has_array_code(bucket.type):
        solvers["array closed form"] = ArrayForm(bucket, delta)
    return solvers


# -------------------------------------------------------------------- for compiled loops


def _solve_rows(solver_table: Any, b: int, *arguments: Any) -> bool:
    solver_table[b].solve(*arguments)
    return True


def _multiply_rows(solver_table: Any, b: int, *arguments: Any) -> None:
    solver_table[b].jvp(*arguments)


def _mark_unsolved(
    solver_table: Any, b: int, rows: IntArray, owner: IntArray, unsolved: BoolArray
) -> None:
    unsolved[owner[np.intersect1d(rows, solver_table[b].unsolved())]] = True


@interpreted_by(_solve_rows)
@leaf
def solve_rows(
    solver_table: Any,
    b: int,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> bool:
    """Solve some local problems of bucket `b`; false if Python code raised."""
    record = solver_table[b]
    invoke(record[SOLVE], (record, rows, a, eta_v, z, v, np.int64(max_iterations)))
    return record[FAILED] == 0  # type: ignore[no-any-return]


@interpreted_by(_multiply_rows)
@leaf
def multiply_rows(
    solver_table: Any,
    b: int,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply some local Jacobians of bucket `b` with ``(d_u, d_v)``."""
    record = solver_table[b]
    address = kernel_at(record[JVP])
    if address != 0:  # else Python raised, and all kernels come out
        invoke(address, (record, rows, d_u, d_v, out_u, out_v))


@interpreted_by(_mark_unsolved)
@leaf
def mark_unsolved(
    solver_table: Any, b: int, rows: IntArray, owner: IntArray, unsolved: BoolArray
) -> None:
    """Mark the owners of rows of bucket `b` whose latest local problem is not solved."""
    status = ints_at(solver_table[b], STATUS)
    if len(status) > 0:
        for f in rows:
            if status[f] == RUNNING:
                unsolved[owner[f]] = True


def make_solver_table(solvers: Sequence[LocalSolver]) -> Any:
    """Return what compiled loops call solvers by: a table of their records, which it becomes."""
    if interprets():
        return tuple(solvers)
    table = np.zeros((len(solvers), RECORD_SIZE), dtype=np.int64)
    for record, solver in zip(table, solvers, strict=True):
        record[:] = solver.record
        solver.record = record
    return table
