"""Memory of records: allocated in one block, and passed to kernels by address.

A solve works on about sixty arrays. Allocating each of them, and passing each to a kernel, would
take a tenth of the time of a small solve. A `Blueprint` therefore defines their layout once; a copy
allocates one block, and a kernel receives the words of its record (`lpsmap_jit.by_address`).
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.fields import Field, kinds_of, n_words

Record = TypeVar("Record")

WORD = 8
"""Bytes of a word. Arrays are aligned to multiples of it."""


class Words(np.ndarray[Any, np.dtype[np.int64]]):
    """The words of records, with the records for interpreted kernels.

    Kernels get a plain array with these words as its ``base``: numba takes longer to recognise a
    subclass.
    """

    records: tuple[Any, ...]

    @classmethod
    def of(cls, numbers: list[int]) -> Words:
        """Return words from their values."""
        words = cls(len(numbers), np.int64)
        words[:] = numbers
        return words

    def handle(self, *records: Any, begin: int = 0) -> IntArray:
        """Return the argument by which kernels read the record whose words begin at a place.

        It is the last of `records`; the one before it, if any, ends at that place.
        """
        words: Any = self[begin:]
        words.records = records
        return words.view(np.ndarray)  # type: ignore[no-any-return]


class Memory(Generic[Record]):
    """A record and its memory."""

    def __init__(self, record: Record, words: Words) -> None:
        self.record, self.words = record, words
        self.handle = words.handle(record)
        """The argument for kernels, which read the record with `record_at`; it is valid as long as
        this object exists."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Memory: cannot be copied or pickled, since it holds addresses. Create a new one."
        )


class Blueprint(Generic[Record]):
    """The layout of copies of a record.

    Parameters
    ----------
    kind
        The type of the record.
    plan
        Its content by field: the shape, a tuple, of an array of zeros; a list for a nested record;
        a number; or None for an array or `Memory` that is passed to `make`.
    """

    def __init__(self, kind: type[Record], plan: list[Any]) -> None:
        self._kind, self._n_words = kind, 0
        self._given: list[slice] = []
        words: list[int] = []
        own: list[int] = []
        self._parts = self._lay_out(kind, plan, words, own)
        self._words, self._own = np.array(words, np.int64), np.zeros(len(words), np.int64)
        self._own[own] = 1

    def make(self, *given: Memory[Any] | npt.NDArray[Any]) -> Memory[Record]:
        """Return a copy, with the given arrays and records in order."""
        block = np.zeros(self._n_words)  # untouched pages take no memory
        words = Words(len(self._words), np.int64)
        np.multiply(self._own, _address(block), out=words)
        words += self._words
        records = []
        for where, one in zip(self._given, given, strict=True):
            words[where] = one.words if isinstance(one, Memory) else _words(one)
            records.append(one.record if isinstance(one, Memory) else one)
        return Memory(cast(Record, _cut(self._kind, self._parts, block, iter(records))), words)

    def _lay_out(self, kind: type, plan: list[Any], words: list[int], own: list[int]) -> list[Any]:
        """Append the words of a record, see `lpsmap_jit.by_address`; return the parts of copies.

        `own` collects the indices of words with addresses in the block.
        """
        parts: list[Any] = []
        for field, part in zip(kinds_of(kind).values(), plan, strict=True):
            if part is None:
                begin = len(words)
                words += [0] * n_words(field)
                self._given.append(slice(begin, len(words)))
                parts.append(_GIVEN)
            elif isinstance(field, Field) and isinstance(part, tuple):
                piece = _Piece(part, field.dtype, WORD * self._n_words)
                self._n_words += -(-math.prod(part) * field.dtype.itemsize // WORD)
                own.append(len(words))
                words += [piece.begin, *part]
                parts.append(piece)
            elif isinstance(part, list) and isinstance(field, type):
                parts.append(_Pattern(field, self._lay_out(field, part, words, own)))
            else:
                words.append(_word(part, field))
                parts.append(part)
        return parts


class _Piece(NamedTuple):
    """A separate array for each copy."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    begin: int
    """The offset in the block in bytes."""


class _Pattern(NamedTuple):
    """A nested record."""

    kind: type
    parts: list[Any]


_GIVEN = object()
"""The part of an array or record that is passed to `make`."""


def _cut(kind: type, parts: list[Any], block: FloatArray, given: Iterator[Any]) -> Any:
    """Return a record whose own arrays are views of a block."""
    fields: list[Any] = []
    for part in parts:
        if isinstance(part, _Piece):
            fields.append(np.ndarray(part.shape, part.dtype, block, part.begin))
        elif isinstance(part, _Pattern):
            fields.append(_cut(part.kind, part.parts, block, given))
        else:
            fields.append(next(given) if part is _GIVEN else part)
    return kind(*fields)


def hold(record: Record) -> Memory[Record]:
    """Return the memory of a record of contiguous arrays and numbers, without copying."""
    return Memory(record, Words.of(words_of(record)))


def words_of(record: Any) -> list[int]:
    """Return the words of a record of contiguous arrays and numbers; see `by_address`."""
    kind: Any = type(record)
    words: list[int] = []
    for (name, field), value in zip(kinds_of(kind).items(), record, strict=True):
        if isinstance(field, Field):
            fits = value.dtype == field.dtype and value.ndim == field.ndim
            if not (fits and value.flags.c_contiguous):
                raise TypeError(
                    f"{kind.__name__}.{name}: got an array that does not match its annotation."
                )
            words += _words(value)
        elif field in (int, float):
            words.append(_word(value, field))
        else:
            words += words_of(value)
    return words


def _word(number: Any, kind: Any) -> int:
    """Return the bits of a number."""
    if kind is int:
        return operator.index(number)
    (word,) = struct.unpack("q", struct.pack("d", number))
    return int(word)


def _words(array: npt.NDArray[Any]) -> list[int]:
    return [_address(array), *array.shape]


def _address(array: npt.NDArray[Any]) -> int:
    if not array.size:
        return 0  # an empty array is never read
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only or strided; this path is six times as slow
        address: int = array.__array_interface__["data"][0]
        return address
