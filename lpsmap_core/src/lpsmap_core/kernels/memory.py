"""Memory of records of arrays: made in one block, and handed to kernels by one address.

A solve works on some sixty arrays. To make each by itself, and to hand each to a kernel, takes
longer than a small solve does. So a `Blueprint` says once where they lie; a copy takes one block,
and a kernel gets the words that `by_address` would write.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.records import Field, kinds_of
from lpsmap_core.kernels.tiers import interprets

__all__ = ["Blueprint", "Memory", "Unset", "hold"]

Record = TypeVar("Record")

WORD = 8
"""Bytes. Arrays begin at multiples of it."""

MOST_KEPT = 1 << 21
"""Words of a block up to which it is kept for the next copy: 16 megabytes."""


class Memory(Generic[Record]):
    """A record, and how kernels get it."""

    def __init__(
        self,
        blueprint: Blueprint[Record],
        block: FloatArray,
        address: int,
        given: tuple[Given, ...],
        words: IntArray,
    ) -> None:
        self._blueprint, self._block, self._address = blueprint, block, address
        self._given, self._words = given, words

    def __reduce__(self) -> NoReturn:
        raise TypeError("Memory: knows where its arrays lie, which a copy of it would not.")

    @functools.cached_property
    def record(self) -> Record:
        """The record, as an object of the same fields."""
        return cast(Record, _Uncut(self._blueprint.parts, self._block, self._given))

    def clear(self) -> None:
        """Write zeros where it was made with zeros."""
        self._blueprint.clear(self._address)

    @property
    def handle(self) -> Any:
        """What kernels are handed, which read the record by `record_at`; it holds the memory."""
        return self.record if interprets() else self._words


Given = Memory[Any] | npt.NDArray[Any]


class Unset(NamedTuple):
    """Stands in a blueprint's plan for an array that is written before it is read."""

    shape: tuple[int, ...]


class Blueprint(Generic[Record]):
    """How copies of a record of arrays are made.

    Parameters
    ----------
    kind
        The record's type.
    plan
        What it holds, in order: arrays and numbers that all copies share; the shape, a tuple, of an
        array of zeros that is made for each, or `Unset` for one that need not hold zeros; the name
        of an array before it that it is one with; for a record in it a list of what that holds.
        None for an array or a record that each copy is given. All copies share arrays of no size.
    """

    def __init__(self, kind: type[Record], plan: list[Any]) -> None:
        self._n_words = 0
        self._zeros: list[tuple[int, int]] = []
        self._given: list[slice] = []
        words: list[int] = []
        own: list[int] = []
        self.parts = self._lay_out(kind, plan, words, own)
        self._words, self._own = np.array(words, np.int64), np.zeros(len(words), np.int64)
        self._own[own] = 1
        self._latest: deque[_Block] = deque(maxlen=1)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Blueprint: knows where arrays lie, which a copy of it would not.")

    def make(self, *given: Given) -> Memory[Record]:
        """Return a copy, with what it is given, in order."""
        block, address = self._take() if self._n_words else _NOTHING
        words = _words_that_hold(len(self._words), (self, block, given))
        np.multiply(self._own, address, out=words)
        words += self._words
        for where, one in zip(self._given, given, strict=True):
            words[where] = one._words if isinstance(one, Memory) else _words(one)
        return Memory(self, block, address, given, words)

    def clear(self, address: int) -> None:
        """Write zeros into the block at an address where its arrays are made with zeros."""
        for begin, end in self._zeros:
            ctypes.memset(address + begin, 0, end - begin)

    def _take(self) -> tuple[FloatArray, int]:
        """Return a block, and its address: the latest one, if nobody holds it any more.

        Memory that is new to a process costs more than to clear it: the system hands it out in
        pages, and takes it back in between two solves.
        """
        try:
            latest = self._latest.pop()  # which no other thread gets, too
        except IndexError:
            latest = None
        if latest is None or latest.held() is not None:
            latest = _Block(np.zeros(self._n_words))
        else:
            self.clear(latest.address)
        block = latest.lend()
        if self._n_words <= MOST_KEPT:
            self._latest.append(latest)
        return block, latest.address

    def _lay_out(self, kind: type, plan: list[Any], words: list[int], own: list[int]) -> Parts:
        """Append the words of a record, see `by_address`; return what copies are made of.

        In `own` are the numbers of words that hold addresses in the block.
        """
        parts: Parts = {}
        begun: dict[str, int] = {}
        for (name, field), planned in zip(kinds_of(kind).items(), plan, strict=True):
            part = _shared_if_empty(planned, field)
            begun[name] = len(words)
            if isinstance(part, str) and isinstance(field, Field):
                again = slice(begun[part], begun[part] + 1 + field.ndim)
                own += [begun[name]] if begun[part] in own else []
                words += words[again]
                part = _Again(part)
            elif part is None:
                begin = len(words)
                words += [0] * (1 + field.ndim if isinstance(field, Field) else _n_words(field))
                part = _Given(len(self._given))
                self._given.append(slice(begin, len(words)))
            elif isinstance(field, Field) and isinstance(part, tuple):
                shape = part.shape if isinstance(part, Unset) else part
                own.append(len(words))
                piece = self._place(shape, field.dtype)
                words += [piece.begin, *shape]
                if shape is part:
                    self._clear_from(piece.begin)
                part = piece
            elif isinstance(field, Field):
                fits = Field(part.dtype, part.ndim) == field and part.flags.c_contiguous
                if not fits:
                    raise TypeError(f"{kind.__name__}.{name}: got another array than it says.")
                words += _words(part)
            elif field in (int, float):
                words += struct.unpack("q", struct.pack("q" if field is int else "d", part))
            else:
                made = self._lay_out(field, part, words, own)
                own_parts = any(isinstance(x, _OWN) for x in made.values())
                part = _Pattern(made) if own_parts else field(**made)
            parts[name] = part
        return parts

    def _clear_from(self, begin: int) -> None:
        """Note that the block holds zeros from some byte to its end."""
        if self._zeros and begin <= self._zeros[-1][1]:
            begin, _ = self._zeros.pop()
        self._zeros.append((begin, WORD * self._n_words))

    def _place(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Piece:
        """Return where an array lies that is appended to the block."""
        begin = WORD * self._n_words
        self._n_words += -(-math.prod(shape) * dtype.itemsize // WORD)
        return _Piece(shape, dtype, begin)


class _Held(bytearray):
    """Bytes that keep other objects alive."""

    __slots__ = ("objects",)
    objects: tuple[Any, ...]


def _words_that_hold(n: int, objects: tuple[Any, ...]) -> IntArray:
    """Return n words, which keep some objects alive: those that own what the words point to."""
    held = _Held(WORD * n)
    held.objects = objects
    words: IntArray = np.frombuffer(held, dtype=np.int64)
    return words


class _Block:
    """Numbers that are lent: arrays that lie among them hold what `lend` returned.

    And not `numbers`, which NumPy would let them hold if it was their base's base: what is between
    is no array.
    """

    def __init__(self, numbers: FloatArray) -> None:
        self.numbers, self.address = numbers, _address(numbers)
        self.held: Callable[[], FloatArray | None] = lambda: None

    def lend(self) -> FloatArray:
        lent: FloatArray = np.frombuffer(self.numbers.data)
        self.held = weakref.ref(lent)
        return lent


class _Uncut:
    """A record whose arrays are made when they are first asked for, since few ever are."""

    def __init__(self, parts: Parts, block: FloatArray, given: tuple[Given, ...]) -> None:
        self._parts, self._block, self._given_to = parts, block, given

    def __getattr__(self, name: str) -> Any:
        try:
            part = self.__dict__["_parts"][name]
        except KeyError:
            raise AttributeError(name) from None
        if isinstance(part, _Piece):
            part = np.ndarray(part.shape, part.dtype, self._block, part.begin)
        elif isinstance(part, _Pattern):
            part = _Uncut(part.parts, self._block, self._given_to)
        elif isinstance(part, _Given):
            given = self._given_to[part.i]
            part = given.record if isinstance(given, Memory) else given
        elif isinstance(part, _Again):
            part = getattr(self, part.name)
        self.__dict__[name] = part
        return part


Parts = dict[str, Any]
"""What a record is made of, by name: arrays and numbers as they are, and the following."""


class _Pattern(NamedTuple):
    """A record in a record."""

    parts: Parts


class _Piece(NamedTuple):
    """An array of a copy's own."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    begin: int
    """At which byte of the block."""


class _Given(NamedTuple):
    """An array or a record that each copy is given."""

    i: int
    """Its position among these."""


class _Again(NamedTuple):
    """An array that has two names in a record."""

    name: str
    """The first one."""


_OWN = (_Pattern, _Piece, _Given, _Again)
"""Parts that are not the same in all copies."""


_NOTHING = np.empty(0), 0
"""Block and address of a record that has no arrays of its own."""


def _shared_if_empty(planned: Any, field: Field | type) -> Any:
    """Return what is planned for a field, an array if that has no numbers."""
    if not (isinstance(field, Field) and isinstance(planned, tuple)):
        return planned
    shape = planned.shape if isinstance(planned, Unset) else planned
    return planned if math.prod(shape) else np.empty(shape, field.dtype)


def hold(record: Any) -> Memory[Any]:
    """Return a record of contiguous arrays and numbers with its handle; nothing is copied."""
    return Blueprint[Any](type(record), list(record)).make()


def _n_words(kind: type) -> int:
    """Return how many words a record has."""
    n = 0
    for field in kinds_of(kind).values():
        if isinstance(field, Field):
            n += 1 + field.ndim
        else:
            n += 1 if field in (int, float) else _n_words(field)
    return n


def _words(array: npt.NDArray[Any]) -> list[int]:
    return [_address(array), *array.shape]


def _address(array: npt.NDArray[Any]) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, empty or strided; six times as slow
        address: int = array.__array_interface__["data"][0]
        return address
