"""A builder of hypergraphs over items with arbitrary hashable names."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import IntArray
from lpsmap_dynamic.declaration import Hypergraph

Slot = int | tuple[int, ...]
T = TypeVar("T")

SPARSE = 4
"""Item numbers are sorted if their range exceeds their count by more than this factor; otherwise a
table is faster."""


class _Part(NamedTuple):
    """A part of the hyperedges, as arrays."""

    heads: IntArray
    tails: IntArray
    """Two tails for each, -1 for none."""
    sizes: IntArray
    """The number of entries of each."""
    entries: IntArray


class HypergraphBuilder:
    """Collects the hyperedges of one factor's dynamic program.

    Parameters
    ----------
    event_shape
        Shape of the factor's slots.
    n_additionals
        The number of its additionals.
    """

    def __init__(self, event_shape: tuple[int, ...], n_additionals: int = 0) -> None:
        self.event_shape, self.n_additionals = event_shape, n_additionals
        self._arity = math.prod(event_shape)
        self._items: dict[Hashable, int] = {}
        self._heads: list[int] = []
        self._tails: list[int] = []
        self._sizes: list[int] = []
        self._entries: list[int] = []
        self._parts: list[_Part] = []

    def edge(
        self,
        head: Hashable,
        tails: Iterable[Hashable] = (),
        slots: Iterable[Slot] = (),
        additionals: Iterable[int] = (),
    ) -> None:
        """Add a hyperedge.

        Parameters
        ----------
        head
            The item that it derives; any hashable name, such as ``("span", 0, 3)``.
        tails
            The items that it is derived from: at most two. They may be derived by later calls.
        slots
            A list of the slots that it switches on: flat numbers, or indices into the event shape.
        additionals
            The additionals that it switches on, by number.

        Raises
        ------
        TypeError
            If an item is not hashable, or an argument is not a list.
        ValueError
            If there are more than two tails, or a slot or additional is out of range.
        """
        names = _listed("tails", tails)
        if len(names) > 2:
            raise ValueError(
                f"edge: item {head!r} has {len(names)} tails; expected at most two. Derive an "
                "intermediate item from two of them first."
            )
        entries = self._slots(slots)
        entries += [self._additional(j) for j in _listed("additionals", additionals)]
        self._heads.append(self._item(head))
        self._tails += [self._item(name) for name in names] + [-1] * (2 - len(names))
        self._sizes.append(len(entries))
        self._entries += entries

    def edges(
        self,
        heads: npt.ArrayLike,
        tails: npt.ArrayLike | None = None,
        slots: npt.ArrayLike | None = None,
        additionals: npt.ArrayLike | None = None,
    ) -> None:
        """Add many hyperedges over items named by integers.

        Parameters
        ----------
        heads
            (E,) items.
        tails
            (E,) or (E, 2) items, -1 for none.
        slots, additionals
            (E,) or (E, k) slots and additionals that each switches on, in the flat order of the
            event.

        Raises
        ------
        TypeError
            If they are not numbers.
        ValueError
            If they are not integers, their number differs from that of the heads, there are more
            than two tails, or an item, slot or additional is out of range.
        """
        head = _integers("heads", heads)
        if head.ndim != 1:
            raise ValueError(f"edges: heads has shape {head.shape}; expected (E,), an item each.")
        head = head.reshape(-1, 1)
        n = len(head)
        tail, slot, extra = (
            _table(name, values, n)
            for name, values in (("tails", tails), ("slots", slots), ("additionals", additionals))
        )
        for name, numbers, least in (("head", head, 0), ("tail", tail, -1)):
            below = numbers[numbers < least]
            if below.size:
                raise ValueError(
                    f"edges: {name} {below[0]} is out of range; expected {least} or more."
                )
        if tail.shape[1] > 2:
            raise ValueError(f"edges: got {tail.shape[1]} tails; expected at most two.")
        for name, numbers, most in (
            ("slot", slot, self._arity),
            ("additional", extra, self.n_additionals),
        ):
            wrong = numbers[(numbers < 0) | (numbers >= most)]
            if wrong.size:
                raise ValueError(
                    f"edges: {name} {wrong[0]} is out of range; expected {_below(most)}."
                )
        tail = np.concatenate([tail, np.full((n, 2 - tail.shape[1]), -1)], axis=1)
        used, number = _distinct(np.concatenate([head, tail], axis=1))
        known = np.array([-1 if x < 0 else self._item(x) for x in used.tolist()], dtype=np.int64)
        items = known[number]
        entries = np.concatenate([slot, extra + self._arity], axis=1)
        self._close()
        self._parts.append(
            _Part(
                items[:, 0],
                items[:, 1:].reshape(-1),
                np.full(n, entries.shape[1], dtype=np.int64),
                entries.reshape(-1),
            )
        )

    def __contains__(self, item: Hashable) -> bool:
        """Return whether an item is the head or a tail of a hyperedge so far."""
        return item in self._items

    def finish(self, goal: Hashable) -> Hypergraph:
        """Return the hypergraph of the hyperedges below `goal`.

        Raises
        ------
        ValueError
            See `Hypergraph`.
        """
        names = list(self._items)
        if goal not in self._items:
            raise ValueError(
                f"hypergraph: the goal {goal!r} is not an item; expected the head of a hyperedge."
            )
        self._close()
        heads, tails, sizes, entries = (np.concatenate(x) for x in zip(*self._parts, strict=True))
        return Hypergraph(
            self._arity,
            self.n_additionals,
            heads,
            tails,
            np.concatenate([[0], np.cumsum(sizes)]),
            entries,
            self._items[goal],
            names.__getitem__,
        )

    def _close(self) -> None:
        """Turn the hyperedges of `edge` into a part."""
        if self._heads:
            lists = self._heads, self._tails, self._sizes, self._entries
            self._parts.append(_Part(*(np.array(x, dtype=np.int64) for x in lists)))
            self._heads, self._tails, self._sizes, self._entries = [], [], [], []

    def _item(self, name: Hashable) -> int:
        try:
            return self._items.setdefault(name, len(self._items))
        except TypeError:
            raise TypeError(
                f"edge: item {name!r} is not hashable; expected a hashable name, such as a tuple."
            ) from None

    def _slots(self, slots_of_edge: Iterable[Slot]) -> list[int]:
        slots = _listed("slots", slots_of_edge)
        may_be_one = isinstance(slots_of_edge, tuple) and len(slots) == len(self.event_shape) > 1
        if may_be_one and not any(isinstance(slot, tuple) for slot in slots):
            raise ValueError(
                f"edge: slots is {slots_of_edge}, which is ambiguous: one slot of {len(slots)} "
                f"axes or {len(slots)} slots; write [{slots_of_edge}] or {slots}."
            )
        return [self._slot(slot) for slot in slots]

    def _slot(self, slot: Slot) -> int:
        shape = self.event_shape
        index, sizes = (slot, shape) if isinstance(slot, tuple) else ((slot,), (self._arity,))
        flat, inside = 0, len(index) == len(sizes)
        for i, n in zip(index, sizes, strict=False):
            inside = inside and _counts_below(n, i)
            flat = flat * n + int(i) if inside else 0
        if not inside:
            raise ValueError(
                f"edge: slot {slot!r} is out of range; expected a flat number or a tuple of "
                f"indices in shape {shape}."
            )
        return flat

    def _additional(self, j: int) -> int:
        if not _counts_below(self.n_additionals, j):
            raise ValueError(
                f"edge: additional {j!r} is out of range; expected {_below(self.n_additionals)}."
            )
        return self._arity + int(j)


def _listed(name: str, values: Iterable[T]) -> list[T]:
    """Return an argument of an edge as a list; a string is not a list of items."""
    if type(values) is list:  # the common case; a test for iterables is slow
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"edge: {name} is {values!r}; expected a list, such as [{values!r}].")
    return list(values)


def _counts_below(most: int, number: Any) -> bool:
    """Return whether a value is an integer from 0 to below `most`."""
    if type(number) is int:
        return 0 <= number < most
    if isinstance(number, (bool, np.bool_)):  # more often a mask than a number
        return False
    try:
        return bool(0 <= number < most and int(number) == number)
    except (TypeError, ValueError):  # strings and arrays
        return False


def _distinct(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return the sorted distinct numbers, and the position of each number among them."""
    if not numbers.size:
        return np.empty(0, dtype=np.int64), numbers
    lowest = numbers.min()
    span = int(numbers.max()) - int(lowest) + 1
    if span > SPARSE * numbers.size:
        used, which = np.unique(numbers, return_inverse=True)
        return used, which.reshape(numbers.shape)
    seen = np.zeros(span, dtype=np.int64)
    seen[numbers - lowest] = 1
    return np.flatnonzero(seen) + lowest, (np.cumsum(seen) - 1)[numbers - lowest]


def _below(most: int) -> str:
    return f"0 to {most - 1}" if most else "none, since the factor has none"


def _integers(name: str, numbers: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return integers of any shape."""
    try:
        array = np.asarray(numbers)
    except ValueError as error:
        raise ValueError(f"edges: {name} is not an array of numbers ({error}).") from None
    if array.dtype.kind not in "fiu":
        raise TypeError(f"edges: {name} has dtype {array.dtype}; expected integers.")
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    wrong = array[whole != array]
    if wrong.size:
        raise ValueError(f"edges: {name} holds {wrong[0]}; expected integers.")
    return whole


def _table(name: str, numbers: npt.ArrayLike | None, n: int) -> npt.NDArray[np.int64]:
    """Return a row of integers for every hyperedge."""
    if numbers is None:
        return np.empty((n, 0), dtype=np.int64)
    table = _integers(name, numbers)
    if table.ndim not in (1, 2) or len(table) != n:
        raise ValueError(
            f"edges: {name} has shape {table.shape}; expected ({n},) or ({n}, k), a row for every "
            "head."
        )
    return table.reshape(n, 1) if table.ndim == 1 else table
