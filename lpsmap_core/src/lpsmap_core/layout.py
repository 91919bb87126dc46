"""From declarations to flat arrays: links, buckets by factor type, components.

A *link* is a (factor slot, variable) pair. The links of all factors of a type are contiguous, which
makes a *bucket*; buckets lie one after the other. A *part* is a union of connected components that
one thread solves with arrays of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel, leaf
from lpsmap_core.factor import Factor

__all__ = ["Blocks", "Bucket", "Layout", "Links", "Part", "build_layout"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bucket:
    """All factors of one type, as flat arrays.

    Factor ``f`` has the slots ``offsets[f]:offsets[f + 1]`` and the additionals
    ``additional_offsets[f]:additional_offsets[f + 1]`` of the bucket's arrays.
    """

    type: type[Factor]
    declarations: Sequence[Factor]
    declaration: IntArray
    """For each factor, the position of its declaration in `declarations`."""
    row: IntArray
    """For each factor, its number within that declaration."""
    offsets: IntArray
    additional_offsets: IntArray
    parameters: FloatArray
    link_parameter: FloatArray
    variable: IntArray
    """For each slot, its variable: an id of the graph in a `Layout`, else of the `Part`."""
    negated: BoolArray
    component: IntArray
    """For each factor, its component, numbered likewise; -1 for a factor of no variables."""

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.row)

    @property
    def n_links(self) -> int:
        """Number of slots of all factors."""
        return len(self.variable)

    @property
    def n_additionals(self) -> int:
        """Number of additionals of all factors."""
        return int(self.additional_offsets[-1])

    def select(self, rows: IntArray) -> Bucket:
        """Return the bucket of some of the factors."""
        slots = ranges(self.offsets, rows)
        return Bucket(
            type=self.type,
            declarations=self.declarations,
            declaration=self.declaration[rows],
            row=self.row[rows],
            offsets=_offsets(np.diff(self.offsets)[rows]),
            additional_offsets=_offsets(np.diff(self.additional_offsets)[rows]),
            parameters=self.parameters[rows],
            link_parameter=self.link_parameter[slots] if self.link_parameter.size else _NO_FLOATS,
            variable=self.variable[slots],
            negated=self.negated[slots],
            component=self.component[rows],
        )

    @functools.cached_property
    def _is_declaration(self) -> bool:
        """Whether the bucket is one declaration, its factors in their order."""
        return (
            len(self.declarations) == 1
            and self.n_factors == self.declarations[0].n_factors
            and bool((self.row[1:] > self.row[:-1]).all())
        )

    def scores(self, additionals: Sequence[FloatArray]) -> FloatArray:
        """Return the scores of the bucket's additionals, flat; always a copy.

        Parameters
        ----------
        additionals
            For each of `declarations`, its scores as an (n_factors, n_additionals) array.
        """
        if not self.n_additionals:
            return _NO_FLOATS
        if self._is_declaration:
            return np.array(additionals[0], dtype=np.float64, order="C").reshape(-1)
        scores = np.empty(self.n_additionals)
        for d in range(len(self.declarations)):
            rows = np.flatnonzero(self.declaration == d)
            entries = ranges(self.additional_offsets, rows)
            scores[entries] = additionals[d][self.row[rows]].reshape(-1)
        return scores

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Return flat numbers of the bucket's additionals as arrays of its declarations.

        Each is (n_factors, n_additionals), zero for factors that are not in the bucket; it can be a
        view of `values`.
        """
        if self.n_additionals and self._is_declaration:
            return [values.reshape(self.n_factors, self.declarations[0].n_additionals)]
        found = [np.zeros((d.n_factors, d.n_additionals)) for d in self.declarations]
        for d, target in enumerate(found):
            if target.size:
                rows = np.flatnonzero(self.declaration == d)
                entries = ranges(self.additional_offsets, rows)
                target[self.row[rows]] = values[entries].reshape(len(rows), target.shape[1])
        return found


class Links(NamedTuple):
    """A part's structure as the kernels read it.

    Links have two orders: that of the factors' slots, bucket by bucket, and that of the variables.
    """

    offsets: npt.NDArray[np.uint64]
    """The links of variable v are ``offsets[v]:offsets[v + 1]`` in the order of the variables."""
    links: npt.NDArray[np.uint32]
    """For each link in the order of the variables, its place in the other order."""
    component: IntArray
    delta: FloatArray
    """For each variable, the square root of its degree."""
    negated: BoolArray
    """In the order of the variables."""


class Blocks(NamedTuple):
    """Where buckets and components lie in the flat arrays."""

    links: IntArray
    """For each bucket, its first link; then the number of links. Likewise for its additionals and
    its factors."""
    additionals: IntArray
    factors: IntArray
    component: IntArray
    """For each factor of all buckets, its component."""
    additional_offsets: IntArray
    """For each factor of all buckets, its first additional; then their number."""
    of_component: IntArray
    """(components + 1, buckets) first factor, counted in the bucket, of every component."""
    variables: IntArray
    """For each component, its first variable; then the number of variables."""
    counting: IntArray
    """The numbers 0, 1, 2, ...: consecutive components or factors are slices of it."""
    variable_counting: npt.NDArray[np.uint64]
    """The same numbers, unsigned: numba then leaves out its tests for negative indices, which
    weigh in the loops over variables and links."""


@dataclass(frozen=True)
class Part:
    """All that factors cover, self-contained, with ids of its own for the variables.

    Its variables, and the factors of each of its buckets, are in the order of their components.

    ``negated`` is the one place where negation happens: a slot's local score is ``sign * a +
    shift`` and its local solution maps back in the same way (Niculae & Martins 2020, Proposition 7:
    ``flip(x) = 1 / delta - x``).
    """

    buckets: list[Bucket]
    blocks: Blocks
    links: Links
    variables: IntArray
    """For each variable of the part, its id in the graph."""
    link_variable: IntArray
    """For each link, its variable; in the order of the factors' slots, as are the next two."""
    delta: FloatArray
    """For each link, the square root of its variable's degree."""
    negated: BoolArray
    sizes: IntArray
    """For each component, its number of links."""
    direct: BoolArray
    """For each component, whether it is one factor of distinct variables: solved without ADMM."""

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def n_links(self) -> int:
        """Number of links."""
        return len(self.link_variable)

    @property
    def n_components(self) -> int:
        """Number of connected components."""
        return len(self.direct)

    @property
    def starts(self) -> IntArray:
        """For each bucket, its first link; then the number of links."""
        return self.blocks.links

    @property
    def first_variable(self) -> IntArray:
        """For each component, its first variable; then their number."""
        return self.blocks.variables

    @property
    def component(self) -> IntArray:
        """For each variable, its component."""
        return self.links.component

    @property
    def root_degree(self) -> FloatArray:
        """For each variable, the square root of its degree."""
        return self.links.delta

    @property
    def variable_offsets(self) -> IntArray:
        """For each variable, where its links begin in `variable_links`; then their number."""
        return self.links.offsets.view(np.int64)

    @property
    def variable_links(self) -> npt.NDArray[np.uint32]:
        """The links in the order of the variables."""
        return self.links.links

    @property
    def sign(self) -> FloatArray:
        """For each link, -1 where its slot is negated, else 1."""
        return np.where(self.negated, -1.0, 1.0)

    @property
    def shift(self) -> FloatArray:
        """For each link, 1 / delta where its slot is negated, else 0."""
        return np.where(self.negated, 1.0 / self.delta, 0.0)


@dataclass(frozen=True)
class Layout:
    """A whole graph: its buckets, its components, and the part of it that is to be solved."""

    n_variables: int
    n_components: int
    component: IntArray
    """For each variable of the graph, its component; -1 for a variable in no factor."""
    buckets: list[Bucket]
    part: Part

    def like(self, other: Layout) -> bool:
        """Whether the graphs differ in nothing but scores and parameters."""
        if self is other:
            return True
        if self.n_variables != other.n_variables or len(self.buckets) != len(other.buckets):
            return False
        return all(
            a.type is b.type
            and np.array_equal(a.offsets, b.offsets)
            and np.array_equal(a.variable, b.variable)
            and np.array_equal(a.negated, b.negated)
            for a, b in zip(self.buckets, other.buckets, strict=True)
        )


def build_layout(n_variables: int, factors: Sequence[Factor]) -> Layout:
    """Lay out a graph's factors.

    Parameters
    ----------
    n_variables
        Number of variables of the graph.
    factors
        Its declarations.
    """
    by_type: dict[type[Factor], list[Factor]] = {}
    for factor in factors:
        by_type.setdefault(type(factor), []).append(factor)
    declarations = [d for some in by_type.values() for d in some]
    numbers = [
        (i, d.n_factors, d.n_additionals) for some in by_type.values() for i, d in enumerate(some)
    ]
    variable = _concatenate([d.links(d.variables.index) for d in declarations], np.int64)
    negated = _concatenate([d.links(d.variables.negated) for d in declarations], np.bool_)
    table = _tabulate(
        n_variables,
        np.array(numbers, dtype=np.int64).reshape(-1, 3),
        _concatenate([d.offsets for d in declarations], np.int64),
        variable,
    )
    buckets = [
        _bucket(b, some, table, variable, negated) for b, some in enumerate(by_type.values())
    ]
    part = _part(buckets, table, variable, negated)
    return Layout(n_variables, table.n_components, table.component, buckets, part)


def ranges(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the positions of some ragged rows' entries, in the order of the rows."""
    starts, counts = offsets[rows], np.diff(offsets)[rows]
    target = _offsets(counts)
    return np.repeat(starts - target[:-1], counts) + np.arange(target[-1])


# -------------------------------------------------------------------- buckets and components


class _Table(NamedTuple):
    """What is found in one pass over all factors, in the order of the buckets."""

    starts: IntArray
    """(3, buckets + 1) every bucket's first factor, link and additional; then their numbers."""
    declaration: IntArray
    """As in `Bucket`, one bucket after the other, as are the next three."""
    row: IntArray
    offsets: IntArray
    additional_offsets: IntArray
    of_factor: IntArray
    """For each factor, its component; -1 for a factor of no variables."""
    component: IntArray
    """For each variable, its component; -1 for a variable in no factor."""
    n_components: int
    in_order: bool
    """Whether variables and factors are in the order of their components, and none is in none."""


@kernel
def _tabulate(n_variables: int, numbers: IntArray, slots: IntArray, variable: IntArray) -> _Table:
    """Tabulate the factors of some declarations.

    For each declaration, `numbers` are its position in its bucket, its factors, and the additionals
    of each; `slots` are the declarations' offsets, one after the other.
    """
    n_factors, n_buckets = 0, 0
    for position, count, _ in numbers:
        n_factors += count
        n_buckets += position == 0
    starts = np.empty((3, n_buckets + 1), dtype=np.int64)
    declaration, row = np.empty(n_factors, dtype=np.int64), np.empty(n_factors, dtype=np.int64)
    offsets = np.empty(n_factors + n_buckets, dtype=np.int64)
    additional_offsets = np.empty(n_factors + n_buckets, dtype=np.int64)
    component = np.arange(n_variables)
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
    starts[0, n_buckets], starts[1, n_buckets], starts[2, n_buckets] = f, link, additional
    n_components, in_order = _label(component, variable)
    of_factor = np.empty(n_factors, dtype=np.int64)
    in_order &= _label_factors(starts, offsets, variable, component, of_factor)
    return _Table(
        starts,
        declaration,
        row,
        offsets,
        additional_offsets,
        of_factor,
        component,
        n_components,
        in_order,
    )


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
    """Turn parents into components in the order of first variables; -1 if in no factor.

    Returns their number, and whether the variables are in their order.
    """
    covered = np.zeros(len(parent), dtype=np.bool_)
    for v in variable:
        covered[v] = True
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]  # parents are smaller, hence roots by now
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


@leaf
def _label_factors(
    starts: IntArray,
    offsets: IntArray,
    variable: IntArray,
    component: IntArray,
    of_factor: IntArray,
) -> bool:
    """Write the factors' components; return whether every bucket's factors are in their order."""
    in_order = True
    for b in range(starts.shape[1] - 1):
        begin, end, link = starts[0, b], starts[0, b + 1], starts[1, b]
        in_order &= begin < end  # a bucket of no factors is not to be solved
        last = 0
        for f in range(begin, end):
            lo, hi = offsets[f + b], offsets[f + b + 1]
            of_factor[f] = component[variable[link + lo]] if lo < hi else -1
            in_order &= of_factor[f] >= last
            last = of_factor[f]
    return in_order


def _bucket(
    b: int, declarations: list[Factor], table: _Table, variable: IntArray, negated: BoolArray
) -> Bucket:
    """Return the bucket of a type's declarations."""
    factor_type = type(declarations[0])
    begin, end = table.starts[0, b : b + 2].tolist()
    links = slice(*table.starts[1, b : b + 2].tolist())
    factors, offsets = slice(begin, end), slice(begin + b, end + b + 1)
    parameters = np.empty((end - begin, len(factor_type.row_parameters)))
    for i, parameter in enumerate(factor_type.row_parameters):
        column = parameters[:, i]
        np.concatenate([getattr(d, parameter) for d in declarations], out=column, casting="unsafe")
    name = factor_type.link_parameter
    return Bucket(
        type=factor_type,
        declarations=declarations,
        declaration=table.declaration[factors],
        row=table.row[factors],
        offsets=table.offsets[offsets],
        additional_offsets=table.additional_offsets[offsets],
        parameters=parameters,
        link_parameter=_NO_FLOATS
        if name is None
        else np.concatenate([d.links(getattr(d, name)) for d in declarations]).astype(np.float64),
        variable=variable[links],
        negated=negated[links],
        component=table.of_factor[factors],
    )


# -------------------------------------------------------------------- what is to be solved


def _part(buckets: list[Bucket], table: _Table, variable: IntArray, negated: BoolArray) -> Part:
    component, starts, of_factor = table.component, table.starts, table.of_factor
    additional_offsets = table.additional_offsets
    variables = np.arange(len(component))
    if not table.in_order:
        variables = np.flatnonzero(component >= 0)
        variables = variables[_stable_order(component[variables])]
        position = np.empty(len(component), dtype=np.int64)
        position[variables] = np.arange(len(variables))
        component = component[variables]
        buckets = [_in_order_of_components(b) for b in map(_covering, buckets) if b.n_factors]
        variable = _concatenate([position[b.variable] for b in buckets], np.int64)
        negated = _concatenate([b.negated for b in buckets], np.bool_)
        of_factor = _concatenate([b.component for b in buckets], np.int64)
        additional_offsets = _concatenate([b.additional_offsets for b in buckets], np.int64)
        counts = [[b.n_factors, b.n_links, b.n_additionals] for b in buckets]
        starts = np.array([[0, 0, 0], *counts]).cumsum(axis=0).T.copy()
        buckets = [
            replace(b, variable=variable[lo:hi])  # a view: graphs of millions of links are many
            for b, lo, hi in zip(buckets, starts[1, :-1], starts[1, 1:], strict=True)
        ]
    blocks, links, delta, sizes, direct = _arrange(
        starts, component, of_factor, additional_offsets, variable, negated, table.n_components
    )
    return Part(
        buckets=buckets,
        blocks=blocks,
        links=links,
        variables=variables,
        link_variable=variable,
        delta=delta,
        negated=negated,
        sizes=sizes,
        direct=direct,
    )


def _covering(bucket: Bucket) -> Bucket:
    """Return a bucket without the factors of no variables."""
    chosen = bucket.component >= 0
    return bucket if chosen.all() else bucket.select(np.flatnonzero(chosen))


def _in_order_of_components(bucket: Bucket) -> Bucket:
    """Return a bucket whose factors are in the order of their components."""
    order = _stable_order(bucket.component)
    return bucket if isinstance(order, slice) else bucket.select(order)


def _stable_order(numbers: IntArray) -> IntArray | slice:
    """Return what sorts some numbers; everything as it is if they are sorted."""
    if (numbers[1:] >= numbers[:-1]).all():
        return slice(None)
    return np.argsort(numbers, kind="stable")


@kernel
def _arrange(
    starts: IntArray,
    component: IntArray,
    of_factor: IntArray,
    bucket_offsets: IntArray,
    link_variable: IntArray,
    negated: BoolArray,
    n_components: int,
) -> tuple[Blocks, Links, FloatArray, IntArray, BoolArray]:
    """Return the fields of a `Part` that take a pass over its factors, links or variables.

    `starts` and `bucket_offsets`, those of the additionals, are as in `_Table`, but of the buckets
    that are to be solved.
    """
    blocks = _blocks(starts, component, of_factor, bucket_offsets, n_components)
    links = _links(link_variable, component, negated)
    delta = np.empty(len(link_variable))
    for link in range(len(link_variable)):
        delta[link] = links.delta[link_variable[link]]
    sizes, direct = np.empty(n_components, dtype=np.int64), np.empty(n_components, dtype=np.bool_)
    for c in range(n_components):
        first, last = blocks.variables[c], blocks.variables[c + 1]
        sizes[c] = links.offsets[last] - links.offsets[first]
        n_factors = 0
        for b in range(starts.shape[1] - 1):
            n_factors += blocks.of_component[c + 1, b] - blocks.of_component[c, b]
        direct[c] = n_factors == 1 and sizes[c] == last - first
    return blocks, links, delta, sizes, direct


@kernel
def _links(link_variable: IntArray, component: IntArray, negated: BoolArray) -> Links:
    """Return the links of the variables."""
    n_variables = len(component)
    offsets = np.zeros(n_variables + 1, dtype=np.int64)
    for v in link_variable:
        offsets[v + 1] += 1
    root_degree = np.sqrt(offsets[1:].astype(np.float64))
    for v in range(n_variables):
        offsets[v + 1] += offsets[v]
    links = np.empty(len(link_variable), dtype=np.uint32)
    negated_by_variable = np.empty(len(link_variable), dtype=np.bool_)
    for link in range(len(link_variable)):  # offsets[v] runs from v's first link to its last
        v = link_variable[link]
        links[offsets[v]], negated_by_variable[offsets[v]] = link, negated[link]
        offsets[v] += 1
    for v in range(n_variables, 0, -1):
        offsets[v] = offsets[v - 1]
    offsets[0] = 0
    return Links(offsets.view(np.uint64), links, component, root_degree, negated_by_variable)


@kernel
def _blocks(
    starts: IntArray,
    component: IntArray,
    of_factor: IntArray,
    bucket_offsets: IntArray,
    n_components: int,
) -> Blocks:
    """Return where buckets and components lie; the arguments are those of `_arrange`."""
    n_buckets, n_factors = starts.shape[1] - 1, len(of_factor)
    additional_offsets = np.zeros(n_factors + 1, dtype=np.int64)
    of_component = np.empty((n_components + 1, n_buckets), dtype=np.int64)
    largest = max(len(component), n_components)
    for b in range(n_buckets):
        begin, end = starts[0, b], starts[0, b + 1]
        largest = max(largest, end - begin)
        c = 0
        for f in range(begin, end):
            additional_offsets[f + 1] = starts[2, b] + bucket_offsets[f + b + 1]
            while c <= of_factor[f]:
                of_component[c, b] = f - begin
                c += 1
        of_component[c:, b] = end - begin
    variables = np.empty(n_components + 1, dtype=np.int64)
    variables[n_components] = len(component)
    for v in range(len(component) - 1, -1, -1):
        variables[component[v]] = v
    counting = np.arange(largest)
    return Blocks(
        starts[1],
        starts[2],
        starts[0],
        of_factor,
        additional_offsets,
        of_component,
        variables,
        counting,
        counting.view(np.uint64),
    )


# -------------------------------------------------------------------- small helpers

_NO_FLOATS = np.empty(0)


def _offsets(counts: IntArray) -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _concatenate(arrays: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return np.ascontiguousarray(arrays[0])
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
