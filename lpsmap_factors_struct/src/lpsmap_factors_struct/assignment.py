"""Linear assignment: the rows of a matrix to distinct columns, at minimum cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy

MIN_CHECKED_COLUMNS = 100
"""Number of columns above which interrupts are checked after every path."""


class AssignmentWorkspace(NamedTuple):
    """Workspace for a matrix of costs."""

    cost: FloatArray
    """The costs, row by row."""
    partner: IntArray
    """For each row, its column, or -1."""
    owner: IntArray
    """For each column, its row, or -1."""
    price: FloatArray
    """For each column, its price: the negative of its dual variable."""
    toll: FloatArray
    """For each column, its price before a path enters it, then infinity."""
    tentative: FloatArray
    """For each column that no path has entered, the length of the shortest path found so far."""
    distance: FloatArray
    """For each column that a path has entered, the length of the shortest path to it."""
    before: IntArray
    """For each column, the row from which that path enters it."""
    entered: IntArray
    """The columns that paths have entered, in order."""


@kernel
def assignment_workspace(rows: int, columns: int, entries: int) -> AssignmentWorkspace:
    """Return a workspace for up to `rows` rows, `columns` columns and `entries` entries."""
    return AssignmentWorkspace(
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
def assign(m: int, n: int, workspace: AssignmentWorkspace) -> None:
    """Find the cheapest assignment of `m` rows to different ones of `n` columns, in O(m^2 n).

    Minimises the sum of ``workspace.cost[i * n + partner[i]]``. A row takes a free column of cost 0
    if there is one. All other rows are assigned along shortest augmenting paths with respect to
    costs reduced by prices (Jonker & Volgenant 1987; rectangular matrices: Crouse 2016).

    Huge costs are avoided where possible, and cost the others no precision, since prices are sums
    of costs along shortest paths.

    Parameters
    ----------
    m, n
        Numbers of rows and columns; ``m <= n``.
    workspace
        Its costs are finite and at least 0, with at least one 0 in every row. On return,
        ``workspace.partner[:m]`` are the rows' columns. Ties are always broken in the same way.
    """
    # Each field is read once: passing the tuple to a kernel costs a reference count per array.
    cost, partner, owner, price, toll, tentative, distance, before, entered = workspace
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
            if n > MIN_CHECKED_COLUMNS and interrupted():
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
    negative, and are zero between a row and its column. Afterwards the prices of the columns that
    were entered are raised, so that this also holds along the path.
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
