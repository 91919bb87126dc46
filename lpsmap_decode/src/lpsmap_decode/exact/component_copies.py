"""Copies of one component, which are solved side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lpsmap_core.api import Part, part_of_buckets

__all__ = ["copies_of"]


def copies_of(part: Part, component: int, n_copies: int) -> Part:
    """Return a part whose components are all copies of one component of a part.

    Its variables are those of the component, in their order, copy after copy.
    """
    first, end = (int(v) for v in part.first_variable[component : component + 2])
    n_variables = end - first
    buckets = []
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
    of_variable = np.repeat(np.arange(n_copies), n_variables)
    return part_of_buckets(buckets, of_variable, n_copies)
