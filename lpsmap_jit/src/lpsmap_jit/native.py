"""Calls of kernels by address, and arrays at addresses."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_jit.by_address import array_at, forwarded
from lpsmap_jit.compile import COMPILED


def _view(dtype: type, address: int, size: int) -> npt.NDArray[Any]:
    """Return the array of a size at an address, which does not hold its memory."""
    memory: Any = (ctypes.c_char * (8 * int(size))).from_address(int(address))
    return np.ndarray(int(size), dtype, memory)


_floats, _integers = functools.partial(_view, np.float64), functools.partial(_view, np.int64)
_by_address: dict[int, Any] = {}
"""The kernels whose addresses were taken, for interpreted ones."""


def _invoke(address: int, arguments: tuple[Any, ...]) -> None:
    _by_address[int(address)](*arguments)


floats: Any
integers: Any
invoke: Any

if COMPILED:
    from lpsmap_jit.numba_names import NumbaError, cgutils, types

    def _call(typing_context: Any, address: Any, arguments: Any) -> Any:
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

    invoke = forwarded(_call, _invoke)

    def _check_contiguous(kind: Any) -> None:
        if isinstance(kind, types.BaseTuple):
            for field in kind.types:
                _check_contiguous(field)
        elif isinstance(kind, types.Array) and kind.layout != "C":
            raise NumbaError(
                f"got {kind} for a kernel that is called by its address; expected a contiguous "
                "array. Pass np.ascontiguousarray of it, in a kernel."
            )

    def _array_of(number: Any, interpreted: Any) -> Any:
        kind = types.Array(number, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return array_at(context, builder, kind, values[0], [values[1]])

        def array(typing_context: Any, address: Any, size: Any) -> Any:
            """Return the array of a size at an address."""
            return kind(types.int64, types.int64), generate

        return forwarded(array, interpreted)

    floats, integers = _array_of(types.float64, _floats), _array_of(types.int64, _integers)

else:
    floats, integers, invoke = _floats, _integers, _invoke


def entry_of(function: Any, signature: Any) -> int:
    """Return the address of a kernel for arguments of given types, compiling it if needed."""
    if signature not in function.overloads:
        function.compile(signature)
    compiled = function.overloads[signature]
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    _by_address[address] = function
    return address
