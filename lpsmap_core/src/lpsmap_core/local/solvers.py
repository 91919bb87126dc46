"""The choice of a bucket's local solver: closed form, active set or the type's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.overrides import has_array_code, has_kernels
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


def takes_one_pass(solver: type[LocalSolver], factor_type: type[Factor]) -> bool:
    """Return whether a solver of a factor type is a compiled closed form that does not iterate."""
    return solver is CompiledForm and not factor_type.projection_iterates
