"""From declarations to flat arrays: links, buckets by factor type, components.

A *link* is a (factor slot, variable) pair. The links of all factors of a type are contiguous, which
makes a *bucket*; buckets lie one after the other. A *part* is a union of connected components that
one thread solves with arrays of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel, leaf
from lpsmap_core.factor import Factor

__all__ = ["Bucket", "Layout", "Part", "build_layout"]

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

    @property
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


@dataclass(frozen=True)
class Part:
    """All that factors cover, self-contained, with ids of its own for the variables.

    Its variables, and the factors of each of its buckets, are in the order of their components.

    ``negated`` is the one place where negation happens: a slot's local score is ``sign * a +
    shift`` and its local solution maps back in the same way (Niculae & Martins 2020, Proposition 7:
    ``flip(x) = 1 / delta - x``).
    """

    buckets: list[Bucket]
    starts: IntArray
    """For each bucket, its first link; then the number of links."""
    variables: IntArray
    """For each variable of the part, its id in the graph."""
    component: IntArray
    """For each variable, its component."""
    first_variable: IntArray
    """For each component, its first variable; then their number."""
    link_variable: IntArray
    root_degree: FloatArray
    """For each variable, the square root of its degree; `delta` likewise for each link."""
    delta: FloatArray
    negated: BoolArray
    variable_offsets: IntArray
    variable_links: npt.NDArray[np.uint32]
    """Links of variable v: ``variable_links[variable_offsets[v]:variable_offsets[v + 1]]``."""
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
    buckets = _buckets_by_type(factors)
    variable = _concatenate([bucket.variable for bucket in buckets], np.int64)
    arity = _concatenate([np.diff(bucket.offsets) for bucket in buckets], np.int64)
    component, n_components = _components(n_variables, variable, _offsets(arity))
    buckets = [_with_components(bucket, component) for bucket in buckets]
    part = _part(buckets, component, n_components)
    return Layout(n_variables, n_components, component, buckets, part)


def ranges(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the positions of some ragged rows' entries, in the order of the rows."""
    starts, counts = offsets[rows], np.diff(offsets)[rows]
    target = _offsets(counts)
    return np.repeat(starts - target[:-1], counts) + np.arange(target[-1])


# -------------------------------------------------------------------- buckets


def _buckets_by_type(factors: Sequence[Factor]) -> list[Bucket]:
    by_type: dict[type[Factor], list[Factor]] = {}
    for factor in factors:
        by_type.setdefault(type(factor), []).append(factor)
    return [_bucket(declarations) for declarations in by_type.values()]


def _bucket(declarations: list[Factor]) -> Bucket:
    factor_type = type(declarations[0])
    name = factor_type.link_parameter
    arity = _concatenate([np.diff(d.offsets) for d in declarations], np.int64)
    counts = np.array([d.n_factors for d in declarations])
    additionals = np.array([d.n_additionals for d in declarations])
    parameters = np.empty((counts.sum(), len(factor_type.row_parameters)))
    for column, parameter in zip(parameters.T, factor_type.row_parameters, strict=True):
        np.concatenate([getattr(d, parameter) for d in declarations], out=column, casting="unsafe")
    return Bucket(
        type=factor_type,
        declarations=declarations,
        declaration=np.repeat(np.arange(len(declarations)), counts),
        row=_concatenate([np.arange(n) for n in counts], np.int64),
        offsets=_offsets(arity),
        additional_offsets=_offsets(np.repeat(additionals, counts)),
        parameters=parameters,
        link_parameter=_NO_FLOATS
        if name is None
        else np.concatenate([d.links(getattr(d, name)) for d in declarations]).astype(np.float64),
        variable=_concatenate([d.links(d.variables.index) for d in declarations], np.int64),
        negated=_concatenate([d.links(d.variables.negated) for d in declarations], np.bool_),
        component=np.empty(0, dtype=np.int64),
    )


def _with_components(bucket: Bucket, component: IntArray) -> Bucket:
    covers = bucket.offsets[:-1] < bucket.offsets[1:]
    if covers.all():
        of_factor = component[bucket.variable[bucket.offsets[:-1]]]
    else:
        of_factor = np.full(bucket.n_factors, -1)
        of_factor[covers] = component[bucket.variable[bucket.offsets[:-1][covers]]]
    return replace(bucket, component=of_factor)


# -------------------------------------------------------------------- components


@leaf
def _union(parent: IntArray, variable: IntArray, offsets: IntArray) -> None:
    """Join the variables of every factor; the root of a set is its smallest variable."""
    for f in range(len(offsets) - 1):
        if offsets[f] == offsets[f + 1]:
            continue
        a = variable[offsets[f]]
        for link in range(offsets[f], offsets[f + 1]):
            b = variable[link]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if a < b:
                parent[b] = a
            else:
                parent[a] = b
                a = b


@leaf
def _label(parent: IntArray, degree: IntArray) -> int:
    """Turn parents into component numbers in the order of first variables; -1 at degree 0."""
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]  # parents are smaller, hence roots by now
    n = 0
    for v in range(len(parent)):
        if degree[v] == 0:
            parent[v] = -1
        elif parent[v] == v:
            parent[v] = n
            n += 1
        else:
            parent[v] = parent[parent[v]]  # the root's number
    return n


def _components(n_variables: int, variable: IntArray, offsets: IntArray) -> tuple[IntArray, int]:
    parent = np.arange(n_variables)
    _union(parent, variable, offsets)
    n = int(_label(parent, np.bincount(variable, minlength=n_variables)))
    return parent, n


# -------------------------------------------------------------------- what is to be solved


def _part(buckets: list[Bucket], component: IntArray, n_components: int) -> Part:
    variables = np.flatnonzero(component >= 0)
    order = _stable_order(component[variables])
    variables = variables[order]
    buckets = [_in_order_of_components(b) for b in map(_covering, buckets) if b.n_factors]
    if len(variables) < len(component) or not isinstance(order, slice):
        position = np.empty(len(component), dtype=np.int64)
        position[variables] = np.arange(len(variables))
        buckets = [replace(b, variable=position[b.variable]) for b in buckets]
    link_variable = _concatenate([b.variable for b in buckets], np.int64)
    starts = _offsets(np.array([b.n_links for b in buckets], dtype=np.int64))
    buckets = [
        replace(b, variable=link_variable[lo:hi])  # a view: graphs of millions of links are many
        for b, lo, hi in zip(buckets, starts[:-1], starts[1:], strict=True)
    ]
    negated = _concatenate([b.negated for b in buckets], np.bool_)
    offsets, links = _links_by_variable(link_variable, len(variables))
    degree = np.diff(offsets)
    root_degree = np.sqrt(degree)
    of_variable = component[variables]
    of_factor = _concatenate([b.component for b in buckets], np.int64)
    factors_of = np.bincount(of_factor, minlength=n_components)
    shared = np.bincount(of_variable[degree > 1], minlength=n_components)
    first_variable = np.searchsorted(of_variable, np.arange(n_components + 1))
    return Part(
        buckets=buckets,
        starts=starts,
        variables=variables,
        component=of_variable,
        first_variable=first_variable,
        link_variable=link_variable,
        root_degree=root_degree,
        delta=root_degree[link_variable],
        negated=negated,
        variable_offsets=offsets,
        variable_links=links,
        sizes=np.diff(offsets[first_variable]),
        direct=(factors_of == 1) & (shared == 0),
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
def _links_by_variable(
    link_variable: IntArray, n_variables: int
) -> tuple[IntArray, npt.NDArray[np.uint32]]:
    """Return where each variable's links begin in the order of the variables, and that order."""
    offsets = np.zeros(n_variables + 1, dtype=np.int64)
    for v in link_variable:
        offsets[v + 1] += 1
    for v in range(n_variables):
        offsets[v + 1] += offsets[v]
    links = np.empty(len(link_variable), dtype=np.uint32)
    for link in range(len(link_variable)):  # offsets[v] runs from v's first link to its last
        v = link_variable[link]
        links[offsets[v]] = link
        offsets[v] += 1
    for v in range(n_variables, 0, -1):
        offsets[v] = offsets[v - 1]
    offsets[0] = 0
    return offsets, links


# -------------------------------------------------------------------- small helpers

_NO_FLOATS = np.empty(0)


def _offsets(counts: IntArray) -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _concatenate(arrays: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
