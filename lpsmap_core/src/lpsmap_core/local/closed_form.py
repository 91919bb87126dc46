"""Closed forms of a bucket's local problems: compiled kernels, and code on arrays.

Compiled loops reach both by their record (see `lpsmap_core.kernels.native`): the first straight,
the second through Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lpsmap_core.kernels.arrays import ByteArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf
from lpsmap_core.kernels.interrupts import halt, raise_interrupt
from lpsmap_core.kernels.late import kernel_at, later
from lpsmap_core.kernels.native import (
    CALL,
    FAILED,
    FIRST_FREE,
    FORBIDS,
    JVP,
    RECORD_SIZE,
    SOLVE,
    Callback,
    address_of,
    arrays_at,
    ask_python,
    bytes_at,
    factors_at,
    floats_at,
    invoke,
    pack,
    words_of,
)
from lpsmap_core.kernels.records import Direction, Factors, LocalScores, LocalSolution, Product
from lpsmap_core.kernels.tiers import interprets
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.local.forced import NOTHING_BARRED, decide_rows

__all__ = ["ArrayForm", "CompiledForm"]

_NONE, _NOTHING = np.empty(0, dtype=np.int64), np.empty(0)

_SOLVE, _MULTIPLY = 0, 1
"""What compiled loops call Python for."""

_PROJECT, _DIFFERENTIATE, _FACTORS = FIRST_FREE, FIRST_FREE + 1, FIRST_FREE + 2
_DELTA = _FACTORS + words_of(Factors)
_FACE, _BRANCH, _BARRED = _DELTA + 2, _DELTA + 4, _DELTA + 6
"""Positions in the record: addresses of the type's kernels, and of arrays."""


class _ClosedForm:
    """What the two kinds of closed form share: their faces, and how compiled loops reach them."""

    vectorised = True

    function: str
    """What of the factor type it calls."""

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        self.bucket = bucket
        self.delta = delta
        self.forbids = barred is not None
        self.barred = NOTHING_BARRED if barred is None else barred
        self.face = np.zeros(bucket.n_links, dtype=np.int8)
        self.branch = np.zeros(bucket.n_factors, dtype=np.int8)
        self.record = np.zeros(RECORD_SIZE, dtype=np.int64)
        self._callback: Callback | None = None
        if not interprets():
            self._write_record()

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        raise NotImplementedError

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        raise NotImplementedError

    def unsolved(self) -> IntArray:
        return _NONE

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Do nothing: a closed form reports the whole face."""

    def raise_error(self) -> None:
        raise_interrupt()
        if self._callback is not None:
            self._callback.raise_error()

    def _make_finite(self, rows: IntArray, a: FloatArray, eta_v: FloatArray) -> None:
        """Replace the infinite local scores of forced slots, which are the caller's."""
        if self.forbids:
            decide_rows(rows, self.bucket.factors, a, eta_v, self.barred)

    def _write_record(self) -> None:
        """Let compiled loops come back to Python."""
        self._callback = Callback(self._called)
        self.record[SOLVE] = address_of(_solve_in_python, "solve")
        self.record[JVP] = address_of(_multiply_in_python, "jvp")
        self.record[CALL] = self._callback.address

    def _called(self, what: int, argument: int) -> None:
        kinds = (np.int64, np.float64, np.float64, np.float64, np.float64)
        rows, first, second, third, fourth = arrays_at(argument, kinds)
        if what == _SOLVE:
            self.solve(rows, first, second, third, fourth, 0)
        else:
            self.jvp(rows, first, second, third, fourth)


class CompiledForm(_ClosedForm):
    """A closed form as kernels on flat arrays."""

    function = "projection_kernel"

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        assert bucket.type.projection_kernel is not None
        assert bucket.type.jvp_kernel is not None
        self._project: Callable[..., None] = bucket.type.projection_kernel
        self._multiply: Callable[..., None] = bucket.type.jvp_kernel
        super().__init__(bucket, delta, barred)

    def _write_record(self) -> None:
        project = address_of(self._project, "projection_kernel")
        multiply = later(self._multiply, "jvp_kernel")
        if not (project and multiply):
            super()._write_record()
            return
        self.vectorised = False
        record = self.record
        record[SOLVE] = address_of(_solve_closed_form, "solve")
        record[JVP] = later(_multiply_closed_form, "jvp")
        record[_PROJECT], record[_DIFFERENTIATE] = project, multiply
        record[FORBIDS] = self.forbids
        arrays = (*self.bucket.factors, self.delta, self.face, self.branch, self.barred)
        pack(record, _FACTORS, arrays)

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; see `lpsmap_core.local.solvers.LocalSolver`."""
        self._make_finite(rows, a, eta_v)
        scores = LocalScores(a, self.delta, eta_v)
        solution = LocalSolution(z, v, self.face, self.branch)
        self._project(rows, self.bucket.factors, scores, solution)

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`, likewise."""
        direction = Direction(self.delta, self.face, self.branch, d_u, d_v)
        self._multiply(rows, self.bucket.factors, direction, Product(out_u, out_v))


class ArrayForm(_ClosedForm):
    """A closed form in array-API code, called once for every arity in the bucket."""

    function = "solve_sparsemap"

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        super().__init__(bucket, delta, barred)
        self._arity = np.diff(bucket.offsets)
        self._n_additionals = np.diff(bucket.additional_offsets)

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; see `lpsmap_core.local.solvers.LocalSolver`."""
        self._make_finite(rows, a, eta_v)
        for group, slots, extra in self._groups(rows):
            solution = self.bucket.type.solve_sparsemap(
                a[slots], eta_v[extra], self.delta[slots], *self._parameters(group, slots)
            )
            _check_shapes(self.bucket, solution, slots.shape, extra.shape)
            z[slots], v[extra] = solution.z, solution.v
            self.face[slots], self.branch[group] = solution.face, solution.branch

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`, likewise."""
        for group, slots, extra in self._groups(rows):
            face = LocalSolution(_NOTHING, _NOTHING, self.face[slots], self.branch[group])
            out_u[slots], out_v[extra] = self.bucket.type.jvp(
                face, d_u[slots], d_v[extra], self.delta[slots], *self._parameters(group, slots)
            )

    def _parameters(self, group: IntArray, slots: IntArray) -> tuple[FloatArray, FloatArray | None]:
        per_link = self.bucket.factors.link_parameter
        return self.bucket.factors.parameters[group], per_link[slots] if per_link.size else None

    def _groups(self, rows: IntArray) -> list[tuple[IntArray, IntArray, IntArray]]:
        """Split rows by arity: (factors, their (F, K) slots, their (F, A) additionals)."""
        groups = []
        keys = np.stack([self._arity[rows], self._n_additionals[rows]])
        for key in np.unique(keys, axis=1).T:
            group = rows[(keys == key[:, None]).all(axis=0)]
            slots = ranges(self.bucket.offsets, group).reshape(len(group), key[0])
            extra = ranges(self.bucket.additional_offsets, group).reshape(len(group), key[1])
            groups.append((group, slots, extra))
        return groups


def _check_shapes(
    bucket: Bucket, solution: Any, of_slots: tuple[int, ...], of_additionals: tuple[int, ...]
) -> None:
    """Raise unless array code returned a solution whose arrays have the shapes of what it solves.

    Others would be broadcast.
    """
    name = f"{bucket.type.__name__}.solve_sparsemap"
    if not isinstance(solution, LocalSolution):
        raise TypeError(
            f"{name} returned an object of type {type(solution).__name__}; expected a "
            "LocalSolution of z, v, face and branch."
        )
    shapes = of_slots, of_additionals, of_slots, of_slots[:1]
    for field, shape in zip(LocalSolution._fields, shapes, strict=True):
        array = getattr(solution, field)
        if np.shape(array) != shape:
            raise ValueError(
                f"{name} returned {field} of shape {np.shape(array)}; expected {shape}: a row for "
                "each factor."
            )


# -------------------------------------------------------------------- for compiled loops


@leaf
def _solve_closed_form(
    record: IntArray,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    factors = factors_at(record, _FACTORS)
    if record[FORBIDS] != 0:
        decide_rows(rows, factors, a, eta_v, bytes_at(record, _BARRED))
    scores = LocalScores(a, floats_at(record, _DELTA), eta_v)
    solution = LocalSolution(z, v, bytes_at(record, _FACE), bytes_at(record, _BRANCH))
    invoke(record[_PROJECT], (rows, factors, scores, solution))


@leaf
def _multiply_closed_form(
    record: IntArray,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    delta, face = floats_at(record, _DELTA), bytes_at(record, _FACE)
    direction = Direction(delta, face, bytes_at(record, _BRANCH), d_u, d_v)
    product = Product(out_u, out_v)
    address = kernel_at(record[_DIFFERENTIATE])
    if address != 0:
        invoke(address, (rows, factors_at(record, _FACTORS), direction, product))


@kernel
def _ask_python(
    record: IntArray,
    what: int,
    rows: IntArray,
    first: FloatArray,
    second: FloatArray,
    third: FloatArray,
    fourth: FloatArray,
) -> None:
    given = np.ascontiguousarray(rows), first, second, third, fourth
    record[FAILED] = ask_python(record[CALL], what, given)
    if record[FAILED]:
        halt()


@leaf
def _solve_in_python(
    record: IntArray,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    _ask_python(record, _SOLVE, rows, a, eta_v, z, v)


@leaf
def _multiply_in_python(
    record: IntArray,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    _ask_python(record, _MULTIPLY, rows, d_u, d_v, out_u, out_v)
