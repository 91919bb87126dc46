"""The choice of a bucket's local solver, from what its factor type overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from lpsmap_core.face_codes import face_jvp_kernel
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.local_solver import UNTIL_SOLVED, LocalSolver
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray


class SolverChoice(NamedTuple):
    """The solver of a bucket's local problems, and the reason for the choice."""

    solver: type[LocalSolver]
    name: str
    function: Callable[..., Any]
    """The function of the factor type that it calls."""
    reason: str

    @property
    def vectorised(self) -> bool:
        """Whether it is much faster on many factors at once."""
        return self.solver.vectorised and not hasattr(self.function, "overloads")


def choose_solver(factor_type: type[Factor], limited: bool = False) -> SolverChoice:
    """Return the best solver for a factor type.

    If iterations are `limited`, that is the active set among the solvers that iterate.
    """
    own, reason = own_solver(factor_type), "no closed form"
    if own is not None and not (limited and own.iterates):
        return SolverChoice(own, *own.describe(factor_type))
    if limited and factor_type.projection_iterates:
        reason = "iterations are limited"
    elif has_kernels(factor_type):
        return SolverChoice(CompiledForm, *CompiledForm.describe(factor_type))
    elif has_array_code(factor_type):
        return SolverChoice(ArrayForm, *ArrayForm.describe(factor_type))
    return SolverChoice(ActiveSets, *ActiveSets.describe(factor_type))._replace(reason=reason)


def solver_of(bucket: Bucket, limited: bool = False) -> SolverChoice:
    """Return the best solver for a bucket; `limited` as in `choose_solver`."""
    if not bucket.generic:
        return choose_solver(bucket.type, limited)
    described = SolverChoice(ActiveSets, *ActiveSets.describe(bucket.type))
    return described._replace(reason="no closed form")


def own_solver(factor_type: type[Factor]) -> type[LocalSolver] | None:
    """Return a factor type's own local solver, or None."""
    own = factor_type.local_solver()
    if own is not None and not (isinstance(own, type) and issubclass(own, LocalSolver)):
        raise TypeError(
            f"{factor_type.__name__}.local_solver returned {own!r:.60}; expected a subclass of "
            "lpsmap_core.LocalSolver, or None."
        )
    return own


def local_solver(
    bucket: Bucket, delta: FloatArray, limited: bool = False, forbidden: ByteArray | None = None
) -> LocalSolver:
    """Make the best solver for a bucket; see `choose_solver`.

    `delta` has the square root of the degree of each slot, and `forbidden` says for each additional
    whether it is forbidden. If that is None, no slot is forced either.
    """
    return solver_of(bucket, limited).solver(bucket, delta, forbidden)


def solve_apart(
    bucket: Bucket,
    delta: FloatArray,
    a: FloatArray,
    eta_v: FloatArray,
    forbidden: ByteArray | None,
) -> tuple[LocalSolver, FloatArray, FloatArray]:
    """Solve the local problems of a bucket by a solver of their own; see `local_solver`.

    That keeps the faces of other solvers unchanged. Returns the solver, the scaled marginals of the
    slots, and the marginals of the additionals. May overwrite `a`.
    """
    solver = local_solver(bucket, delta, forbidden=forbidden)
    z, v = np.empty(bucket.n_links), np.empty(bucket.n_additionals)
    solver.solve(np.arange(bucket.n_factors), a, eta_v, z, v, UNTIL_SOLVED)
    return solver, z, v


def takes_one_pass(solver: type[LocalSolver], factor_type: type[Factor]) -> bool:
    """Return whether a solver of a factor type is a compiled closed form that does not iterate."""
    return solver is CompiledForm and not factor_type.projection_iterates


# -------------------------------------------------------------------- overrides of a type


def override_level(factor_type: type[Factor]) -> Literal[1, 2, 3]:
    """Return a factor type's level of override: 1 oracle, 2 compiled oracle, 3 closed form."""
    if factor_type.projection_kernel is not None or overrides(factor_type, "solve_sparsemap"):
        return 3
    return 1 if factor_type.map_kernel is None else 2


def has_kernels(factor_type: type[Factor]) -> bool:
    """Whether a factor type has a closed form as kernels.

    The derivative by face codes is not used for a type whose array code overrides it.
    """
    in_kernels, in_arrays = derivatives_of(factor_type)
    derived = factor_type.jvp_kernel is not None and (in_kernels or not in_arrays)
    return factor_type.projection_kernel is not None and derived


def has_array_code(factor_type: type[Factor]) -> bool:
    """Whether a factor type has a closed form in array-API code; see `has_kernels`."""
    in_kernels, in_arrays = derivatives_of(factor_type)
    return overrides(factor_type, "solve_sparsemap") and (in_arrays or not in_kernels)


def derivatives_of(factor_type: type[Factor]) -> tuple[bool, bool]:
    """Return whether a type overrides the derivative, as a kernel and in array code."""
    kernel = factor_type.jvp_kernel
    return kernel not in (None, face_jvp_kernel), overrides(factor_type, "jvp")


def overrides(factor_type: type[Factor], name: str) -> bool:
    """Whether a factor type overrides a class method of `Factor`."""
    method, inherited = getattr(factor_type, name), getattr(Factor, name)
    return getattr(method, "__func__", method) is not inherited.__func__
