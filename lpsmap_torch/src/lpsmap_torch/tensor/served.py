"""The components that the engine serves."""

from __future__ import annotations

import numpy as np

from lpsmap_core import installed
from lpsmap_core.api import BoolArray, Bucket, IntArray, Part
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, described_components

__all__ = ["SEQUENCE", "served_components", "single_chains", "sizes_of_chains"]

SEQUENCE, CHAINS = "Sequence", ("Sequence", "SequenceDistance")
"""The types that the engine solves as flows, without linear constraints."""

MOST_ROWS = 2**16
"""Maximum number of rows of a component."""

MOST_FLOWS_OF_SEQUENCE = 2**22
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
        _, states = sizes_of_chains(bucket)
        small = np.diff(bucket.offsets) * states <= MOST_FLOWS_OF_SEQUENCE
        single[bucket.component[~negated & small]] = True
    return single & part.direct


def sizes_of_chains(bucket: Bucket) -> tuple[IntArray, IntArray]:
    """Return the lengths and the numbers of states of all sequences of a bucket."""
    states = bucket.factors.parameters[:, 0].astype(np.int64)
    return np.diff(bucket.offsets) // np.maximum(states, 1), states
