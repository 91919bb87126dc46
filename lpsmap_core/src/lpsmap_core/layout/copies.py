"""A part of many copies of one component, which are solved side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lpsmap_core.layout.arrangement import arrange
from lpsmap_core.layout.layout import Part, arranged_part

__all__ = ["copies_of"]


def copies_of(part: Part, component: int, n_copies: int) -> Part:
    """Return a part whose components are all copies of one component of a part.

    Its variables are those of the component, in their order, copy after copy.

    Parameters
    ----------
    part
        The part.
    component
        Number of the component in the part.
    n_copies
        Number of copies.
    """
    first, end = (int(v) for v in part.first_variable[component : component + 2])
    n_variables = end - first
    buckets, counts = [], []
    for bucket in part.buckets:
        rows = np.flatnonzero(bucket.component == component)
        if not rows.size:
            continue
        several = bucket.select(np.tile(rows, n_copies))
        copy = np.repeat(np.arange(n_copies), len(rows))
        links_of_copy = int(np.diff(bucket.offsets)[rows].sum())
        shift = np.repeat(np.arange(n_copies) * n_variables, links_of_copy)
        several = replace(several, variable=several.variable - first + shift, component=copy)
        buckets.append(several)
        counts.append([several.n_factors, several.n_links, several.n_additionals])
    starts = np.array([[0, 0, 0], *counts]).cumsum(axis=0).T.copy()
    variable = np.concatenate([b.variable for b in buckets])
    negated = np.concatenate([b.negated for b in buckets])
    arrangement = arrange(
        starts,
        np.repeat(np.arange(n_copies), n_variables),
        np.concatenate([b.component for b in buckets]),
        np.concatenate([b.additional_offsets for b in buckets]),
        variable,
        negated,
        n_copies,
    )
    variables = np.arange(n_copies * n_variables)
    return arranged_part(buckets, arrangement, variables, True, variable, negated)
