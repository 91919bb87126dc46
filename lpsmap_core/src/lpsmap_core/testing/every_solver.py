"""All solvers of a bucket, which have to agree."""

from __future__ import annotations

from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.local.solvers import has_array_code, has_kernels, own_solver
from lpsmap_jit.arrays import FloatArray


def every_solver(bucket: Bucket, delta: FloatArray) -> dict[str, LocalSolver]:
    """Return all solvers for a bucket, by their names.

    The active set comes first. All have to give the same solutions and derivatives.
    """
    solvers: dict[str, LocalSolver] = {"active set": ActiveSets(bucket, delta)}
    if bucket.generic:
        return solvers
    if has_kernels(bucket.type):
        solvers["compiled closed form"] = CompiledForm(bucket, delta)
    own = own_solver(bucket.type)
    if own is not None:
        solvers[own.describe(bucket.type).name] = own(bucket, delta)
    if has_array_code(bucket.type):
        solvers["array closed form"] = ArrayForm(bucket, delta)
    return solvers
