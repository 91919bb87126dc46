"""The hypergraph of subsets of limited size."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import IntArray
from lpsmap_dynamic.builder import HypergraphBuilder
from lpsmap_dynamic.machine_memory import check_fits_memory

EDGE = 128
"""Bytes of a hyperedge while it is declared."""


def min_subset_paths(n: IntArray, least: IntArray, most: IntArray) -> IntArray:
    """Return lower bounds of the numbers of paths between the slots of `subset_hypergraph`.

    The k-th element can be any slot but the first ``k - 1`` and the last ``least - k``. Without an
    upper bound on the size, the bound is 0.

    Parameters
    ----------
    n, least, most
        Numbers of slots, and bounds on the sizes of subsets.
    """
    first = least * (n - least + 1)
    others = (most - least) * (2 * n - most - least + 1) // 2
    bounds: IntArray = np.where(most < n, first + others, 0)
    return bounds


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
