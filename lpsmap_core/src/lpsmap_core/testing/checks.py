"""All checks, and the selection of those that apply to a factor type."""

from __future__ import annotations

from typing import Protocol

from lpsmap_core.local.solvers import has_array_code, override_level, own_solver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.testing.best import (
    check_forbidden,
    check_linear,
    check_map_is_best,
    check_ties,
)
from lpsmap_core.testing.compiled_oracle import check_map_kernel, check_vertex_sizes
from lpsmap_core.testing.declarations import check_larger, check_lengths, check_lists
from lpsmap_core.testing.devices import check_devices
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.gibbs import (
    check_best_derivation,
    check_hessian,
    check_samples,
    check_structures_once,
    check_sums,
    has_sums,
)
from lpsmap_core.testing.graphs import (
    check_distribution,
    check_forbidden_scores,
    check_negation,
    check_sharp_scores,
)
from lpsmap_core.testing.indices import check_indices
from lpsmap_core.testing.local_jacobians import (
    check_jvp,
    check_jvp_is_projection,
    check_jvp_is_symmetric,
)
from lpsmap_core.testing.log_partition import check_log_partition, has_log_partition
from lpsmap_core.testing.polytope import check_linear_constraints, check_necessary_constraints
from lpsmap_core.testing.purity import (
    check_determinism,
    check_hidden_state,
    check_immutable,
    check_inputs_unchanged,
    check_pickling,
    check_threads,
)
from lpsmap_core.testing.rows import check_integers, check_row_alone
from lpsmap_core.testing.solutions import (
    check_batching,
    check_certificate,
    check_faces,
    check_override_is_complete,
    check_override_is_generic,
    check_rows,
    check_warm_start,
)
from lpsmap_core.testing.structures import (
    check_decode,
    check_labels,
    check_parameters,
    check_shapes,
    check_unused,
    check_zero_one,
)
from lpsmap_core.testing.tensor_oracles import check_tensor_oracle


class Check(Protocol):
    """A function that raises `ConformanceError` if a factor breaks its rule."""

    __name__: str
    __doc__: str | None

    def __call__(self, factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
        """Check a declaration on problems drawn from a seed."""


FIRST: tuple[Check, ...] = (
    check_parameters,
    check_indices,
    check_shapes,
    check_vertex_sizes,
    check_map_kernel,
)
"""Checks that must pass before the others can run: kernels write within their room."""

ORACLE: tuple[Check, ...] = (
    check_zero_one,
    check_labels,
    check_decode,
    check_unused,
    check_map_is_best,
    check_linear,
    check_linear_constraints,
    check_necessary_constraints,
    check_tensor_oracle,
    check_ties,
    check_forbidden,
    check_determinism,
    check_hidden_state,
    check_inputs_unchanged,
    check_immutable,
    check_threads,
    check_pickling,
    check_row_alone,
    check_integers,
    check_lengths,
    check_lists,
    check_larger,
)

SOLUTION: tuple[Check, ...] = (
    check_certificate,
    check_rows,
    check_batching,
    check_warm_start,
    check_jvp,
    check_jvp_is_symmetric,
    check_jvp_is_projection,
    check_negation,
    check_forbidden_scores,
    check_sharp_scores,
    check_distribution,
)

SUMS: tuple[Check, ...] = (check_log_partition, check_hessian)

LISTS: tuple[Check, ...] = (
    check_structures_once,
    check_best_derivation,
    check_sums,
    check_samples,
)

CLOSED_FORM: tuple[Check, ...] = (
    check_override_is_complete,
    check_override_is_generic,
    check_faces,
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
    if has_log_partition(cls):
        checks = [*checks, *SUMS]
    if has_sums(cls):
        checks = [*checks, *LISTS]
    if has_array_code(cls):
        checks = [*checks, check_devices]
    if cls.map_kernel is None:
        checks = [c for c in checks if c not in (check_vertex_sizes, check_map_kernel)]
    if override_level(cls) == 3:
        return [*checks, *CLOSED_FORM]
    return checks if own_solver(cls) is None else [*checks, check_override_is_generic]
