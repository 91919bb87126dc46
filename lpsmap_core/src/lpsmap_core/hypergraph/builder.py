"""Hyperedges one after the other, over items that are called whatever an author likes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt

from lpsmap_core.hypergraph.declaration import Hypergraph

__all__ = ["HypergraphBuilder"]

Slot = int | tuple[int, ...]


class HypergraphBuilder:
    """Takes the hyperedges of one factor's dynamic program.

    Parameters
    ----------
    event_shape
        Shape of the factor's slots.
    n_additionals
        How many additionals it has.
    """

    def __init__(self, event_shape: tuple[int, ...], n_additionals: int = 0) -> None:
        self.event_shape, self.n_additionals = event_shape, n_additionals
        self._arity = math.prod(event_shape)
        self._items: dict[Hashable, int] = {}
        self._heads: list[int] = []
        self._tails: list[int] = []
        self._entries: list[int] = []
        self._first_entry = [0]

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
            The item that it derives, under any hashable name, such as ``("span", 0, 3)``.
        tails
            The items that it derives it from: none, one or two. They may be derived by later calls.
        slots
            The slots that it switches on: numbers, or indices into the event shape.
        additionals
            The numbers of the additionals that it switches on.

        Raises
        ------
        ValueError
            If there are more than two tails, or a slot or an additional is none of the factor's.
        """
        names = list(tails)
        if len(names) > 2:
            raise ValueError(
                f"edge: item {head!r} gets {len(names)} tails; expected two at most. Join two of "
                "them in an item of their own first."
            )
        self._heads.append(self._item(head))
        self._tails += [self._item(name) for name in names] + [-1] * (2 - len(names))
        self._entries += [self._slot(slot) for slot in slots]
        self._entries += [self._additional(j) for j in additionals]
        self._first_entry.append(len(self._entries))

    def edges(
        self,
        heads: npt.ArrayLike,
        tails: npt.ArrayLike | None = None,
        slots: npt.ArrayLike | None = None,
        additionals: npt.ArrayLike | None = None,
    ) -> None:
        """Add many hyperedges over items that are called by whole numbers.

        Parameters
        ----------
        heads
            (E,) items.
        tails
            (E,) or (E, 2) items, -1 for none.
        slots, additionals
            (E,) or (E, k) numbers of what each switches on, in the flat order of the event.

        Raises
        ------
        ValueError
            If there are more than two tails, or a slot or an additional is none of the factor's.
        """
        head = _table(heads, len(np.ravel(heads)))
        n = len(head)
        tail, slot, extra = (_table(given, n) for given in (tails, slots, additionals))
        if tail.shape[1] > 2:
            raise ValueError(f"edges: got {tail.shape[1]} tails; expected two at most.")
        for name, numbers, most in (
            ("slot", slot, self._arity),
            ("additional", extra, self.n_additionals),
        ):
            wrong = numbers[(numbers < 0) | (numbers >= most)]
            if wrong.size:
                raise ValueError(f"edges: {name} {wrong[0]} is none; expected 0 to {most - 1}.")
        tail = np.concatenate([tail, np.full((n, 2 - tail.shape[1]), -1)], axis=1)
        used, number = np.unique(np.concatenate([head, tail], axis=1), return_inverse=True)
        known = np.array([-1 if x < 0 else self._item(x) for x in used.tolist()], dtype=np.int64)
        items = known[number.reshape(n, 3)]
        entries = np.concatenate([slot, extra + self._arity], axis=1)
        before = self._first_entry[-1]
        self._heads += items[:, 0].tolist()
        self._tails += items[:, 1:].reshape(-1).tolist()
        self._entries += entries.reshape(-1).tolist()
        self._first_entry += (before + np.arange(1, n + 1) * entries.shape[1]).tolist()

    def __contains__(self, item: Hashable) -> bool:
        """Whether an edge so far has derived an item, or needed it."""
        return item in self._items

    def finish(self, goal: Hashable) -> Hypergraph:
        """Return the hypergraph of the hyperedges that `goal` needs.

        Raises
        ------
        ValueError
            As `Hypergraph`.
        """
        names = list(self._items)
        if goal not in self._items:
            raise ValueError(
                f"hypergraph: the goal {goal!r} is no item; expected one that an edge derives."
            )
        return Hypergraph(
            self._arity,
            self.n_additionals,
            _integers(self._heads),
            _integers(self._tails),
            _integers(self._first_entry),
            _integers(self._entries),
            self._items[goal],
            names.__getitem__,
        )

    def _item(self, name: Hashable) -> int:
        return self._items.setdefault(name, len(self._items))

    def _slot(self, slot: Slot) -> int:
        shape = self.event_shape
        index, sizes = (slot, shape) if isinstance(slot, tuple) else ((slot,), (self._arity,))
        flat, inside = 0, len(index) == len(sizes)
        for i, n in zip(index, sizes, strict=False):
            inside = inside and 0 <= i < n
            flat = flat * n + int(i)
        if not inside:
            raise ValueError(f"edge: slot {slot} is none; expected one of shape {shape}.")
        return flat

    def _additional(self, j: int) -> int:
        if not 0 <= j < self.n_additionals:
            raise ValueError(
                f"edge: additional {j} is none; expected 0 to {self.n_additionals - 1}."
            )
        return self._arity + int(j)


def _integers(numbers: list[int]) -> npt.NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def _table(numbers: npt.ArrayLike | None, n: int) -> npt.NDArray[np.int64]:
    """Return a row of numbers for every hyperedge."""
    if numbers is None:
        return np.empty((n, 0), dtype=np.int64)
    return np.asarray(numbers, dtype=np.int64).reshape(n, -1) if n else np.empty((0, 1), np.int64)
