"""Closed forms of a bucket's local problems: compiled kernels and array-API code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import Entry
from lpsmap_core.kernels.records import (
    UNSOLVED,
    Direction,
    Factors,
    LocalScores,
    LocalSolution,
    Product,
)
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.local.finite_scores import make_rows_finite
from lpsmap_core.local.local_solver import LocalSolver, SolverDescription
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_value, record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.native import invoke

_NOTHING = np.empty(0)


class _FormRecord(NamedTuple):
    """The record of a closed form for kernels."""

    project: IntArray
    """Address of the projection kernel; 0 until it is compiled."""
    multiply: IntArray
    """Address of the kernel of its Jacobian; 0 until it is compiled."""
    factors: Factors
    delta: FloatArray
    face: ByteArray
    branch: ByteArray
    forbids: int
    forbidden: ByteArray


_form_at = record_at(_FormRecord)


class _ClosedForm(LocalSolver):
    """Base of the two kinds of closed form, which holds their faces."""

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        self.face = np.zeros(bucket.n_links, dtype=np.int8)
        self.branch = np.zeros(bucket.n_factors, dtype=np.int8)
        super().__init__(bucket, delta, forbidden)

    def unsolved(self) -> IntArray:
        """Return the factors whose kernel ended without the solution."""
        return np.flatnonzero(self.branch == UNSOLVED)


class CompiledForm(_ClosedForm):
    """A closed form as kernels on flat arrays."""

    function = "projection_kernel"

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        assert bucket.type.projection_kernel is not None
        assert bucket.type.jvp_kernel is not None
        self._project: Callable[..., None] = bucket.type.projection_kernel
        self._multiply: Callable[..., None] = bucket.type.jvp_kernel
        self._projector = Entry(self._project, "projection_kernel")
        self._multiplier = Entry(self._multiply, "jvp_kernel")
        self.vectorised = not all(hasattr(x, "overloads") for x in (self._project, self._multiply))
        super().__init__(bucket, delta, forbidden)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description in `FactorGraph.plan`."""
        project = factor_type.projection_kernel
        assert project is not None
        name = "closed form, compiled" if hasattr(project, "overloads") else "closed form, Python"
        return SolverDescription(name, project, "kernels for whole buckets")

    def own_record(self) -> _FormRecord:
        """Return the record for kernels."""
        return _FormRecord(
            self._projector.place,
            self._multiplier.place,
            self.bucket.factors,
            *(self.delta, self.face, self.branch),
            int(self.forbids),
            self.forbidden,
        )

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; see `LocalSolver`."""
        if self._projector.ready():
            _solve_closed_form(self.handle, np.ascontiguousarray(rows), a, eta_v, z, v)
            return
        self.make_finite(rows, a, eta_v)
        scores = LocalScores(a, self.delta, eta_v)
        solution = LocalSolution(z, v, self.face, self.branch)
        self._project(rows, self.bucket.factors, scores, solution)

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        if self._multiplier.ready():
            rows = np.ascontiguousarray(rows)
            _multiply_closed_form(self.handle, rows, d_u, d_v, out_u, out_v)
            return
        direction = Direction(self.delta, self.face, self.branch, d_u, d_v)
        self._multiply(rows, self.bucket.factors, direction, Product(out_u, out_v))


class ArrayForm(_ClosedForm):
    """A closed form in array-API code, called once for each arity in the bucket."""

    function = "solve_sparsemap"

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        super().__init__(bucket, delta, forbidden)
        self._arity = np.diff(bucket.offsets)
        self._n_additionals = np.diff(bucket.additional_offsets)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description in `FactorGraph.plan`."""
        function = factor_type.solve_sparsemap
        return SolverDescription("closed form, array code", function, "array code, no kernels")

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; see `LocalSolver`."""
        self.make_finite(rows, a, eta_v)
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
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
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
    """Raise unless array code returned a solution whose arrays have the shapes of its inputs.

    NumPy would broadcast other shapes.
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
                f"{name} returned {field} of shape {np.shape(array)}; expected {shape}: one row "
                "for each factor."
            )


# -------------------------------------------------------------------- kernels


@leaf
def _solve_closed_form(
    solver: IntArray,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
) -> None:
    form = _form_at(solver)
    factors = by_value(form.factors)
    if form.forbids != 0:
        make_rows_finite(rows, factors, a, eta_v, form.forbidden)
    scores = LocalScores(a, form.delta, eta_v)
    solution = LocalSolution(z, v, form.face, form.branch)
    invoke(form.project[0], (rows, factors, scores, solution))


@leaf
def _multiply_closed_form(
    solver: IntArray,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    form, product = _form_at(solver), Product(out_u, out_v)
    direction = Direction(form.delta, form.face, form.branch, d_u, d_v)
    invoke(form.multiply[0], (rows, by_value(form.factors), direction, product))
