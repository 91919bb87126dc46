"""Kernels that are compiled when compiled code first calls them.

Compiling everything that the solver may call takes twice as long as compiling what most first
solves call. Compiled code therefore gets a *place* for such a kernel: its address, or a negative
number until it is compiled, which it passes to Python to compile it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from lpsmap_jit.compile import COMPILED, leaf
from lpsmap_jit.interrupts import halt
from lpsmap_jit.native import (
    call_python,
    entry_of,
    integers,
    raise_kept,
)

__all__ = ["compile_all", "kernel_at", "later", "place_of", "raise_late"]

MOST_KERNELS = 65536
"""Maximum number of places in a process."""

_FIRST = 4
_words = (ctypes.c_int64 * (_FIRST + MOST_KERNELS))()
"""The callback of `call_python`, three words for an exception that it raises, and then the
addresses of kernels by number, zero until they are compiled."""

_kernels: list[tuple[Any, Any]] = [(None, None)]
"""The kernels and the types of their arguments, by number from 1."""

_numbers: dict[tuple[Any, Any], int] = {}


_lock = threading.Lock()


def later(function: Any, kind: str, signature_of: Callable[[Any, str], Any]) -> int:
    """Return the place of a kernel for a kind of arguments, or its address if it is compiled.

    Parameters
    ----------
    function
        The kernel.
    kind
        A name for the types of its arguments.
    signature_of
        A function of the kernel and the name that returns these types.
    """
    number = _numbers.get((function, kind))
    if number is None:
        number = _number(function, kind, signature_of(function, kind))
    return _words[_FIRST + number] or -number


def place_of(function: Any, *kinds: Any) -> int:
    """Return the place of a kernel for arguments of given numba types."""
    return -_number(function, kinds, kinds)


def _number(function: Any, key: Any, signature: Any) -> int:
    """Return the number of a kernel, assigning one if needed."""
    with _lock:
        if (function, key) not in _numbers:
            if len(_kernels) == MOST_KERNELS:
                raise RuntimeError(f"lpsmap: got more than {MOST_KERNELS} kernels; expected fewer.")
            _numbers[function, key] = len(_kernels)
            _kernels.append((function, signature))
        return _numbers[function, key]


def compile_all() -> None:
    """Compile all kernels with a place."""
    for number in range(1, len(_kernels)):
        _compile(number)


def _compile(number: int) -> None:
    _words[_FIRST + number] = entry_of(*_kernels[number])


def _compile_for_kernels(number: int, argument: int) -> None:
    """Compile a kernel; if that or a signal handler raises, all kernels return early."""
    try:
        _compile(number)
    except BaseException as error:
        _of_thread.error = error
        halt()


def raise_late() -> None:
    """Raise an exception of the compilation of a kernel, in the thread that called kernels."""
    error: BaseException | None = vars(_of_thread).pop("error", None)
    if error is not None:
        raise error
    raise_kept(_words, 1)


_of_thread = threading.local()
_words[0] = id(_compile_for_kernels)

if COMPILED:
    from lpsmap_jit.numba_names import add_symbol, intrinsic, ir, types

    add_symbol("lpsmap_late", ctypes.addressof(_words))

    @intrinsic  # type: ignore[untyped-decorator]
    def _words_address(typing_context: Any) -> Any:
        """Return the address of `_words`."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, module = ir.IntType(64), builder.module
            words = module.globals.get("lpsmap_late")
            if words is None:
                words = ir.GlobalVariable(module, word, "lpsmap_late")
                words.linkage = "external"
            return builder.ptrtoint(words, word)

        return types.int64(), generate


@leaf
def kernel_at(place: int) -> int:
    """Return the address of the kernel at a place; 0 if it could not be compiled."""
    if place >= 0:
        return place
    words, number = integers(_words_address(), _FIRST + MOST_KERNELS), -place
    if words[_FIRST + number] == 0:
        call_python(_words_address(), number, 0)
    address: int = words[_FIRST + number]
    return address
