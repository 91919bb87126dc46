"""The layout of a graph in flat arrays: links, buckets by factor type, components.

A *link* is a (factor slot, variable) pair. The links of all factors of a type are contiguous and
make a *bucket*; buckets follow each other. A *part* is a union of connected components with arrays
of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.records import Factors
from lpsmap_core.layout.arrangement import (
    FactorTable,
    Links,
    LoopArrays,
    Spans,
    arrange,
    cached_arrangement,
)
from lpsmap_core.layout.ragged import concatenate_rows, offsets_of, ranges, sums
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.score_magnitude import raise_to_largest
from lpsmap_core.model.slots import slot_values
from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.cached_property import cached_property

Derived = TypeVar("Derived")
Number = TypeVar("Number", bound=np.generic)

_NO_FLOATS = np.empty(0)


@dataclass(frozen=True)
class Bucket:
    """Factors of one type, all with the same kind of local solver, as flat arrays."""

    type: type[Factor]
    declarations: Sequence[Factor]
    declaration: IntArray
    """For each factor, the position of its declaration in `declarations`."""
    row: IntArray
    """For each factor, its number within that declaration."""
    factors: Factors
    """The record of the factors for kernels."""
    variable: IntArray
    """For each slot, its variable, by its id in the `Layout` or `Part` that holds the bucket."""
    negated: BoolArray
    component: IntArray
    """For each factor, its component; -1 for a factor of no variables."""

    @property
    def generic(self) -> bool:
        """Whether the active set solves the factors, whatever solver their type has."""
        return self.declarations[0]._generic

    @property
    def offsets(self) -> IntArray:
        """Factor ``f`` has the slots ``offsets[f]:offsets[f + 1]``."""
        return self.factors.offsets

    @property
    def additional_offsets(self) -> IntArray:
        """The same for additionals."""
        return self.factors.additional_offsets

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
        """Return the bucket of the factors `rows`."""
        slots = ranges(self.offsets, rows)
        return Bucket(
            type=self.type,
            declarations=self.declarations,
            declaration=self.declaration[rows],
            row=self.row[rows],
            factors=_select_factors(self.factors, rows, slots),
            variable=self.variable[slots],
            negated=self.negated[slots],
            component=self.component[rows],
        )

    def sums(self, of_links: FloatArray, of_additionals: FloatArray) -> FloatArray:
        """Return the sum of every factor's numbers, `of_links` and `of_additionals`."""
        n = self.n_factors
        total = sums(np.repeat(np.arange(n), np.diff(self.offsets)), of_links, n)
        if not self.n_additionals:
            return total
        factor = np.repeat(np.arange(n), np.diff(self.additional_offsets))
        return total + sums(factor, of_additionals, n)

    def rows_of(self, declaration: Factor) -> IntArray:
        """Return the factors of a `declaration`."""
        is_it = np.array([other is declaration for other in self.declarations])
        return np.flatnonzero(is_it[self.declaration])


@dataclass(frozen=True)
class Part:
    """The variables that factors cover, and their factors, with its own ids for the variables.

    Its variables, and the factors of each of its buckets, are in the order of their components.

    Negation is handled by ``negated`` alone: the local score of a slot is ``sign * a + shift``, and
    its local solution maps back in the same way (Niculae & Martins 2020, Proposition 7: ``flip(x) =
    1 / delta - x``).
    """

    buckets: list[Bucket]
    ids: IntArray | None
    """For each variable of the part, its id in the graph; None for all variables, in order."""
    link_variable: IntArray
    """For each link, its variable; in the order of the factors' slots, like the next one."""
    negated: BoolArray
    spans: Spans
    component: IntArray
    """For each variable, its component."""
    sizes: IntArray
    """For each component, its number of links."""
    direct: BoolArray
    """For each component, whether it is one factor of distinct variables, solved without ADMM."""
    loop: LoopArrays
    """The records for the loop, made when first used."""
    _derived: dict[Callable[[Part], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def derived(self, make: Callable[[Part], Derived]) -> Derived:
        """Return ``make(self)``, computed once; the arrays of a part do not change."""
        if make not in self._derived:
            self._derived[make] = make(self)
        value: Derived = self._derived[make]
        return value

    @cached_property
    def all_direct(self) -> bool:
        """Whether all components are `direct`."""
        return bool(self.direct.all())

    @cached_property
    def kinds(self) -> tuple[IntArray, IntArray]:
        """The components that are `direct`, and the others."""
        return np.flatnonzero(self.direct), np.flatnonzero(~self.direct)

    @property
    def whole(self) -> bool:
        """Whether the part has all variables of the graph, in the graph's order."""
        return self.ids is None

    @cached_property
    def variables(self) -> IntArray:
        """For each variable of the part, its id in the graph."""
        return np.arange(self.n_variables) if self.ids is None else self.ids

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.component)

    @property
    def n_links(self) -> int:
        """Number of links."""
        return len(self.link_variable)

    @cached_property
    def n_additionals(self) -> int:
        """Number of additionals of all factors."""
        return int(self.spans.first_additional[-1])

    @property
    def n_components(self) -> int:
        """Number of connected components."""
        return len(self.direct)

    def of_graph(self, numbers: FloatArray, copy: bool = True) -> FloatArray:
        """Return the `numbers` of the part's variables, from those of the graph.

        The result is a copy unless `copy` is false.
        """
        if self.ids is None:
            return numbers.copy() if copy else numbers
        return numbers[self.ids]

    def largest_scores(self, eta: FloatArray, eta_v: FloatArray) -> FloatArray:
        """Return for each component the largest magnitude of its finite scores, or 0.

        The scores `eta` are those of the part's variables, `eta_v` those of the additionals of all
        buckets.
        """
        spans, largest = self.spans, np.zeros(self.n_components)
        raise_to_largest(eta, spans.first_variable, np.arange(self.n_components), largest)
        raise_to_largest(eta_v, spans.additional_offsets, spans.component, largest)
        return largest

    def links_of(self, b: int) -> slice:
        """Return the slice of bucket `b` in arrays of links."""
        return slice(*self.spans.first_link[b : b + 2])

    def additionals_of(self, b: int) -> slice:
        """Return the slice of bucket `b` in arrays of additionals."""
        return slice(*self.spans.first_additional[b : b + 2])

    def by_declaration(self, values: FloatArray, factors: Sequence[Factor]) -> list[FloatArray]:
        """Split (..., all additionals) numbers into (..., n_factors, n_additionals) by declaration.

        The arrays are zero for factors that are not in the part, and can be views of `values`.
        """
        before, by_id = values.shape[:-1], dict[int, FloatArray]()
        if values.size:
            flat, begin = values, 0
            if self._places is not None:
                flat = np.zeros(before + (sum(map(math.prod, self._additional_shapes)),))
                flat[..., self._places] = values
            for declaration, shape in zip(self._declarations, self._additional_shapes, strict=True):
                end = begin + math.prod(shape)
                by_id[id(declaration)] = flat[..., begin:end].reshape(before + shape)
                begin = end
        return [
            by_id[id(f)] if id(f) in by_id else np.zeros((*before, f.n_factors, f.n_additionals))
            for f in factors
        ]

    def by_bucket(
        self, arrays: Sequence[FloatArray], factors: Sequence[Factor], copy: bool = True
    ) -> FloatArray:
        """Return flat numbers on all additionals from (n_factors, n_additionals) arrays.

        There is one array for each of the `factors`. The result is a copy unless `copy` is false.
        """
        if not self.n_additionals:
            return _NO_FLOATS
        position = {id(factor): i for i, factor in enumerate(factors)}
        declared = [arrays[position[id(d)]] for d in self._declarations]
        if not copy and len(declared) == 1 and self._places is None:
            return np.ascontiguousarray(declared[0], dtype=np.float64).reshape(-1)
        flat, begin = np.empty(sum(array.size for array in declared)), 0
        for array in declared:  # which may repeat its numbers, so that its own copy would be large
            flat[begin : begin + array.size].reshape(array.shape)[...] = array
            begin += array.size
        return flat if self._places is None else flat[self._places]

    @cached_property
    def _declarations(self) -> list[Factor]:
        return [declaration for bucket in self.buckets for declaration in bucket.declarations]

    @cached_property
    def _additional_shapes(self) -> list[tuple[int, int]]:
        return [(d.n_factors, d.n_additionals) for d in self._declarations]

    @cached_property
    def _places(self) -> IntArray | None:
        """For each additional, its place among those of all declarations; None if in order."""
        n_factors, width = np.array(self._additional_shapes).T
        first = offsets_of(width * n_factors)
        n_before = np.cumsum([0, *(len(bucket.declarations) for bucket in self.buckets)])
        before = zip(self.buckets, n_before, strict=False)
        declaration = np.concatenate([bucket.declaration + n for bucket, n in before])
        row = np.concatenate([bucket.row for bucket in self.buckets])
        begin, end = first[declaration] + row * width[declaration], self.n_additionals
        offsets = self.spans.additional_offsets
        if first[-1] == end and np.array_equal(begin, offsets[:-1]):
            return None
        return np.repeat(begin - offsets[:-1], np.diff(offsets)) + np.arange(end)

    @property
    def first_variable(self) -> IntArray:
        """For each component, its first variable; then the number of variables."""
        return self.spans.first_variable

    @property
    def links(self) -> Links:
        """The links of the variables, for the loop."""
        return self.loop.links

    def on_additionals(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return for each additional the value of its component; `values` has one for each."""
        spans = self.spans
        return np.repeat(values[spans.component], np.diff(spans.additional_offsets))

    def components_of_additionals(self, numbers: IntArray) -> IntArray:
        """Return the components of some additionals, by their numbers."""
        factor = np.searchsorted(self.spans.additional_offsets, numbers, side="right") - 1
        return self.spans.component[factor]

    @property
    def additional_component(self) -> IntArray:
        """For each additional, its component; a new array, since there may be many."""
        return np.repeat(self.spans.component, np.diff(self.spans.additional_offsets))

    @property
    def component_of_numbers(self) -> IntArray:
        """For each variable, and then for each additional, its component."""
        return np.concatenate([self.component, self.additional_component])

    @property
    def root_degree(self) -> FloatArray:
        """For each variable, the square root of its degree."""
        return self.links.root_degree

    @property
    def variable_offsets(self) -> IntArray:
        """For each variable, its first link in `Links.order`; then the number of links."""
        return self.links.offsets.view(np.int64)

    @property
    def delta(self) -> FloatArray:
        """For each link in the order of the slots, the square root of its variable's degree."""
        return self.root_degree[self.link_variable]

    @property
    def sign(self) -> FloatArray:
        """For each link, -1 if its slot is negated, else 1."""
        return np.where(self.negated, -1.0, 1.0)

    @property
    def shift(self) -> FloatArray:
        """For each link, 1 / delta if its slot is negated, else 0."""
        return np.where(self.negated, 1.0 / self.delta, 0.0)

    def negate(self, z: FloatArray) -> FloatArray:
        """Return numbers on the links, and ``1 / delta - z`` in negated slots, in a new array."""
        result, negated = z.copy(), np.flatnonzero(self.negated)
        result[negated] = 1.0 / self.root_degree[self.link_variable[negated]] - z[negated]
        return result


@dataclass(frozen=True)
class Layout:
    """A whole graph: its buckets, its components and the part to solve."""

    n_variables: int
    n_components: int
    component: IntArray
    """For each variable of the graph, its component; -1 for a variable in no factor."""
    buckets: list[Bucket]
    part: Part

    def like(self, other: Layout) -> bool:
        """Return whether the graph differs from an `other` only in scores and parameters."""
        if self is other:
            return True
        if self.n_variables != other.n_variables or len(self.buckets) != len(other.buckets):
            return False
        return all(
            a.type is b.type
            and a.generic == b.generic
            and np.array_equal(a.offsets, b.offsets)
            and np.array_equal(a.variable, b.variable)
            and np.array_equal(a.negated, b.negated)
            for a, b in zip(self.buckets, other.buckets, strict=True)
        )


def build_layout(n_variables: int, factors: Sequence[Factor]) -> Layout:
    """Lay out the declarations `factors` of a graph of `n_variables`."""
    groups: dict[tuple[type[Factor], bool], list[Factor]] = {}
    for factor in factors:
        groups.setdefault((type(factor), factor._generic), []).append(factor)
    declarations = [d for group in groups.values() for d in group]
    numbers = [(i, d.n_factors, d.n_additionals) for g in groups.values() for i, d in enumerate(g)]
    variable = concatenate_rows([slot_values(d, d.variables.index) for d in declarations], np.int64)
    negated = concatenate_rows(
        [slot_values(d, d.variables.negated) for d in declarations], np.bool_
    )
    slots = concatenate_rows([d.offsets for d in declarations], np.int64)
    _share_slots(declarations, variable, negated)
    table, arrangement = cached_arrangement(n_variables, numbers, slots, variable, negated)
    buckets = [_bucket(b, g, table, variable, negated) for b, g in enumerate(groups.values())]
    if arrangement is None:
        part = _sorted_part(buckets, table)
    else:
        part = Part(buckets, None, variable, negated, **arrangement._asdict())
    return Layout(n_variables, table.n_components, table.component, buckets, part)


def _share_slots(declarations: list[Factor], variable: IntArray, negated: BoolArray) -> None:
    """Let declarations refer to the slots of a layout, so that large graphs hold them once."""
    end = 0
    for declaration in declarations:
        begin, end = end, end + int(declaration.offsets[-1])
        if declaration.keep is None:
            declaration.variables.refer_to(variable[begin:end], negated[begin:end])


# -------------------------------------------------------------------- buckets


def _bucket(
    b: int, declarations: list[Factor], table: FactorTable, variable: IntArray, negated: BoolArray
) -> Bucket:
    factor_type = type(declarations[0])
    begin, end = table.starts[0, b : b + 2].tolist()
    links = slice(*table.starts[1, b : b + 2].tolist())
    factors, offsets = slice(begin, end), slice(begin + b, end + b + 1)
    return Bucket(
        type=factor_type,
        declarations=declarations,
        declaration=table.declaration[factors],
        row=table.row[factors],
        factors=Factors(
            table.offsets[offsets],
            table.additional_offsets[offsets],
            row_parameters(declarations, end - begin),
            link_parameter(declarations),
            *integers(declarations),
        ),
        variable=variable[links],
        negated=negated[links],
        component=table.of_factor[factors],
    )


def _select_factors(factors: Factors, rows: IntArray, slots: IntArray) -> Factors:
    """Return the record of some factors with some slots; shared integers stay shared."""
    per_link, between = factors.link_parameter, factors.integer_ranges
    return Factors(
        offsets_of(np.diff(factors.offsets)[rows]),
        offsets_of(np.diff(factors.additional_offsets)[rows]),
        factors.parameters[rows],
        per_link[slots] if per_link.size else per_link,
        factors.integers,
        between[rows] if between.size else between,
    )


# -------------------------------------------------------------------- the part to solve


def _sorted_part(buckets: list[Bucket], table: FactorTable) -> Part:
    """Return the part whose variables and factors are brought in the order of the components."""
    component, variables = table.component, _ordered(table.component)
    position = np.empty(len(component), dtype=np.int64)
    position[variables] = np.arange(len(variables))
    buckets = [
        replace(b, variable=position[b.variable]) for b in map(_in_order, buckets) if b.n_factors
    ]
    return part_of_buckets(buckets, component[variables], table.n_components, variables)


def part_of_buckets(
    buckets: list[Bucket],
    component: IntArray,
    n_components: int,
    ids: IntArray | None = None,
) -> Part:
    """Return the part of some buckets with factors and variables in the order of the components.

    Parameters
    ----------
    buckets
        The buckets, whose variables are numbered in the part.
    component
        For each variable of the part, its component.
    n_components
        Number of components.
    ids
        As in `Part`.
    """

    def joined(name: str, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
        return concatenate_rows([getattr(bucket, name) for bucket in buckets], dtype)

    variable, negated = joined("variable"), joined("negated", np.bool_)
    counts = [[b.n_factors, b.n_links, b.n_additionals] for b in buckets]
    starts = np.array([[0, 0, 0], *counts]).cumsum(axis=0).T.copy()
    table = FactorTable(
        starts=starts,
        declaration=joined("declaration"),
        row=joined("row"),
        offsets=joined("offsets"),
        additional_offsets=joined("additional_offsets"),
        of_factor=joined("component"),
        component=component,
        n_components=n_components,
        in_order=True,
    )
    buckets = [
        replace(b, variable=variable[lo:hi])  # a view saves memory in large graphs
        for b, lo, hi in zip(buckets, starts[1, :-1], starts[1, 1:], strict=True)
    ]
    return Part(buckets, ids, variable, negated, **arrange(table, variable, negated)._asdict())


def _in_order(bucket: Bucket) -> Bucket:
    """Return a bucket without factors of no variables, in the order of the components."""
    rows = _ordered(bucket.component)
    return bucket if np.array_equal(rows, np.arange(bucket.n_factors)) else bucket.select(rows)


def _ordered(component: IntArray) -> IntArray:
    """Return what has a component, in the stable order of the components."""
    covered = np.flatnonzero(component >= 0)
    component = component[covered]
    if (component[1:] >= component[:-1]).all():
        return covered
    return covered[np.argsort(component, kind="stable")]


_NO_INTEGERS = np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64)


def row_parameters(declarations: list[Factor], n: int) -> FloatTable:
    """Return the registered columns of the `n` factors of some declarations of a type."""
    rows = declarations[0]._parameters.rows
    widths = [math.prod(shape) for shape in rows.values()]
    table, begin = np.empty((n, sum(widths))), 0
    for name, width in zip(rows, widths, strict=True):
        numbers = [d._kernel_numbers(name).reshape(d.n_factors, width) for d in declarations]
        np.concatenate(numbers, out=table[:, begin : begin + width])
        begin += width
    return table


def link_parameter(declarations: list[Factor]) -> FloatArray:
    """Return the registered numbers of all slots, or an empty array."""
    name = declarations[0]._parameters.link
    if name is None:
        return _NO_FLOATS
    values = [slot_values(d, d._kernel_numbers(name)) for d in declarations]
    return np.concatenate(values).astype(np.float64)


def integers(declarations: list[Factor]) -> tuple[IntArray, IntArray]:
    """Return all integers of some declarations, and the range of each factor's integers."""
    arrays, ranges, begin = [], [], 0
    for d in declarations:
        of_declaration, position = d._kernel_integers()
        if not len(of_declaration):
            continue
        ends = begin + np.cumsum([array.size for array in of_declaration], dtype=np.int64)
        ranges.append(np.stack([np.append(begin, ends[:-1]), ends], axis=1)[position])
        arrays += [array.reshape(-1) for array in of_declaration]
        begin = int(ends[-1])
    return (concatenate_rows(arrays, np.int64), np.concatenate(ranges)) if ranges else _NO_INTEGERS
