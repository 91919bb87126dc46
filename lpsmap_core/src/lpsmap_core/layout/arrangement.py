"""Compiled passes that lay out a graph: components, spans of factors, links by variable."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.layout.ragged import sums
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray, IntTable
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.memory import Memory, hold


class Links(NamedTuple):
    """The links of a part, for kernels.

    Links have two orders: the order of the factors' slots, bucket by bucket, and the order of the
    variables.
    """

    offsets: npt.NDArray[np.uint64]
    """The links of variable v are ``offsets[v]:offsets[v + 1]`` in the order of the variables."""
    order: npt.NDArray[np.uint32]
    """For each link in the order of the variables, its number in the order of the factors."""
    component: IntArray
    """For each variable, its component."""
    root_degree: FloatArray
    """For each variable, the square root of its degree."""
    negated: BoolArray
    """For each link in the order of the variables, whether its slot is negated."""
    counting: IntArray
    """The numbers 0, 1, 2, ...; slices of it are consecutive components or factors."""
    variable_counting: npt.NDArray[np.uint64]
    """The same numbers as unsigned integers. For these numba omits its tests for negative indices,
    which take noticeable time in the loops over variables and links."""


class Spans(NamedTuple):
    """The spans of buckets and components in the flat arrays."""

    first_link: IntArray
    """For each bucket, its first link; then the number of links."""
    first_additional: IntArray
    """For each bucket, its first additional; then the number of additionals."""
    first_factor: IntArray
    """For each bucket, its first factor; then the number of factors."""
    component: IntArray
    """For each factor of all buckets, its component."""
    additional_offsets: IntArray
    """For each factor of all buckets, its first additional; then their number."""
    first_row: IntTable
    """(components + 1, buckets) first factor of every component, counted within the bucket."""
    first_variable: IntArray
    """For each component, its first variable; then the number of variables."""


# -------------------------------------------------------------------- components


class FactorTable(NamedTuple):
    """The results of one pass over all factors, in the order of the buckets."""

    starts: IntArray
    """(3, buckets + 1) first factor, link and additional of every bucket; then their numbers."""
    declaration: IntArray
    """As in `Bucket`, for one bucket after the other, like the next three fields."""
    row: IntArray
    offsets: IntArray
    additional_offsets: IntArray
    of_factor: IntArray
    """For each factor, its component; -1 for a factor of no variables."""
    component: IntArray
    """For each variable, its component; -1 for a variable in no factor."""
    n_components: int
    in_order: bool
    """Whether variables and factors are in the order of their components, and each has one."""

    @property
    def bucket(self) -> IntArray:
        """For each factor, its bucket: ``offsets[f + bucket[f]]`` is its first slot."""
        return np.repeat(np.arange(self.starts.shape[1] - 1), np.diff(self.starts[0]))


def tabulate(
    n_variables: int, numbers: list[tuple[int, int, int]], slots: IntArray, variable: IntArray
) -> FactorTable:
    """Tabulate the factors of some declarations.

    For each declaration, `numbers` holds its position in its bucket, its number of factors, and the
    number of additionals of each factor. `slots` holds the offsets of all declarations.

    The arrays are allocated here and filled by a kernel. To return an array from a kernel, numba
    calls Python, and it crashes if a signal handler raises there.
    """
    n_factors = sum(count for _, count, _ in numbers)
    n_buckets = sum(position == 0 for position, _, _ in numbers)
    starts, component = np.empty((3, n_buckets + 1), dtype=np.int64), np.arange(n_variables)
    declaration, row = np.empty((2, n_factors), dtype=np.int64)
    offsets, additional_offsets = np.empty((2, n_factors + n_buckets), dtype=np.int64)
    arrays = starts, declaration, row, offsets, additional_offsets
    declared = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    n_components, in_order = _tabulate(declared, slots, variable, *arrays, component)
    table = FactorTable(*arrays, np.full(n_factors, -1), component, n_components, in_order)
    b, f = table.bucket, np.arange(n_factors)
    begin, covers = starts[1, b] + offsets[f + b], offsets[f + b + 1] > offsets[f + b]
    table.of_factor[covers] = component[variable[begin[covers]]]
    ascends = (np.diff(table.of_factor) >= 0) | (np.diff(b) > 0)
    in_order = in_order and bool(ascends.all() and covers.all() and np.diff(starts[0]).all())
    return table._replace(in_order=in_order)


@kernel
def _tabulate(
    numbers: IntArray,
    slots: IntArray,
    variable: IntArray,
    starts: IntArray,
    declaration: IntArray,
    row: IntArray,
    offsets: IntArray,
    additional_offsets: IntArray,
    component: IntArray,
) -> tuple[int, bool]:
    """Fill the arrays of a `FactorTable` but `of_factor`.

    Returns the number of components, and whether the variables are in their order.
    """
    b, f, link, additional, slot = -1, 0, 0, 0, 0
    for position, count, n_additionals in numbers:
        if position == 0:
            b += 1
            starts[0, b], starts[1, b], starts[2, b] = f, link, additional
            offsets[f + b] = additional_offsets[f + b] = 0
        for i in range(count):
            arity = slots[slot + 1] - slots[slot]
            _join(component, variable[link : link + arity])
            declaration[f], row[f] = position, i
            f, slot, link, additional = f + 1, slot + 1, link + arity, additional + n_additionals
            offsets[f + b] = link - starts[1, b]
            additional_offsets[f + b] = additional - starts[2, b]
        slot += 1
    starts[0, b + 1], starts[1, b + 1], starts[2, b + 1] = f, link, additional
    return _label(component, variable)


@leaf
def _join(parent: IntArray, variables: IntArray) -> None:
    """Join the variables of a factor; the root of a set is its smallest variable."""
    if len(variables) == 0:
        return
    a = variables[0]
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    for b in variables:
        if parent[b] == a:
            continue
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a < b:
            parent[b] = a
        else:
            parent[a] = b
            a = b


@kernel
def _label(parent: IntArray, variable: IntArray) -> tuple[int, bool]:
    """Replace parents by components, numbered by first variable; -1 for a variable in no factor.

    Returns the number of components, and whether the variables are in their order.
    """
    covered = np.zeros(len(parent), dtype=np.bool_)
    for v in variable:
        covered[v] = True
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]  # parents are smaller, so they are roots already
    n, in_order, last = 0, True, 0
    for v in range(len(parent)):
        if not covered[v]:
            parent[v] = -1
        elif parent[v] == v:
            parent[v] = n
            n += 1
        else:
            parent[v] = parent[parent[v]]  # the root's number
        in_order &= parent[v] >= last
        last = parent[v]
    return n, in_order


# -------------------------------------------------------------------- the part to solve


@dataclass(frozen=True)
class LoopArrays:
    """The records of a part for the loop, made when first used.

    Calls of oracles do without them. They take 30 bytes for a variable with one link.
    """

    spans: Spans
    component: IntArray
    link_variable: IntArray
    negated: BoolArray

    @cached_property
    def links(self) -> Links:
        """The links.

        Their arrays are allocated here for the same reason as in `tabulate`.
        """
        n_variables, n_links = len(self.component), len(self.link_variable)
        n_factors, n_components = len(self.spans.component), len(self.spans.first_variable) - 1
        counting = np.arange(max(n_variables, n_components, n_factors))
        links = Links(
            np.zeros(n_variables + 1, dtype=np.uint64),
            np.empty(n_links, dtype=np.uint32),
            self.component,
            np.empty(n_variables),
            np.empty(n_links, dtype=np.bool_),
            counting,
            counting.view(np.uint64),
        )
        _fill_links(self.link_variable, self.negated, links.offsets.view(np.int64), links)
        return links

    @cached_property
    def records(self) -> tuple[Memory[Links], Memory[Spans]]:
        """The links and the spans in the form that kernels take."""
        return hold(self.links), hold(self.spans)


class Arrangement(NamedTuple):
    """The fields of a `Part` that take a pass over its factors, links or variables."""

    spans: Spans
    component: IntArray
    sizes: IntArray
    direct: BoolArray
    loop: LoopArrays


def arrange(table: FactorTable, link_variable: IntArray, negated: BoolArray) -> Arrangement:
    """Arrange the part to solve, whose factors and variables are in the order of the components."""
    starts, components = table.starts, np.arange(table.n_components + 1)
    b = table.bucket
    last = np.arange(len(b)) + b + 1
    ends = starts[2, b] + table.additional_offsets[last]
    arity = table.offsets[last] - table.offsets[last - 1]
    rows = [table.of_factor[lo:hi].searchsorted(components) for lo, hi in pairwise(starts[0])]
    spans = Spans(
        first_link=starts[1],
        first_additional=starts[2],
        first_factor=starts[0],
        component=table.of_factor,
        additional_offsets=np.append(0, ends),
        first_row=np.stack(rows, axis=1) if rows else np.empty((len(components), 0), np.int64),
        first_variable=table.component.searchsorted(components),
    )
    sizes = sums(table.of_factor, arity, table.n_components).astype(np.int64)
    n_factors = np.bincount(table.of_factor, minlength=table.n_components)
    direct = (n_factors == 1) & (sizes == np.diff(spans.first_variable))
    loop = LoopArrays(spans, table.component, link_variable, negated)
    return Arrangement(spans, table.component, sizes, direct, loop)


@leaf
def _fill_links(
    link_variable: IntArray, negated: BoolArray, offsets: IntArray, links: Links
) -> None:
    """Write the links of the variables; `offsets` is ``links.offsets`` as signed integers."""
    n_variables = len(links.component)
    for v in link_variable:
        offsets[v + 1] += 1
    for v in range(n_variables):
        links.root_degree[v] = np.sqrt(np.float64(offsets[v + 1]))
        offsets[v + 1] += offsets[v]
    for link in range(len(link_variable)):  # offsets[v] advances from v's first link to its end
        v = link_variable[link]
        links.order[offsets[v]], links.negated[offsets[v]] = link, negated[link]
        offsets[v] += 1
    for v in range(n_variables, 0, -1):
        offsets[v] = offsets[v - 1]
    offsets[0] = 0


MAX_GRAPHS = 4
"""Number of entries: for training and validation, each with a smaller last batch."""

MAX_CACHED_LINKS = 1 << 19
"""Maximum number of links of all entries, at about a hundred bytes each. Larger graphs are not
cached."""

Numbers = list[tuple[int, int, int]]


class _Entry(NamedTuple):
    """The declarations of a graph and their layout."""

    n_variables: int
    numbers: Numbers
    slots: IntArray
    variable: IntArray
    negated: BoolArray
    table: FactorTable
    arrangement: Arrangement | None


_entries: list[_Entry] = []
"""The latest entry comes first. The list is replaced as a whole, so threads need no lock."""


def cached_arrangement(
    n_variables: int, numbers: Numbers, slots: IntArray, variable: IntArray, negated: BoolArray
) -> tuple[FactorTable, Arrangement | None]:
    """Tabulate some declarations and arrange the part to solve, or return them from the cache.

    A lookup takes a tenth of the time, because it reads links in their order. Graphs may share the
    result, which must not be modified. The arrangement is None if the table is not in order; the
    links then have to be sorted first.
    """
    global _entries  # noqa: PLW0603 - a single assignment, see `_entries`
    for entry in _entries:
        if (
            (n_variables, numbers) == (entry.n_variables, entry.numbers)
            and np.array_equal(slots, entry.slots)
            and np.array_equal(variable, entry.variable)
            and np.array_equal(negated, entry.negated)
        ):
            return entry.table, entry.arrangement
    table = tabulate(n_variables, numbers, slots, variable)
    arrangement = arrange(table, variable, negated) if table.in_order else None
    if len(variable) <= MAX_CACHED_LINKS:
        entry = _Entry(n_variables, numbers, slots, variable, negated, table, arrangement)
        entries = [entry, *_entries[: MAX_GRAPHS - 1]]
        ends = np.cumsum([len(entry.variable) for entry in entries])
        _entries = entries[: np.searchsorted(ends, MAX_CACHED_LINKS, side="right")]
    return table, arrangement
