"""Memory of records of arrays: made in one block, and handed to kernels by one address.

A solve works on some sixty arrays. To make each by itself, and to hand each to a kernel, takes
longer than a small solve does. So a `Blueprint` says once where they lie; a copy takes one block,
and a kernel gets the words that `by_address` would write.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import COMPILED
from lpsmap_core.kernels.records import Field, kinds_of

__all__ = ["Blueprint", "Memory", "hold"]

Record = TypeVar("Record")

WORD = 8
"""Bytes. Arrays begin at multiples of it."""


class Memory(Generic[Record]):
    """A record, and how kernels get it."""

    def __init__(
        self, pattern: Any, block: FloatArray, given: tuple[Given, ...], words: IntArray
    ) -> None:
        self._pattern, self._block, self._given, self._words = pattern, block, given, words

    def __reduce__(self) -> NoReturn:
        raise TypeError("Memory: knows where its arrays lie, which a copy of it would not.")

    @functools.cached_property
    def record(self) -> Record:
        """The record; its arrays are views, made when they are first asked for."""
        given = [g.record if isinstance(g, Memory) else g for g in reversed(self._given)]
        record: Record = _cut(self._pattern, self._block, given)
        return record

    @property
    def handle(self) -> Any:
        """What kernels are handed, which read the record by `record_at`.

        The memory is to be held meanwhile.
        """
        return self._words if COMPILED else self.record


Given = Memory[Any] | npt.NDArray[Any]


class Blueprint(Generic[Record]):
    """How copies of a record of arrays are made.

    Parameters
    ----------
    kind
        The record's type.
    plan
        What it holds, in order: arrays and numbers that all copies share; the shape, a tuple, of an
        array that is made for each; for a record in it a list of what that holds. None for an array
        or a record that each copy is given.
    """

    def __init__(self, kind: type[Record], plan: list[Any]) -> None:
        self._n_words = 0
        self._given: list[slice] = []
        words: list[int] = []
        own: list[int] = []
        self._pattern = self._lay_out(kind, plan, words, own)
        self._words, self._own = np.array(words, np.int64), np.zeros(len(words), np.int64)
        self._own[own] = 1

    def __reduce__(self) -> NoReturn:
        raise TypeError("Blueprint: knows where arrays lie, which a copy of it would not.")

    def make(self, *given: Given) -> Memory[Record]:
        """Return a copy, with what it is given, in order; the arrays of its own hold zeros."""
        block = np.zeros(self._n_words)
        words = _address(block) * self._own
        words += self._words
        for where, one in zip(self._given, given, strict=True):
            words[where] = one._words if isinstance(one, Memory) else _words(one)
        return Memory(self._pattern, block, given, words)

    def _lay_out(self, kind: type, plan: list[Any], words: list[int], own: list[int]) -> Any:
        """Append the words of a record, see `by_address`; return what `_cut` makes copies of.

        In `own` are the numbers of words that hold addresses in the block.
        """
        parts: list[Any] = []
        for (name, field), part in zip(kinds_of(kind).items(), plan, strict=True):
            if part is None:
                begin = len(words)
                words += [0] * (1 + field.ndim if isinstance(field, Field) else _n_words(field))
                self._given.append(slice(begin, len(words)))
                parts.append(part)
            elif isinstance(field, Field) and isinstance(part, tuple):
                own.append(len(words))
                words += [self._place(parts, part, field.dtype), *part]
            elif isinstance(field, Field):
                fits = Field(part.dtype, part.ndim) == field and part.flags.c_contiguous
                if not fits:
                    raise TypeError(f"{kind.__name__}.{name}: got another array than it says.")
                words += _words(part)
                parts.append(part)
            elif field in (int, float):
                words += struct.unpack("q", struct.pack("q" if field is int else "d", part))
                parts.append(part)
            else:
                parts.append(self._lay_out(field, part, words, own))
        made = any(part is None or isinstance(part, (_Pieces, _Pattern)) for part in parts)
        return _Pattern(kind, parts) if made else kind(*parts)

    def _place(self, parts: list[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return at which byte of the block an array begins that is appended to `parts`."""
        last, begin, n = parts[-1] if parts else None, WORD * self._n_words, 0
        if isinstance(last, _Pieces) and (last.shape[1:], last.dtype) == (shape, dtype):
            begin, n = last.begin, last.shape[0]
            del parts[-1]
        parts.append(_Pieces((n + 1, *shape), dtype, begin))
        size = math.prod(shape) * dtype.itemsize
        self._n_words = -(-(begin + (n + 1) * size) // WORD)
        return begin + n * size


class _Pattern(NamedTuple):
    """A record of which copies are made."""

    kind: Any
    parts: list[Any]


class _Pieces(NamedTuple):
    """Arrays of a copy's own that lie side by side: those along the first axis of one."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    begin: int
    """At which byte of the block."""


def hold(record: Any) -> Memory[Any]:
    """Return a record of contiguous arrays and numbers with its handle; nothing is copied."""
    return Blueprint[Any](type(record), list(record)).make()


def _cut(pattern: Any, block: FloatArray, given: list[Any]) -> Any:
    """Return a copy of a record."""
    if not isinstance(pattern, _Pattern):
        return given.pop() if pattern is None else pattern
    parts: list[Any] = []
    for part in pattern.parts:
        if isinstance(part, _Pieces):
            parts.extend(np.ndarray(part.shape, part.dtype, block, part.begin))
        else:
            parts.append(_cut(part, block, given))
    return pattern.kind._make(parts)


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
    address: int = array.__array_interface__["data"][0]
    return address
