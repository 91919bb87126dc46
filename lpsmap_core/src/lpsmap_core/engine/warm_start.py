"""Warm starts: the duals, means, step sizes and active sets of an earlier solve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.protocol import SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Layout
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.model.variables import Variables
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["CachedStart", "GraphStart", "WarmStartCache"]


@dataclass(frozen=True)
class GraphStart:
    """The starting point of the loop in every component of a graph.

    `lpsmap_core.engine.protocol.WarmStart` is the same for a part.

    Attributes
    ----------
    u
        (n_variables,) scaled means, in the order of the graph.
    duals
        (n_links,) one per slot, in the order of the buckets of the graph's layout.
    step_size, first_step_size
        (n_components,) last and first step sizes.
    known
        (n_components,) whether there is a start for the component.
    solved
        Further state of the engine that ended there, if any.
    """

    u: FloatArray
    duals: FloatArray
    step_size: FloatArray
    first_step_size: FloatArray
    known: BoolArray
    solved: object = None

    @classmethod
    def empty(cls, layout: Layout) -> GraphStart:
        """Return a start without any known component, to be filled in."""
        n_links, n = sum(bucket.n_links for bucket in layout.buckets), layout.n_components
        known = np.zeros(n, dtype=bool)
        step_size, first_step_size = np.zeros((2, n))
        return cls(
            np.zeros(layout.n_variables), np.zeros(n_links), step_size, first_step_size, known
        )

    @classmethod
    def of_solved(cls, layout: Layout, solved: SolvedGraph) -> GraphStart:
        """Return the end of a solve; empty if its engine does not provide it."""
        start, part, end = cls.empty(layout), layout.part, solved.end()
        if end is None:
            return start
        start.u[part.variables] = end.u
        start.duals[_links_in_graph(layout)[part.links.order]] = end.duals
        start.step_size[:], start.first_step_size[:] = end.step_size, end.step_size
        if end.first_step_size is not None:
            start.first_step_size[:] = end.first_step_size
        start.known[:] = end.known
        return replace(start, solved=end.solved)

    def of_part(self, layout: Layout) -> WarmStart:
        """Return the start in the order of the graph's part."""
        duals = self.duals[_links_in_graph(layout)[layout.part.links.order]]
        u = self.u[layout.part.variables]
        return WarmStart(u, duals, self.step_size, self.known, self.first_step_size, self.solved)


class WarmStartCache:
    """Warm starts of examples that are solved repeatedly, in varying batches and orders.

    The cache stores the final duals and means of the latest solve of every example, at most two
    numbers per link. In a training loop whose examples have keys::

        cache = WarmStartCache()
        for keys, scores in batches:
            graph = FactorGraph()
            u = graph.variable_from(scores)  # first axis: the examples
            graph.add(...)
            graph.solve(warm_start=cache.at(u, keys))

    An example that is not in the cache starts from zero. Results depend on the start only within
    the tolerance of the solve.
    """

    def __init__(self) -> None:
        self._starts: dict[tuple[Hashable, int], _ComponentStart] = {}

    def __len__(self) -> int:
        """Number of connected components in the cache."""
        return len(self._starts)

    def at(self, variables: Variables, keys: Sequence[Hashable]) -> CachedStart:
        """Return a view of the cache that ``solve(warm_start=...)`` reads and updates.

        Parameters
        ----------
        variables
            Variables whose first axis runs over the examples. Components without any of them start
            from zero.
        keys
            One hashable key for each example.

        Raises
        ------
        TypeError
            If `variables` are not Variables, or `keys` is not a sequence of hashable values.
        ValueError
            If the number of keys differs from the number of examples.
        """
        if not isinstance(variables, Variables):
            raise TypeError(
                f"variables: got {kind_of(variables)}; expected Variables whose first axis "
                "runs over the examples."
            )
        keys = _validate_keys(keys)
        n = variables.shape[0] if variables.ndim else 0
        if len(keys) != n:
            raise ValueError(
                f"keys: got {len(keys)} for variables of shape {variables.shape}; expected one for "
                "each entry of their first axis."
            )
        return CachedStart(self._starts, variables, keys)


class _ComponentStart(NamedTuple):
    """The start of one component: of its variables and links, and its step sizes."""

    u: FloatArray
    duals: FloatArray
    step_size: float
    first_step_size: float


@dataclass(frozen=True)
class CachedStart:
    """View of a cache at the examples of one graph; see `WarmStartCache.at`."""

    starts: dict[tuple[Hashable, int], _ComponentStart]
    variables: Variables
    keys: list[Hashable]

    def start_for(self, layout: Layout) -> GraphStart:
        """Return the cached starts of a graph's examples.

        Raises
        ------
        ValueError
            If an example had another shape in the solve before.
        """
        start = GraphStart.empty(layout)
        for c, key, variables, links in self._components(layout):
            if key not in self.starts:
                continue
            cached = self.starts[key]
            if (len(cached.u), len(cached.duals)) != (len(variables), len(links)):
                raise ValueError(
                    f"warm_start: example {key[0]!r} has {len(variables)} variables in "
                    f"{len(links)} slots of factors, and had {len(cached.u)} in "
                    f"{len(cached.duals)} in the solve before; expected the same graph for the "
                    "same key. Give it another key, or use another WarmStartCache."
                )
            start.u[variables], start.duals[links] = cached.u, cached.duals
            start.step_size[c], start.first_step_size[c] = cached.step_size, cached.first_step_size
            start.known[c] = True
        return start

    def keep(self, layout: Layout, solved: SolvedGraph) -> None:
        """Store the end of the solve of a graph."""
        start = GraphStart.of_solved(layout, solved)
        for c, key, variables, links in self._components(layout):
            if start.known[c]:
                sizes = float(start.step_size[c]), float(start.first_step_size[c])
                self.starts[key] = _ComponentStart(start.u[variables], start.duals[links], *sizes)

    def _components(
        self, layout: Layout
    ) -> Iterator[tuple[int, tuple[Hashable, int], IntArray, IntArray]]:
        """Yield the components of the examples: number, key, variables and links of the graph."""
        n = layout.n_components
        example = np.full(layout.n_variables, -1)
        index = self.variables.index
        example[index] = np.arange(len(index)).reshape((-1,) + (1,) * (index.ndim - 1))
        variables, begin = _by_owner(layout.component, n)
        owner = [layout.component[bucket.variable] for bucket in layout.buckets]
        links, first = _by_owner(np.concatenate([np.empty(0, np.int64), *owner]), n)
        seen: dict[int, int] = {}
        for c in range(n):
            mine = variables[begin[c] : begin[c + 1]]
            which = int(example[mine].max())
            if which >= 0:
                number = seen[which] = seen.get(which, -1) + 1
                yield c, (self.keys[which], number), mine, links[first[c] : first[c + 1]]


def _validate_keys(keys: Iterable[Hashable]) -> list[Hashable]:
    """Return the keys as a list; numbers of NumPy and torch become Python's."""
    try:
        found = [key.item() if hasattr(key, "item") else key for key in keys]
        set(found)
    except TypeError as error:
        raise TypeError(
            f"keys: {error}; expected a sequence of hashable values. Use the numbers of the "
            "examples in their data set, for example."
        ) from error
    return found


def _by_owner(owner: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return the order that sorts entries by owner, and the first entry of owners 0 to n - 1."""
    order = np.argsort(owner, kind="stable")
    return order, np.searchsorted(owner[order], np.arange(n + 1))


def _links_in_graph(layout: Layout) -> IntArray:
    """Return the number in the graph of each link of its part."""
    places, first = [np.empty(0, dtype=np.int64)], 0
    mine = {(bucket.type, bucket.generic): bucket for bucket in layout.part.buckets}
    for bucket in layout.buckets:
        some = mine.get((bucket.type, bucket.generic))
        if some is not None:
            begin = np.concatenate([[0], np.cumsum([d.n_factors for d in bucket.declarations])])
            places.append(first + ranges(bucket.offsets, begin[some.declaration] + some.row))
        first += bucket.n_links
    return np.concatenate(places)
