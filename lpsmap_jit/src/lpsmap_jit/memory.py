"""Memory of records: allocated in one block, and passed to kernels by address.

A solve works on about sixty arrays. Allocating each of them, and passing each to a kernel, would
take a tenth of the time of a small solve. A `Blueprint` therefore defines their layout once; a copy
allocates one block, and a kernel receives the words of its record (`lpsmap_jit.by_address`).
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import struct
from collections.abc import Iterator
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import FloatArray, IntArray

Record = TypeVar("Record")

WORD = 8
"""Bytes of a word. Arrays are aligned to multiples of it."""


# -------------------------------------------------------------------- fields


class Field(NamedTuple):
    """The dtype of an array field, and its number of axes."""

    dtype: np.dtype[Any]
    ndim: int


@functools.cache
def kinds_of(record: type) -> dict[str, Field | type]:
    """Return the fields of a record by name, in order: arrays, numbers, and other records."""
    hints = get_type_hints(record, include_extras=True)
    return {name: _kind(hint) for name, hint in hints.items()}


@functools.cache
def n_words(kind: Field | type) -> int:
    """Return the number of words of a field: an array has an address and a shape."""
    if isinstance(kind, Field):
        return 1 + kind.ndim
    return 1 if kind in (int, float) else sum(map(n_words, kinds_of(kind).values()))


def _kind(hint: Any) -> Field | type:
    if isinstance(hint, type):
        return hint
    array, ndim = get_args(hint) if get_origin(hint) is Annotated else (hint, 1)
    number = get_args(array)[-1]  # NDArray is an alias with a name of its own since NumPy 2.5
    if get_origin(number) is np.dtype:
        (number,) = get_args(number)
    return Field(np.dtype(number), ndim)


# -------------------------------------------------------------------- memory


class Words(np.ndarray[Any, np.dtype[np.int64]]):
    """The words of a record, with the record for interpreted kernels."""

    record: Any


class Memory(Generic[Record]):
    """A record and its memory."""

    def __init__(self, record: Record, words: Words) -> None:
        self.record, self.words = record, words
        words.record = record
        # numba takes longer to recognise a subclass; interpreted kernels find the words as `base`
        self.handle: IntArray = words.view(np.ndarray)
        """The argument for kernels, which read the record with `record_at`, and the record that is
        its first field likewise. It holds the arrays of the record."""

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
        self._kind, self._n_numbers = kind, 0
        self._given: list[slice] = []
        words: list[int] = []
        own: list[int] = []
        self._parts = self._lay_out(kind, plan, words, own)
        self._words, self._own = np.array(words, np.int64), np.zeros(len(words), np.int64)
        self._own[own] = 1

    def make(self, *given: Memory[Any] | npt.NDArray[Any]) -> Memory[Record]:
        """Return a copy, with the given arrays and records in order."""
        block = np.zeros(self._n_numbers)  # untouched pages take no memory
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
                piece = _Piece(part, field.dtype, WORD * self._n_numbers)
                self._n_numbers += -(-math.prod(part) * field.dtype.itemsize // WORD)
                own.append(len(words))
                words += [piece.begin, *part]
                parts.append(piece)
            elif isinstance(part, list) and isinstance(field, type):
                parts.append(self._lay_out(field, part, words, own))
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


_GIVEN = object()
"""The part of an array or record that is passed to `make`."""


def _cut(kind: type, parts: list[Any], block: FloatArray, given: Iterator[Any]) -> Any:
    """Return a record whose own arrays are views of a block."""
    fields: list[Any] = []
    for field, part in zip(kinds_of(kind).values(), parts, strict=True):
        if isinstance(part, _Piece):
            fields.append(np.ndarray(part.shape, part.dtype, block, part.begin))
        elif isinstance(part, list) and isinstance(field, type):
            fields.append(_cut(field, part, block, given))
        else:
            fields.append(next(given) if part is _GIVEN else part)
    return kind(*fields)


def hold(record: Record) -> Memory[Record]:
    """Return the memory of a record of contiguous arrays and numbers, without copying."""
    numbers = _words_of(record)
    words = Words(len(numbers), np.int64)
    words[:] = numbers
    return Memory(record, words)


def _words_of(record: Any) -> list[int]:
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
            words += _words_of(value)
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
