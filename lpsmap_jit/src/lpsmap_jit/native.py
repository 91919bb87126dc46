"""Calls by address, from kernels to other kernels and to Python.

Without compilation, only `Callback` and `borrowed` are used.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

from lpsmap_jit.arrays import IntArray
from lpsmap_jit.by_address import array_at, forwarded, in_leaf, words_of
from lpsmap_jit.compile import COMPILED, leaf

__all__ = [
    "Callback",
    "borrowed",
    "call_python",
    "entry_of",
    "floats",
    "integers",
    "invoke",
    "keep_error",
    "raise_kept",
    "write_words",
]


class Callback:
    """A Python method that compiled code can call by address with two integers.

    An exception of the method, or of a signal handler meanwhile, is stored until `raise_error`. The
    object of the method is referenced weakly.
    """

    def __init__(self, method: Callable[[int, int], None]) -> None:
        bound: Any = method
        # WeakMethod runs Python code when the object dies, where the error of a handler is lost
        owner, function = weakref.ref(bound.__self__), bound.__func__

        def call(what: int, argument: int) -> None:
            function(owner(), what, argument)

        self._call = call  # kept alive: compiled code has only its address
        self._words = (ctypes.c_int64 * 4)(id(call))
        self.address = ctypes.addressof(self._words)

    def raise_error(self) -> None:
        """Raise a stored exception of the method."""
        raise_kept(self._words, 1)


def raise_kept(words: ctypes.Array[ctypes.c_int64], start: int) -> None:
    """Raise the exception that compiled code stored in three words, if any."""
    if words[start]:
        kept = words[start : start + 3]
        words[start : start + 3] = [0, 0, 0]
        _raise(*kept)


_raise: Any = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", ctypes.pythonapi))
"""Called from Python, it raises the restored exception."""


floats: Any
integers: Any
invoke: Any
call_python: Any
keep_error: Any
borrowed: Any
write_words: Any

if COMPILED:
    from lpsmap_jit.numba_names import NumbaError, cgutils, intrinsic, ir, types

    @intrinsic  # type: ignore[untyped-decorator]
    def invoke(typing_context: Any, address: Any, arguments: Any) -> Any:
        """Call the compiled kernel at an address with a tuple of arguments, without a result.

        Its exceptions propagate, such as an index error with bounds checks. A call with a strided
        array does not compile: the kernel would read it as a contiguous one.
        """
        _check_contiguous(arguments)

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

    def _check_contiguous(kind: Any) -> None:
        if isinstance(kind, types.BaseTuple):
            for field in kind.types:
                _check_contiguous(field)
        elif isinstance(kind, types.Array) and kind.layout != "C":
            raise NumbaError(
                f"got {kind} for a kernel that is called by its address; expected a contiguous "
                "array. Pass np.ascontiguousarray of it, in a kernel."
            )

    def keep_error(builder: Any, api: Any, address: Any) -> None:
        """Store the current exception in three words at an address, unless they hold one."""
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
        """Call the `Callback` at an address; return 0 unless it raised.

        ctypes is not used: it would print, and lose, an exception that a signal handler raises
        before the first instruction of the method.
        """
        given = argument if getattr(argument, "is_address", False) else types.int64

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            api, word = context.get_python_api(builder), ir.IntType(64)
            lock = api.gil_ensure()
            function = builder.load(builder.inttoptr(values[0], api.pyobj.as_pointer()))
            what, argument = values[1:]
            if given != types.int64:
                argument = builder.ptrtoint(argument, word)
            numbers = [api.long_from_longlong(value) for value in (what, argument)]
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

        return types.int64(types.int64, types.int64, given), generate

    @leaf
    def write_words(record: Any, words: IntArray) -> int:
        """Write the words of a record, and return their address.

        The caller must hold both as long as the address is in use.
        """
        found = words_of(record)
        for i in range(len(found)):
            words[i] = found[i]
        address: int = words.ctypes.data
        return address

    @forwarded  # type: ignore[untyped-decorator]
    def borrowed(typing_context: Any, value: Any) -> Any:
        """Return an array, or a tuple of arrays, without reference counts.

        Otherwise passing a tuple of fifty arrays to a kernel costs a hundred atomic additions. For
        leaves, whose callers hold the arrays.
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

    @intrinsic  # type: ignore[untyped-decorator]
    def floats(typing_context: Any, address: Any, size: Any) -> Any:
        """Return the float64 array of a size at an address."""
        kind = types.Array(types.float64, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return array_at(context, builder, kind, values[0], [values[1]])

        return kind(types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def integers(typing_context: Any, address: Any, size: Any) -> Any:
        """Return the int64 array of a size at an address."""
        kind = types.Array(types.int64, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return array_at(context, builder, kind, values[0], [values[1]])

        return kind(types.int64, types.int64), generate

else:
    # never called: without compilation, Python objects are called
    invoke = call_python = keep_error = floats = integers = write_words = None

    def borrowed(value: Any) -> Any:
        """Return the value."""
        return value


def entry_of(function: Any, signature: Any) -> int:
    """Return the address of a kernel for arguments of given types, compiling it if needed."""
    if signature not in function.overloads:
        function.compile(signature)
    compiled = function.overloads[signature]
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address
