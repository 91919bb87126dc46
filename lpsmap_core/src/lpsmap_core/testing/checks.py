"""All checks, and the selection of those that apply to a factor type."""

from __future__ import annotations

from typing import Protocol

from lpsmap_core.local.solvers import has_array_code, override_level, own_solver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.testing import (
    best,
    compiled_oracle,
    declarations,
    devices,
    gibbs,
    graphs,
    indices,
    local_jacobians,
    polytope,
    purity,
    rows,
    solutions,
    structures,
    tensor_oracles,
)
from lpsmap_core.testing.draws import DRAWS


class Check(Protocol):
    """A function that raises `ConformanceError` if a factor breaks its rule."""

    __name__: str
    __doc__: str | None

    def __call__(self, factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
        """Check a declaration on problems drawn from a seed."""


FIRST: tuple[Check, ...] = (
    structures.check_parameters,
    indices.check_indices,
    structures.check_shapes,
    compiled_oracle.check_vertex_sizes,
    compiled_oracle.check_map_kernel,
)
"""Checks that must pass before the others can run: kernels write within their room."""

ORACLE: tuple[Check, ...] = (
    structures.check_zero_one,
    structures.check_labels,
    structures.check_decode,
    structures.check_unused,
    best.check_map_is_best,
    best.check_linear,
    polytope.check_linear_constraints,
    polytope.check_necessary_constraints,
    tensor_oracles.check_tensor_oracle,
    best.check_ties,
    best.check_forbidden,
    purity.check_determinism,
    purity.check_hidden_state,
    purity.check_inputs_unchanged,
    purity.check_immutable,
    purity.check_threads,
    purity.check_pickling,
    rows.check_row_alone,
    rows.check_integers,
    declarations.check_lengths,
    declarations.check_lists,
    declarations.check_larger,
)

SOLUTION: tuple[Check, ...] = (
    solutions.check_certificate,
    solutions.check_rows,
    solutions.check_batching,
    solutions.check_warm_start,
    local_jacobians.check_jvp,
    local_jacobians.check_jvp_is_symmetric,
    local_jacobians.check_jvp_is_projection,
    graphs.check_negation,
    graphs.check_forbidden_scores,
    graphs.check_contradictory_scores,
    graphs.check_sharp_scores,
    graphs.check_distribution,
)

SUMS: tuple[Check, ...] = (gibbs.check_log_partition, gibbs.check_hessian)

LISTS: tuple[Check, ...] = (
    gibbs.check_structures_once,
    gibbs.check_best_derivation,
    gibbs.check_sums,
    gibbs.check_samples,
)

CLOSED_FORM: tuple[Check, ...] = (
    solutions.check_override_is_complete,
    solutions.check_override_is_generic,
    solutions.check_faces,
)


def checks_of(factor: Factor) -> list[Check]:
    """Return the checks that a factor's type must pass, the simplest first.

    Raises
    ------
    TypeError
        If `factor` is not a Factor.
    ValueError
        If the declaration has no factors.
    """
    if not isinstance(factor, Factor):
        raise TypeError(
            f"factor: got {kind_of(factor)}; expected a declaration over variables, such as Xor(u)."
        )
    if factor.n_factors == 0:
        raise ValueError(f"factor: {factor!r} has no factors; expected at least one to check.")
    cls = type(factor)
    checks = [*FIRST, *ORACLE, *SOLUTION]
    if gibbs.has_log_partition(cls):
        checks = [*checks, *SUMS]
    if gibbs.has_sums(cls):
        checks = [*checks, *LISTS]
    if has_array_code(cls):
        checks = [*checks, devices.check_devices]
    if cls.map_kernel is None:
        checks = [check for check in checks if check.__module__ != compiled_oracle.__name__]
    if override_level(cls) == 3:
        return [*checks, *CLOSED_FORM]
    return checks if own_solver(cls) is None else [*checks, solutions.check_override_is_generic]
