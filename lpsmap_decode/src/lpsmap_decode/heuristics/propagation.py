"""Propagation: what fixed columns imply for the others, row by row.

A row whose largest sum barely reaches its lower side, or whose smallest sum its upper side, fixes
the columns that could not change otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_decode.heuristics.rows import Rows

__all__ = [
    "OPEN",
    "Domain",
    "enqueue",
    "fix",
    "fix_all",
    "new_domain",
    "probe",
    "propagate",
    "try_value",
    "undo",
]

OPEN = -1
"""The value of a column that is not fixed."""

FREE = -1
"""No row is violated."""

POLL_PERIOD = 64
"""Columns that are probed between two checks for interrupts."""


class Domain(NamedTuple):
    """Columns that are fixed, and the sums of rows that remain possible."""

    value: ByteArray
    """For each column 0, 1 or `OPEN`."""
    least: FloatArray
    """For each row, its smallest possible sum; `most` is the largest."""
    most: FloatArray
    n_open: IntArray
    """For each row, its number of open columns."""
    trail: IntArray
    """The fixed columns, in order."""
    queue: IntArray
    """Rows to propagate, a ring."""
    queued: BoolArray
    counters: IntArray
    """Length of the trail, first place of the queue, and its length."""


def new_domain(rows: Rows) -> Domain:
    """Return a domain without fixed columns, all of whose rows are to be propagated."""
    n_rows, n_columns = len(rows.low), len(rows.first_of_column) - 1
    row = np.repeat(np.arange(n_rows), np.diff(rows.first))
    a = rows.coefficient
    return Domain(
        value=np.full(n_columns, OPEN, dtype=np.int8),
        least=np.bincount(row, np.minimum(a, 0.0), minlength=n_rows).astype(np.float64),
        most=np.bincount(row, np.maximum(a, 0.0), minlength=n_rows).astype(np.float64),
        n_open=np.diff(rows.first).astype(np.int64),
        trail=np.zeros(n_columns, dtype=np.int64),
        queue=np.arange(n_rows),
        queued=np.ones(n_rows, dtype=bool),
        counters=np.array([0, 0, n_rows]),
    )


@leaf
def enqueue(rows: Rows, domain: Domain, r: int) -> None:
    """Queue a row for propagation."""
    count = domain.counters
    if not domain.queued[r]:
        domain.queued[r] = True
        domain.queue[(count[1] + count[2]) % len(rows.low)] = r
        count[2] += 1


@leaf
def fix(rows: Rows, domain: Domain, column: int, value: int) -> None:
    """Fix an open column, and queue the rows that may imply something."""
    count = domain.counters
    domain.value[column] = value
    domain.trail[count[0]] = column
    count[0] += 1
    for e in range(rows.first_of_column[column], rows.first_of_column[column + 1]):
        r, a = rows.row[e], rows.coefficient_of_column[e]
        domain.n_open[r] -= 1
        if (a > 0.0) == (value == 1):
            domain.least[r] += abs(a)
        else:
            domain.most[r] -= abs(a)
        largest = abs(rows.coefficient[rows.first[r]]) + rows.slack[r]
        spare = min(rows.high[r] - domain.least[r], domain.most[r] - rows.low[r])
        if spare < largest:
            enqueue(rows, domain, r)


@kernel
def fix_all(rows: Rows, domain: Domain, values: ByteArray) -> None:
    """Fix open columns to values other than `OPEN`."""
    for column in range(len(values)):
        if values[column] != OPEN and domain.value[column] == OPEN:
            fix(rows, domain, column, values[column])


@leaf
def undo(rows: Rows, domain: Domain, length: int) -> None:
    """Open columns again until the trail has a length; nothing must be queued."""
    count = domain.counters
    while count[0] > length:
        count[0] -= 1
        column = domain.trail[count[0]]
        value = domain.value[column]
        domain.value[column] = OPEN
        for e in range(rows.first_of_column[column], rows.first_of_column[column + 1]):
            r, a = rows.row[e], rows.coefficient_of_column[e]
            domain.n_open[r] += 1
            if (a > 0.0) == (value == 1):
                domain.least[r] -= abs(a)
            else:
                domain.most[r] += abs(a)


@leaf
def propagate(rows: Rows, domain: Domain) -> int:
    """Fix what queued rows imply; return a row that cannot be met any more, or -1."""
    count, n_rows = domain.counters, len(rows.low)
    while count[2] > 0:
        r = domain.queue[count[1]]
        count[1] = (count[1] + 1) % n_rows
        count[2] -= 1
        domain.queued[r] = False
        slack = rows.slack[r]
        if domain.least[r] > rows.high[r] + slack or domain.most[r] < rows.low[r] - slack:
            while count[2] > 0:
                domain.queued[domain.queue[count[1]]] = False
                count[1] = (count[1] + 1) % n_rows
                count[2] -= 1
            violated: int = r
            return violated
        if domain.n_open[r] == 0:
            continue
        for e in range(rows.first[r], rows.first[r + 1]):
            column, a = rows.column[e], rows.coefficient[e]
            above = rows.high[r] - domain.least[r] + slack
            below = domain.most[r] - rows.low[r] + slack
            if abs(a) <= min(above, below):
                break  # the other entries are smaller
            if domain.value[column] != OPEN:
                continue
            fix(rows, domain, column, int((a > 0.0) == (abs(a) > below)))
    return FREE


@kernel
def try_value(rows: Rows, domain: Domain, column: int, value: int) -> bool:
    """Fix a column if it is open, and propagate; return false, and undo it, at a dead end."""
    length = domain.counters[0]
    if domain.value[column] == OPEN:
        fix(rows, domain, column, value)
    if domain.value[column] == value and propagate(rows, domain) < 0:
        return True
    undo(rows, domain, length)
    return False


@kernel
def probe(rows: Rows, domain: Domain) -> bool:
    """Fix the open columns of which one value leads to a dead end; return false if both do.

    These are the failed literals of satisfiability solvers (Freeman 1995).
    """
    if propagate(rows, domain) >= 0:
        return False
    for column in range(len(domain.value)):
        if column % POLL_PERIOD == 0 and interrupted():
            break
        for value in range(2):
            length = domain.counters[0]
            if domain.value[column] != OPEN:
                break
            fix(rows, domain, column, 1 - value)
            dead = propagate(rows, domain)
            undo(rows, domain, length)
            if dead < 0:
                continue
            fix(rows, domain, column, value)
            if propagate(rows, domain) >= 0:
                return False
    return True
