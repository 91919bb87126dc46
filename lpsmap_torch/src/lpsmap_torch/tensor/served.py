"""The components that the engine serves: by linear constraints alone, and by oracles."""

from __future__ import annotations

import numpy as np

from lpsmap_core import TensorOracle
from lpsmap_core.api import BoolArray, Part, ranges
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, described, undescribed_factors

MAX_ROWS, MAX_ENTRIES = 2**10, 2**24
"""Maximum numbers of rows of a component, and of entries of its matrix, which is factorised."""

MAX_ROWS_BESIDE = 2**8
"""The same beside a factor with an oracle."""


def constrained_components(part: Part) -> BoolArray:
    """Return for each component whether the engine solves it by its linear constraints."""
    of_rows, of_columns = part.derived(constraint_rows_of).component, part.component_of_numbers
    n_rows, n_columns = (np.bincount(x, minlength=part.n_components) for x in (of_rows, of_columns))
    fits = (n_rows <= MAX_ROWS) & (n_rows * n_columns <= MAX_ENTRIES)
    served: BoolArray = (part.derived(undescribed_factors) == 0) & fits
    return served


def oracles_of(part: Part) -> dict[int, TensorOracle]:
    """Return the oracles of the declarations that need one, by the id of the declaration.

    Those that linear constraints describe do not.
    """
    declared = [x for bucket in part.buckets for x in bucket.declarations]
    oracles = {id(x): x.tensor_oracle() for x in declared if described(x) is None}
    return {key: oracle for key, oracle in oracles.items() if oracle is not None}


def oracle_components(part: Part) -> BoolArray:
    """Return for each component whether one factor has an oracle on tensors and all its variables.

    Linear constraints without additionals must describe all other factors. Components in which they
    describe all factors are left out.
    """
    oracles, n = part.derived(oracles_of), part.n_components
    links, additionals = np.zeros(part.n_variables), np.zeros(n)
    known = np.zeros(n, dtype=np.int64)
    for bucket in part.buckets:
        has_oracle = np.array([id(declaration) in oracles for declaration in bucket.declarations])
        factors = np.flatnonzero(has_oracle[bucket.declaration] & (bucket.component >= 0))
        of_factors = ranges(bucket.offsets, factors)
        links += np.bincount(bucket.variable[of_factors], minlength=part.n_variables)
        own = bucket.component[factors]
        known += np.bincount(own, minlength=n)
        extra = np.diff(bucket.additional_offsets)[factors]
        additionals += np.bincount(own, extra, minlength=n)
    single: BoolArray = (part.derived(undescribed_factors) == 1) & (known == 1)
    single &= np.bincount(part.component, links != 1.0, minlength=n) == 0
    n_columns = np.bincount(part.component_of_numbers, minlength=n)
    single &= n_columns == np.diff(part.first_variable) + additionals
    of_rows = part.derived(constraint_rows_of).component
    single &= np.bincount(of_rows, minlength=n) <= MAX_ROWS_BESIDE
    return single
