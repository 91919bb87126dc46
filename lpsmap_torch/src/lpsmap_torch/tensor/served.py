"""The components that the engine serves."""

from __future__ import annotations

import numpy as np

from lpsmap_core import TensorOracle
from lpsmap_core.api import BoolArray, Part
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, described_components

__all__ = ["constrained_components", "oracle_components", "oracles_of", "served_components"]

MAX_ROWS = 2**16
"""Maximum number of rows of a component."""


def served_components(part: Part, with_oracles: bool) -> BoolArray:
    """Return for each component whether the engine solves it; see `TensorEngine.with_oracles`."""
    served = part.derived(constrained_components)
    return served | part.derived(oracle_components) if with_oracles else served


def constrained_components(part: Part) -> BoolArray:
    """Return for each component whether the engine solves it by its linear constraints."""
    described = part.derived(described_components)
    rows, _ = part.derived(constraint_rows_of)
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    served: BoolArray = described & (n_rows <= MAX_ROWS)
    return served


def oracles_of(part: Part) -> dict[int, TensorOracle]:
    """Return the oracles of the declarations that have one, by the id of the declaration."""
    found = {id(d): d.tensor_oracle() for bucket in part.buckets for d in bucket.declarations}
    return {key: oracle for key, oracle in found.items() if oracle is not None}


def oracle_components(part: Part) -> BoolArray:
    """Return for each component whether it is one factor with an oracle on tensors.

    Components of linear constraints are left out.
    """
    single = part.direct & ~part.derived(constrained_components)
    if not single.any():
        return single
    oracles, known = part.derived(oracles_of), np.zeros(part.n_components, dtype=bool)
    for bucket in part.buckets:
        has_oracle = np.array([id(declaration) in oracles for declaration in bucket.declarations])
        known[bucket.component[has_oracle[bucket.declaration]]] = True
    return single & known
