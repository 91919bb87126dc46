"""Memory of records: allocated in one block, and passed to kernels by address.

A solve works on about sixty arrays. Allocating each of them, and passing each to a kernel, would
take longer than a small solve. A `Blueprint` therefore defines their layout once; a copy allocates
one block, and a kernel receives the words that `by_address` would write.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.fields import Field, kinds_of
from lpsmap_jit.tiers import interprets

__all__ = ["Blueprint", "Memory", "Nested", "Unset", "hold", "n_words"]

Record = TypeVar("Record")

WORD = 8
"""Bytes of a word. Arrays are aligned to multiples of it."""


class Nested(NamedTuple):
    """A record inside another one."""

    record: Any
    handle: Any
    """The argument for kernels, which holds the memory."""


class Memory(Generic[Record]):
    """A record and its memory."""

    def __init__(
        self,
        blueprint: Blueprint[Record],
        block: FloatArray,
        given: tuple[Given, ...],
        words: IntArray,
    ) -> None:
        self._blueprint, self._block = blueprint, block
        self._given, self._words = given, words

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Memory: cannot be copied or pickled, since it holds addresses. Create a new one."
        )

    @functools.cached_property
    def record(self) -> Record:
        """The record as an object with the same fields."""
        blueprint = self._blueprint
        return cast(Record, _cut(blueprint.kind, blueprint.parts, self._block, self._given))

    def nested(self, name: str) -> Nested:
        """Return the record of a field, which lies in this memory."""
        begin, whole = 0, cast(Any, self._blueprint.kind)
        for field, kind in kinds_of(whole).items():
            size = 1 + kind.ndim if isinstance(kind, Field) else n_words(kind)
            if field == name:
                record = getattr(self.record, name)
                return Nested(record, record if interprets() else self._words[begin : begin + size])
            begin += size
        raise AttributeError(name)

    @property
    def handle(self) -> Any:
        """The argument for kernels, which read the record with `record_at`; it holds the memory."""
        return self.record if interprets() else self._words


Given = Memory[Any] | npt.NDArray[Any]


class Unset(NamedTuple):
    """An entry of a plan: an array that is written before it is read."""

    shape: tuple[int, ...]


class Blueprint(Generic[Record]):
    """The layout of copies of a record.

    Parameters
    ----------
    kind
        The type of the record.
    plan
        Its content by field: an array or number that all copies share; the shape, a tuple, of an
        array of zeros for each copy, or `Unset` for an uninitialised array; the name of an earlier
        array that it aliases; a list for a nested record; or None for an array or record that is
        passed to `make`. Empty arrays are always shared.
    """

    def __init__(self, kind: type[Record], plan: list[Any]) -> None:
        self.kind, self._n_words = kind, 0
        self._zeros: list[tuple[int, int]] = []
        self._given: list[slice] = []
        words: list[int] = []
        own: list[int] = []
        self.parts = self._lay_out(kind, plan, words, own)
        self._words, self._own = np.array(words, np.int64), np.zeros(len(words), np.int64)
        self._own[own] = 1

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Blueprint: cannot be copied or pickled, since it holds addresses. Create a new one."
        )

    def make(self, *given: Given) -> Memory[Record]:
        """Return a copy, with the given arrays and records in order."""
        block, address = self._new_block()
        words = _owning_words(len(self._words), (self, block, given))
        np.multiply(self._own, address, out=words)
        words += self._words
        for where, one in zip(self._given, given, strict=True):
            words[where] = one._words if isinstance(one, Memory) else _words(one)
        return Memory(self, block, given, words)

    def _new_block(self) -> tuple[FloatArray, int]:
        """Return memory for the own arrays of a copy, and its address."""
        if self._zeros == [(0, WORD * self._n_words)]:
            zeros = np.zeros(self._n_words)  # untouched pages take no memory
            return zeros, _address(zeros)
        block = np.empty(self._n_words)
        address = _address(block)
        for begin, end in self._zeros:
            ctypes.memset(address + begin, 0, end - begin)
        return block, address

    def _lay_out(self, kind: type, plan: list[Any], words: list[int], own: list[int]) -> Parts:
        """Append the words of a record, see `by_address`; return the parts of copies.

        `own` collects the indices of words with addresses in the block.
        """
        parts: Parts = []
        begun: dict[str, int] = {}
        for (name, field), planned in zip(kinds_of(kind).items(), plan, strict=True):
            part = _shared_if_empty(planned, field)
            begun[name] = len(words)
            if isinstance(part, str) and isinstance(field, Field):
                again = slice(begun[part], begun[part] + 1 + field.ndim)
                own += [begun[name]] if begun[part] in own else []
                words += words[again]
                part = _Alias(list(begun).index(part))
            elif part is None:
                begin = len(words)
                words += [0] * (1 + field.ndim if isinstance(field, Field) else n_words(field))
                part = _Argument(len(self._given))
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
                    raise TypeError(
                        f"{kind.__name__}.{name}: got an array that does not match its annotation."
                    )
                words += _words(part)
            elif field in (int, float):
                words += struct.unpack("q", struct.pack("q" if field is int else "d", part))
            else:
                made = self._lay_out(field, part, words, own)
                own_parts = any(isinstance(x, _OWN) for x in made)
                part = _Pattern(field, made) if own_parts else field(*made)
            parts.append(part)
        return parts

    def _clear_from(self, begin: int) -> None:
        """Record that the block must be zero from a byte to its end."""
        if self._zeros and begin <= self._zeros[-1][1]:
            begin, _ = self._zeros.pop()
        self._zeros.append((begin, WORD * self._n_words))

    def _place(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Piece:
        """Append an array to the block, and return its piece."""
        begin = WORD * self._n_words
        self._n_words += -(-math.prod(shape) * dtype.itemsize // WORD)
        return _Piece(shape, dtype, begin)


class _OwningBytes(bytearray):
    """Bytes that hold references to other objects."""

    __slots__ = ("objects",)
    objects: tuple[Any, ...]


def _owning_words(n: int, objects: tuple[Any, ...]) -> IntArray:
    """Return n words that hold references to the owners of the memory they point to."""
    held = _OwningBytes(WORD * n)
    held.objects = objects
    words: IntArray = np.frombuffer(held, dtype=np.int64)
    return words


def _cut(kind: type, parts: Parts, block: FloatArray, given: tuple[Given, ...]) -> Any:
    """Return a record whose own arrays are views of a block."""
    fields: list[Any] = []
    for part in parts:
        if isinstance(part, _Piece):
            fields.append(np.ndarray(part.shape, part.dtype, block, part.begin))
        elif isinstance(part, _Pattern):
            fields.append(_cut(part.kind, part.parts, block, given))
        elif isinstance(part, _Argument):
            one = given[part.i]
            fields.append(one.record if isinstance(one, Memory) else one)
        else:
            fields.append(fields[part.i] if isinstance(part, _Alias) else part)
    return kind(*fields)


Parts = list[Any]
"""The parts of a record by field: shared arrays and numbers, and the following classes."""


class _Pattern(NamedTuple):
    """A nested record."""

    kind: type
    parts: Parts


class _Piece(NamedTuple):
    """A separate array for each copy."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    begin: int
    """The offset in the block in bytes."""


class _Argument(NamedTuple):
    """An array or record that is passed to `make`."""

    i: int
    """Its position among the arguments."""


class _Alias(NamedTuple):
    """An alias of an earlier array of the record."""

    i: int
    """The position of the earlier array in the record."""


_OWN = (_Pattern, _Piece, _Argument, _Alias)
"""Parts that differ between copies."""


def _shared_if_empty(planned: Any, field: Field | type) -> Any:
    """Return the plan of a field, replaced by a shared array if it is empty."""
    if not (isinstance(field, Field) and isinstance(planned, tuple)):
        return planned
    shape = planned.shape if isinstance(planned, Unset) else planned
    return planned if math.prod(shape) else np.empty(shape, field.dtype)


def hold(record: Any) -> Memory[Any]:
    """Return the memory of a record of contiguous arrays and numbers, without copying."""
    return Blueprint[Any](type(record), list(record)).make()


@functools.cache
def n_words(kind: type) -> int:
    """Return the number of words of a record."""
    n = 0
    for field in kinds_of(kind).values():
        if isinstance(field, Field):
            n += 1 + field.ndim
        else:
            n += 1 if field in (int, float) else n_words(field)
    return n


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
