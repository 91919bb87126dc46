"""Addresses: how one compiled loop reaches kernels that it was not compiled with, and Python.

A whole solve runs inside one compiled loop, which knows neither the factor types nor the arrays of
their solvers. Each solver hands it a *record*, a row of 64-bit integers that holds addresses of
kernels and of arrays. The functions here write such records, and read them in compiled code.
Without compilation none of this is used: see `lpsmap_core.local.solvers`.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import IntArray
from lpsmap_core.kernels.by_address import handed_on, in_leaf, type_of
from lpsmap_core.kernels.compile import COMPILED, kernel, leaf
from lpsmap_core.kernels.records import KERNELS, Factors, Structures, fields_of

__all__ = [
    "CALL",
    "FAILED",
    "FIRST_FREE",
    "FORBIDS",
    "JVP",
    "RECORD_SIZE",
    "SOLVE",
    "STATUS",
    "Callback",
    "address_of",
    "arrays_at",
    "ask_python",
    "borrowed",
    "bytes_at",
    "call_python",
    "entry_of",
    "factors_at",
    "floats",
    "floats_at",
    "integers",
    "ints_at",
    "invoke",
    "keep_error",
    "pack",
    "signature_of",
    "raise_kept",
    "structures_at",
    "words_of",
]

RECORD_SIZE = 72
"""Room for the numbers of one solver."""

SOLVE, JVP, CALL, FAILED, STATUS, FORBIDS, FIRST_FREE = 0, 1, 2, 3, 4, 6, 7
"""Positions in every record: addresses of the two kernels that serve its bucket and of a Python
callback, whether that raised, the array of its factors' status (or none), whether anything is
forbidden, and what is its own.
"""


class Callback:
    """A method that compiled code can call by address with two integers.

    What it raises, or what the handler of a signal raises meanwhile, is kept until `raise_error`.
    The method's object is held weakly.
    """

    def __init__(self, method: Callable[[int, int], None]) -> None:
        reference = weakref.WeakMethod(method)

        def call(what: int, argument: int) -> None:
            function = reference()
            assert function is not None
            function(what, argument)

        self._call = call  # held: its address is all that compiled code has of it
        self._words = (ctypes.c_int64 * 4)(id(call))
        self.address = ctypes.addressof(self._words)

    def raise_error(self) -> None:
        """Raise what the method raised, if it did."""
        raise_kept(self._words, 1)


def raise_kept(words: ctypes.Array[ctypes.c_int64], start: int) -> None:
    """Raise the exception that compiled code kept in three words, if they hold one."""
    if words[start]:
        kept = words[start : start + 3]
        words[start : start + 3] = [0, 0, 0]
        _raise(*kept)


_raise: Any = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", ctypes.pythonapi))
"""Called from Python, it raises what it sets."""


def arrays_at(address: int, kinds: Sequence[type]) -> list[npt.NDArray[Any]]:
    """Return, in Python, the arrays whose addresses and lengths stand at an address."""
    numbers = _array(address, 2 * len(kinds), np.int64).reshape(-1, 2).tolist()
    return [_array(at, size, kind) for (at, size), kind in zip(numbers, kinds, strict=True)]


def _array(address: int, size: int, kind: type) -> npt.NDArray[Any]:
    if size == 0:
        return np.empty(0, dtype=kind)
    room: Any = ctypes.c_char * (size * np.dtype(kind).itemsize)
    array: npt.NDArray[Any] = np.frombuffer(room.from_address(address), dtype=np.dtype(kind))
    return array


pack: Any
floats: Any
integers: Any
floats_at: Any
ints_at: Any
bytes_at: Any
factors_at: Any
structures_at: Any
invoke: Any
call_python: Any
ask_python: Any
keep_error: Any
borrowed: Any

if COMPILED:
    from lpsmap_core.kernels.numba_names import cgutils, intrinsic, ir, types

    @intrinsic  # type: ignore[untyped-decorator]
    def invoke(typing_context: Any, address: Any, arguments: Any) -> Any:
        """Call the compiled kernel at an address with a tuple of arguments; it returns nothing.

        What it raises, such as an index out of bounds where these are checked, goes on to raise.
        """

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = list(signature.args[1])
            function = context.call_conv.get_function_type(types.none, kinds)
            pointer = builder.inttoptr(values[0], function.as_pointer())
            unpacked = cgutils.unpack_tuple(builder, values[1])
            call = context.call_conv
            status, _ = call.call_function(builder, pointer, types.none, kinds, unpacked)
            with cgutils.if_unlikely(builder, status.is_error):
                call.return_status_propagate(builder, status)
            return context.get_dummy_value()

        return types.none(types.int64, arguments), generate

    def keep_error(builder: Any, api: Any, address: Any) -> None:
        """Keep the exception that is set in three words at an address, if they hold none."""
        word, kind = ir.IntType(64), api.pyobj.as_pointer()
        places = [builder.inttoptr(builder.add(address, word(8 * i)), kind) for i in range(3)]
        free = cgutils.is_null(builder, builder.load(places[0]))
        with builder.if_else(free) as (first, later):
            with first:
                api.err_fetch(*places)
            with later:
                api.err_clear()

    @intrinsic  # type: ignore[untyped-decorator]
    def call_python(typing_context: Any, address: Any, what: Any, argument: Any) -> Any:
        """Call the `Callback` at an address; returns 0 unless it raised.

        Without the help of ctypes, which would report what handlers of signals raise before the
        method's first instruction, and forget it.
        """

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            api, word = context.get_python_api(builder), ir.IntType(64)
            lock = api.gil_ensure()
            function = builder.load(builder.inttoptr(values[0], api.pyobj.as_pointer()))
            numbers = [api.long_from_longlong(value) for value in values[1:]]
            result = api.call_function_objargs(function, numbers)
            failed = cgutils.is_null(builder, result)
            with builder.if_else(failed) as (raised, returned):
                with raised:
                    keep_error(builder, api, builder.add(values[0], word(8)))
                with returned:
                    api.decref(result)
            for number in numbers:
                api.decref(number)
            api.gil_release(lock)
            return builder.zext(failed, word)

        return types.int64(types.int64, types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def _addresses(typing_context: Any, arrays: Any) -> Any:
        """Return address and shape of each contiguous array of a tuple, one after the other."""
        kinds = list(arrays)
        if any(kind.layout != "C" for kind in kinds):
            return None
        numbers = types.UniTuple(types.int64, sum(1 + kind.ndim for kind in kinds))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            in_leaf("pack", context)
            found = []
            for kind, value in zip(kinds, cgutils.unpack_tuple(builder, values[0]), strict=True):
                array = context.make_array(kind)(context, builder, value)
                shape = cgutils.unpack_tuple(builder, array.shape)
                found += [builder.ptrtoint(array.data, ir.IntType(64)), *shape]
            return context.make_tuple(builder, signature.return_type, found)

        return numbers(arrays), generate

    @leaf
    def pack(record: IntArray, start: int, arrays: Any) -> None:
        """Write address and shape of each array of a tuple into a record, from a position on.

        The arrays must be contiguous, and outlive the record.
        """
        numbers = _addresses(arrays)
        for i in range(len(numbers)):
            record[start + i] = numbers[i]

    @kernel
    def ask_python(address: int, what: int, arrays: Any) -> int:
        """Call the `Callback` at an address with what `arrays_at` reads; returns 0 without error.

        The arrays have one axis each.
        """
        failed: int = _ask(address, what, arrays, np.empty(2 * len(arrays), dtype=np.int64))
        return failed

    @leaf
    def _ask(address: int, what: int, arrays: Any, words: IntArray) -> int:
        pack(words, 0, arrays)
        failed: int = call_python(address, what, np.int64(words.ctypes.data))
        return failed

    @handed_on  # type: ignore[untyped-decorator]
    def borrowed(typing_context: Any, value: Any) -> Any:
        """Return an array, or a tuple of such, that does not count references to its memory.

        A tuple of fifty arrays otherwise costs a hundred atomic additions whenever it is handed to
        a kernel. For leaves, whose callers hold the arrays.
        """

        def strip(context: Any, builder: Any, kind: Any, value: Any) -> Any:
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                array.parent = cgutils.get_null_value(array.parent.type)
                return array._getvalue()
            if isinstance(kind, types.BaseTuple):
                fields = [
                    strip(context, builder, field, builder.extract_value(value, i))
                    for i, field in enumerate(kind.types)
                ]
                return context.make_tuple(builder, kind, fields)
            return value

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            in_leaf("borrowed", context)
            return strip(context, builder, signature.args[0], values[0])

        return value(value), generate

    def _make_array(context: Any, builder: Any, kind: Any, address: Any, shape: Any) -> Any:
        array, word = context.make_array(kind)(context, builder), address.type
        width = word(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        sizes = [width]  # of an item, of a row of items, of a table of rows
        for extent in reversed(shape):
            sizes.append(builder.mul(sizes[-1], extent))
        array.data = builder.inttoptr(address, array.data.type)
        array.itemsize, array.nitems = width, functools.reduce(builder.mul, shape)
        array.shape = cgutils.pack_array(builder, shape)
        array.strides = cgutils.pack_array(builder, sizes[-2::-1])
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()

    def _load_array(context: Any, builder: Any, kind: Any, words: Any, at: Any) -> Any:
        """Return the array whose address and shape stand at a position of some words."""
        numbers = [
            builder.load(builder.gep(words, [builder.add(at, at.type(i))]))
            for i in range(1 + kind.ndim)
        ]
        return _make_array(context, builder, kind, numbers[0], numbers[1:])

    @intrinsic  # type: ignore[untyped-decorator]
    def floats(typing_context: Any, address: Any, size: Any) -> Any:
        """Return the float64 array of some size at an address."""
        kind = types.Array(types.float64, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return _make_array(context, builder, kind, values[0], [values[1]])

        return kind(types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def integers(typing_context: Any, address: Any, size: Any) -> Any:
        """Return the int64 array of some size at an address."""
        kind = types.Array(types.int64, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return _make_array(context, builder, kind, values[0], [values[1]])

        return kind(types.int64, types.int64), generate

    _floats = types.Array(types.float64, 1, "C")
    _ints = types.Array(types.int64, 1, "C")

    def _reader(kind: Any) -> Any:
        """Return what reads an array, or a record of arrays, at a position of a solver's record."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words, at = context.make_array(_ints)(context, builder, values[0]).data, values[1]
            if isinstance(kind, types.Array):
                return _load_array(context, builder, kind, words, at)
            arrays = []
            for field in kind.types:
                arrays.append(_load_array(context, builder, field, words, at))
                at = builder.add(at, at.type(1 + field.ndim))
            return context.make_tuple(builder, kind, arrays)

        def read(typing_context: Any, record: Any, i: Any) -> Any:
            return kind(_ints, types.int64), generate

        return intrinsic(read)

    floats_at, ints_at = _reader(_floats), _reader(_ints)
    bytes_at = _reader(types.Array(types.int8, 1, "C"))
    factors_at, structures_at = _reader(type_of(Factors)), _reader(type_of(Structures))

    SIGNATURES: dict[str, Any] = {
        **{name: (_ints, *map(type_of, records)) for name, records in KERNELS.items()},
        "solve": (_ints, _ints, *[_floats] * 4, types.int64),
        "jvp": (_ints, _ints, *[_floats] * 4),
    }
    """Argument types of the kernels that are called by address."""

else:
    # never called: what is not compiled calls Python objects
    SIGNATURES = {}
    pack = invoke = call_python = ask_python = keep_error = None
    floats = integers = floats_at = ints_at = bytes_at = factors_at = structures_at = None

    def borrowed(value: Any) -> Any:
        """Return the value."""
        return value


def words_of(record: type) -> int:
    """Return how many numbers say where the arrays of a record are."""
    return sum(1 + field.ndim for field in fields_of(record).values())


@functools.cache
def address_of(function: Any, kind: str) -> int:
    """Return the address of a kernel of some kind; 0 if it is none of numba's.

    Raises
    ------
    TypeError
        If a kernel of a factor type does not take what such kernels take.
    """
    if not hasattr(function, "overloads"):
        return 0
    return entry_of(function, signature_of(function, kind))


def signature_of(function: Any, kind: str) -> Any:
    """Return the types of the arguments of a kernel of some kind.

    Raises
    ------
    TypeError
        If a kernel of a factor type does not take what such kernels take.
    """
    signature = SIGNATURES[kind]
    taken = inspect.signature(function.py_func).parameters
    if len(taken) != len(signature):
        if kind not in KERNELS:
            raise TypeError(
                f"{kind} kernel {function.py_func.__qualname__}: takes {len(taken)} arguments; "
                f"expected {len(signature)}: the solver, then those of LocalSolver.{kind}."
            )
        records = ", ".join(record.__name__ for record in KERNELS[kind])
        raise TypeError(
            f"{kind} {function.py_func.__qualname__}: takes {len(taken)} arguments; expected "
            f"{len(signature)}: the rows, then the records {records}. Until version 1 of the "
            "plugin API kernels took single arrays: see 'From version 1 to 2' in "
            "docs/how-to/kernels.md."
        )
    return signature


def entry_of(function: Any, signature: Any) -> int:
    """Return the address of a kernel for arguments of some types, compiled if it is not yet."""
    if signature not in function.overloads:
        function.compile(signature)
    compiled = function.overloads[signature]
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address
