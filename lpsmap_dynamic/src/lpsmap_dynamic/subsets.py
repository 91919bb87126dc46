"""The hypergraph of subsets of limited size."""

from __future__ import annotations

import numpy as np

from lpsmap_dynamic.builder import HypergraphBuilder
from lpsmap_dynamic.machine_memory import check_fits_memory

EDGE = 128
"""Bytes of a hyperedge while it is declared."""


def subset_hypergraph(
    build: HypergraphBuilder, n: int, least: int = 0, most: int | None = None
) -> int:
    """Add all subsets of the first `n` slots with `least` to `most` elements.

    Slots are decided in order. An item is a number of decided slots and the number of those that
    are on, counted up to `most`, or up to `least` if the size has no upper bound.

    Parameters
    ----------
    build
        The builder, without items named by integers so far.
    n
        Number of slots.
    least, most
        Bounds on the size, at most `n`; None for no upper bound.

    Returns
    -------
    int
        The item of all subsets.

    Raises
    ------
    ValueError
        If the hyperedges do not fit into memory.
    """
    bounded = most is not None and most < n
    limit = most if bounded and most is not None else least
    width = limit + 1
    check_fits_memory("sums over subsets: n", n, 2 * width * EDGE)
    decided, on = (x.reshape(-1) for x in np.indices((n, width)))
    possible = (on <= decided) & (on + n - decided >= least)
    decided, on = decided[possible], on[possible]
    more = on + 1 if bounded else np.minimum(on + 1, limit)
    stays, grows = on + n - decided - 1 >= least, more <= limit
    tail, off, other = (
        decided * width + on,
        (decided + 1) * width + on,
        (decided + 1) * width + more,
    )
    build.edge(0)
    build.edges(off[stays], tail[stays])
    build.edges(other[grows], tail[grows], decided[grows])
    last = n * width
    if not bounded or least == limit:
        return last + limit
    goal = last + width
    build.edges(np.full(width - least, goal), last + np.arange(least, width))
    return goal
