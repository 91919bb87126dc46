"""Records passed to kernels by address: the only encoding of records.

A record is a named tuple of arrays, numbers and records. Its annotations define the layout: address
and shape of each array, and each number, are words of eight bytes. Python writes these words with
`lpsmap_jit.memory`, compiled code with `by_address`; fields are read by name.

A named tuple of fifty arrays would be three hundred and fifty arguments in machine code, at every
call in a chain of a hundred kernels, and would dominate compilation time. `by_address` writes the
addresses and shapes to memory once, and fields are read on use.

An address holds no reference: compiled code frees an array after the last use of its name, even if
its address is still in use. Therefore only a leaf may take addresses. It allocates no arrays and
counts no references, so all its arrays are held by its callers until it returns, and it must not
return an address. Compilation fails otherwise. Records that Python holds, for which it passes a
handle, may be read by all kernels.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lpsmap_jit.compile import COMPILED, TAKES_ADDRESS
from lpsmap_jit.memory import Field, kinds_of

array_at: Any
read_field: Any
forwarded: Any
in_leaf: Any
type_of: Any


def _same(value: Any) -> Any:
    return value


def _reader(record: type) -> Callable[[Any], Any]:
    """Return the interpreted function of `record_at`; see `lpsmap_jit.memory.Words`."""

    def read(handle: Any) -> Any:
        found = handle.base.record
        while not isinstance(found, record):
            found = found[0]
        return found

    return read


if COMPILED:
    from lpsmap_jit.numba_names import (
        Intrinsic,
        NumbaError,
        cgutils,
        extending,
        from_dtype,
        imputils,
        ir,
        templates,
        types,
    )

    class _HandedOn(Intrinsic):  # type: ignore[misc]
        """An intrinsic in compiled code, and a Python function when interpreted."""

        def __call__(self, *args: Any) -> Any:
            return self.interpreted(*args)

    def forwarded(definition: Any, interpreted: Callable[..., Any] = _same) -> Any:
        """Return an intrinsic, by default the identity when interpreted."""
        found = extending.intrinsic(definition)
        found.__class__, found.interpreted = _HandedOn, interpreted
        return found

    def in_leaf(name: str, context: Any) -> None:
        """Raise unless the function under compilation counts no references."""
        if context.enable_nrt:
            raise NumbaError(f"{name} {TAKES_ADDRESS}")

    _WORD = ir.IntType(64)
    _NUMBERS = (types.float64, types.int64)
    _WORDS = types.Array(types.int64, 1, "C")

    class ByAddress(types.Type):  # type: ignore[misc]
        """A record in memory: a named tuple of contiguous arrays, numbers and records."""

        is_address = True

        def __init__(self, fields: Any) -> None:
            self.fields = fields
            # the full type has thousands of characters, which symbols of callers would repeat
            digest = hashlib.sha256(str(fields).encode()).hexdigest()[:16]
            super().__init__(f"ByAddress({fields.instance_class.__name__}, {digest})")

        def place_of(self, name: str) -> tuple[int, Any]:
            """Return the offset of a field in words, and its type."""
            i = self.fields.fields.index(name)
            return sum(map(_n_words, self.fields.types[:i])), self.fields.types[i]

    @extending.register_model(ByAddress)
    class _ByAddressModel(extending.models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, _WORD.as_pointer())

    @templates.infer_getattr
    class _Fields(templates.AttributeTemplate):  # type: ignore[misc]
        key = ByAddress

        def generic_resolve(self, kind: Any, name: str) -> Any:
            if name not in kind.fields.fields:
                return None
            _, found = kind.place_of(name)
            return ByAddress(found) if isinstance(found, types.BaseTuple) else found

    @imputils.lower_getattr_generic(ByAddress)  # type: ignore[untyped-decorator]
    def read_field(context: Any, builder: Any, kind: Any, address: Any, name: str) -> Any:
        """Return a field of the record at an address; for a nested record, its address."""
        place, found = kind.place_of(name)
        here = builder.gep(address, [_WORD(place)])
        if isinstance(found, types.BaseTuple):
            return here
        return _load(context, builder, found, here)

    def _load(context: Any, builder: Any, kind: Any, address: Any) -> Any:
        """Return the value of a type whose words are at an address."""
        if isinstance(kind, types.BaseTuple):
            fields = []
            for field in kind.types:
                fields.append(_load(context, builder, field, address))
                address = builder.gep(address, [_WORD(_n_words(field))])
            return context.make_tuple(builder, kind, fields)
        if kind in _NUMBERS:
            return builder.bitcast(_read(builder, address, 0), context.get_value_type(kind))
        words = [_read(builder, address, i) for i in range(1 + kind.ndim)]
        return array_at(context, builder, kind, words[0], words[1:])

    def array_at(context: Any, builder: Any, kind: Any, address: Any, shape: Sequence[Any]) -> Any:
        """Return the contiguous array of a type and shape at an address."""
        array = context.make_array(kind)(context, builder)
        width = _WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        sizes = [width]  # of an item, a row of items, and a table of rows
        for extent in reversed(shape):
            sizes.append(builder.mul(sizes[-1], extent))
        array.data = builder.inttoptr(address, array.data.type)
        array.itemsize, array.nitems = width, functools.reduce(builder.mul, shape)
        array.shape = cgutils.pack_array(builder, shape)
        array.strides = cgutils.pack_array(builder, sizes[-2::-1])
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()

    def _read(builder: Any, address: Any, i: int) -> Any:
        word = builder.load(builder.gep(address, [_WORD(i)]))
        # the words are constant, so loops that write elsewhere need not read them again
        word.set_metadata("invariant.load", builder.module.add_metadata([]))
        return word

    def _n_words(kind: Any) -> int:
        if isinstance(kind, types.BaseTuple):
            return sum(map(_n_words, kind.types))
        return 1 if kind in _NUMBERS else 1 + int(kind.ndim)

    def _words(context: Any, builder: Any, kind: Any, value: Any) -> Iterator[Any]:
        """Yield the address and shape of every array of a tuple, and its numbers."""
        if isinstance(kind, types.BaseTuple):
            for i, field in enumerate(kind.types):
                yield from _words(context, builder, field, builder.extract_value(value, i))
        elif kind in _NUMBERS:
            yield builder.bitcast(value, _WORD)
        else:
            array = context.make_array(kind)(context, builder, value)
            yield builder.ptrtoint(array.data, _WORD)
            yield from cgutils.unpack_tuple(builder, array.shape, kind.ndim)

    def _is_plain(kind: Any) -> bool:
        if isinstance(kind, types.BaseTuple):
            return all(map(_is_plain, kind.types))
        return kind in _NUMBERS or (isinstance(kind, types.Array) and kind.layout == "C")

    @forwarded  # type: ignore[untyped-decorator]
    def by_address(typing_context: Any, value: Any) -> Any:
        """Return the address of a record, valid until the leaf returns."""
        named = isinstance(value, (types.NamedTuple, types.NamedUniTuple))
        if not (named and _is_plain(value)):
            return None

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            in_leaf("by_address", context)
            words = list(_words(context, builder, signature.args[0], values[0]))
            memory = cgutils.alloca_once(builder, _WORD, size=len(words))
            for i, word in enumerate(words):
                builder.store(word, builder.gep(memory, [_WORD(i)]))
            # The optimiser may assume that the memory behind it is constant.
            kind = ir.FunctionType(memory.type, [memory.type])
            return builder.asm(kind, "", "=r,0,~{memory}", [memory], side_effect=True)

        return ByAddress(value)(value), generate

    @forwarded  # type: ignore[untyped-decorator]
    def by_value(typing_context: Any, record: Any) -> Any:
        """Return the record at an address as a named tuple, for kernels that expect one."""
        if not isinstance(record, ByAddress):
            return None

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return _load(context, builder, record.fields, values[0])

        return record.fields(record), generate

    def type_of(record: type) -> Any:
        """Return the numba type of a record."""
        kinds = [
            types.Array(from_dtype(kind.dtype), kind.ndim, "C")
            if isinstance(kind, Field)
            else _NUMBER_OF.get(kind) or type_of(kind)
            for kind in kinds_of(record).values()
        ]
        return types.BaseTuple.from_types(kinds, record)

    _NUMBER_OF = {float: types.float64, int: types.int64}

    def record_at(record: type) -> Any:
        """Return a function by which kernels read a record, given its handle.

        Parameters
        ----------
        record
            The type of the record, a named tuple. Kernels also find it where it is the first field
            of the record that the handle was made for.

        Returns
        -------
        callable
            Takes a handle, such as the first argument of a solver's kernels, and returns the
            record.
        """
        found = ByAddress(type_of(record))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return context.make_array(_WORDS)(context, builder, values[0]).data

        def read(typing_context: Any, handle: Any) -> Any:
            return found(_WORDS), generate

        return forwarded(read, _reader(record))

else:
    # never called: without compilation there are no types
    array_at = forwarded = in_leaf = read_field = type_of = None
    by_address = by_value = _same

    def record_at(record: type) -> Any:
        """Return a function that returns a record, given its handle."""
        return _reader(record)
