"""The components that the engine serves."""

from __future__ import annotations

import numpy as np

from lpsmap_core import installed
from lpsmap_core.api import BoolArray, Part
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, described_components

__all__ = ["SEQUENCE", "served_components", "single_chains"]

SEQUENCE, CHAINS = "Sequence", ("Sequence", "SequenceDistance")
"""The types that the engine solves as flows, without linear constraints."""

MOST_ROWS = 2**16
"""Maximum number of rows of a component."""

MOST_FLOWS = 2**22
"""Maximum number of flows of a sequence."""


def served_components(part: Part) -> BoolArray:
    """Return for each component whether the engine solves it."""
    described = part.derived(described_components)
    rows, _ = part.derived(constraint_rows_of)
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    served: BoolArray = (described & (n_rows <= MOST_ROWS)) | part.derived(single_chains)
    return served


def single_chains(part: Part) -> BoolArray:
    """Return for each component whether it is one sequence without negated slots."""
    single = np.zeros(part.n_components, dtype=bool)
    factors = installed().factors
    types = [factors[name].value for name in CHAINS if name in factors]
    for bucket in part.buckets:
        if bucket.type not in types:
            continue
        negated = np.zeros(bucket.n_factors, dtype=bool)
        owner = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))
        np.logical_or.at(negated, owner, bucket.negated)
        small = np.ones(bucket.n_factors, dtype=bool)
        for d, declaration in enumerate(bucket.declarations):
            states = np.broadcast_to(declaration.n_states, declaration.n_factors)
            mine = np.flatnonzero(bucket.declaration == d)
            flows = np.diff(bucket.offsets)[mine] * states[bucket.row[mine]]
            small[mine] = flows <= MOST_FLOWS
        single[bucket.component[~negated & small]] = True
    return single & part.direct
