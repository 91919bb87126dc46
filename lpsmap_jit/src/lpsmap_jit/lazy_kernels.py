"""Kernels that are compiled when compiled code first calls them, which a first solve seldom does.

To compile all that a loop may ever call takes twice as long as what most first solves call. So
compiled code gets a *place* for such a kernel: its address, or a negative number until it is
compiled, for which it asks Python.
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

MOST = 65536
"""Places for kernels of the whole process, of which each took a second to compile."""

_FIRST = 4
_words = (ctypes.c_int64 * (_FIRST + MOST))()
"""What `call_python` calls, and three words for what it raises before it can keep that; then the
kernels' addresses, by number, zero until they are compiled."""

_kernels: list[tuple[Any, Any]] = [(None, None)]
"""By number, from 1 on: the kernels, and the types of their arguments."""

_numbers: dict[tuple[Any, Any], int] = {}


_lock = threading.Lock()


def later(function: Any, kind: str, signature_of: Callable[[Any, str], Any]) -> int:
    """Return the place of a kernel of some kind, or its address if it is compiled.

    Parameters
    ----------
    function
        The kernel.
    kind
        A name for the types of its arguments.
    signature_of
        Returns these types, for the kernel and the name.
    """
    number = _numbers.get((function, kind))
    if number is None:
        number = _number(function, kind, signature_of(function, kind))
    return _words[_FIRST + number] or -number


def place_of(function: Any, *kinds: Any) -> int:
    """Return the place of a kernel whose arguments have some types of numba's."""
    return -_number(function, kinds, kinds)


def _number(function: Any, key: Any, signature: Any) -> int:
    """Return the number of a kernel, a new one if it has none."""
    with _lock:
        if (function, key) not in _numbers:
            if len(_kernels) == MOST:
                raise RuntimeError(f"lpsmap: more than {MOST} kernels in one process.")
            _numbers[function, key] = len(_kernels)
            _kernels.append((function, signature))
        return _numbers[function, key]


def compile_all() -> None:
    """Compile all kernels that have a place."""
    for number in range(1, len(_kernels)):
        _compile(number)


def _compile(number: int) -> None:
    _words[_FIRST + number] = entry_of(*_kernels[number])


def _compile_for_kernels(number: int, argument: int) -> None:
    """Compile a kernel; if that raises, or the handler of a signal does, all kernels come out."""
    try:
        _compile(number)
    except BaseException as error:
        _of_thread.error = error
        halt()


def raise_late() -> None:
    """Raise what was raised while a kernel was compiled; for the thread that called kernels."""
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
    def _late(typing_context: Any) -> Any:
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
    words, number = integers(_late(), _FIRST + MOST), -place
    if words[_FIRST + number] == 0:
        call_python(_late(), number, 0)
    address: int = words[_FIRST + number]
    return address
