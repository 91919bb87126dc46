"""Linear assignment: every row of a matrix to a column of its own, at the least cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy

__all__ = ["Assignment", "assign", "assignment_memory"]

LOOK_PERIOD = 100
"""Columns from which on every path is followed by a look at whether to go on."""


class Assignment(NamedTuple):
    """Working memory for costs of at most so many rows, columns and entries."""

    cost: FloatArray
    """The costs, row by row."""
    partner: IntArray
    """For each row, its column; -1 for none yet."""
    owner: IntArray
    """For each column, its row; -1 for none."""
    price: FloatArray
    """For each column, its price: the negative of its dual variable."""
    toll: FloatArray
    """For each column, its price while a path may still enter it, then infinity."""
    tentative: FloatArray
    """For each column that a path may enter, the length of the shortest one so far."""
    distance: FloatArray
    """For each column that paths have entered, the length of the shortest."""
    before: IntArray
    """For each column, the row from which that path enters it."""
    entered: IntArray
    """The columns that paths have entered, in order."""


@kernel
def assignment_memory(rows: int, columns: int, entries: int) -> Assignment:
    """Return working memory for costs of at most so many rows, columns and entries."""
    return Assignment(
        cost=np.empty(entries),
        partner=np.empty(rows, dtype=np.int64),
        owner=np.empty(columns, dtype=np.int64),
        price=np.empty(columns),
        toll=np.empty(columns),
        tentative=np.empty(columns),
        distance=np.empty(columns),
        before=np.empty(columns, dtype=np.int64),
        entered=np.empty(columns, dtype=np.int64),
    )


@leaf
def assign(m: int, n: int, memory: Assignment) -> None:
    """Find the cheapest assignment of `m` rows to different ones of `n` columns, in O(m^2 n).

    Minimises the sum of ``memory.cost[i * n + partner[i]]``. Rows that find a free column at cost 0
    take it; every other one is assigned along a shortest augmenting path with respect to costs
    reduced by prices (Jonker & Volgenant 1987; rectangular: Crouse 2016).

    Huge costs are avoided wherever that is possible, and cost the others no digits: prices are sums
    of costs along shortest paths.

    Parameters
    ----------
    m, n
        Numbers of rows and columns; ``m <= n``.
    memory
        The costs, which are finite, at least 0, and 0 once or more in every row; on return
        ``memory.partner[:m]`` are the rows' columns. Among equally good assignments it is always
        the same one.
    """
    # Each field is read once: handing the tuple to a kernel costs a reference count per array.
    cost, partner, owner, price, toll, tentative, distance, before, entered = memory
    owner[:n] = -1
    price[:n] = 0.0
    for i in range(m):
        partner[i] = -1
        for j in range(n):
            if cost[i * n + j] == 0.0 and owner[j] < 0:
                partner[i], owner[j] = j, i
                break
    for i in range(m):
        if partner[i] < 0:
            j = _shortest_path(
                i, n, cost, partner, owner, price, toll, tentative, distance, before, entered
            )
            while True:
                row = before[j]
                partner[row], owner[j], j = j, row, partner[row]
                if row == i:
                    break
            if n > LOOK_PERIOD and interrupted():
                break


@leaf
def _shortest_path(
    start: int,
    n: int,
    cost: FloatArray,
    partner: IntArray,
    owner: IntArray,
    price: FloatArray,
    toll: FloatArray,
    tentative: FloatArray,
    distance: FloatArray,
    before: IntArray,
    entered: IntArray,
) -> int:
    """Find the shortest alternating path from a row to a free column; return that column.

    Dijkstra's (1959) algorithm on the reduced costs ``cost[i, j] - u_i + price[j]``, which are not
    negative, and zero between a row and its column; then raises the prices of the columns on the
    way, so that this holds along the path.
    """
    tentative[:n] = np.inf
    copy(price[:n], toll)
    row, count, length, offset = start, 0, 0.0, 0.0
    while True:
        for j in range(n):
            other = offset + (cost[row * n + j] + toll[j])
            before[j] = row if other < tentative[j] else before[j]
            tentative[j] = min(other, tentative[j])
        nearest = 0
        for j in range(1, n):
            if tentative[j] < tentative[nearest] or (
                tentative[j] == tentative[nearest] and owner[j] < owner[nearest]
            ):
                nearest = j
        length = tentative[nearest]
        row = owner[nearest]
        if row < 0:
            break
        entered[count], distance[nearest] = nearest, length
        tentative[nearest] = toll[nearest] = np.inf
        count += 1
        offset = length - (cost[row * n + nearest] + price[nearest])
    for k in range(count):
        price[entered[k]] += length - distance[entered[k]]
    return int(nearest)
