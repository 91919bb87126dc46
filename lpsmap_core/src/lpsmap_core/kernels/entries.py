"""Addresses of the kernels of factor types, by which kernels of solvers call them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from lpsmap_core.kernels.records import KERNELS
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.by_address import type_of
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.native import entry_of
from lpsmap_jit.tiers import interprets

SIGNATURES: dict[str, Any] = {}
"""Argument types of the kernels that are called by address, by kind."""

if COMPILED:
    from lpsmap_jit.numba_names import types

    _ints = types.Array(types.int64, 1, "C")
    for _name, _records in KERNELS.items():
        SIGNATURES[_name] = (_ints, *map(type_of, _records))


@functools.cache
def address_of(function: Any, kind: str) -> int:
    """Return the address of a kernel of some kind; 0 if it is not compiled by numba."""
    if not hasattr(function, "overloads"):
        return 0
    signature, taken = SIGNATURES[kind], inspect.signature(function.py_func).parameters
    if len(taken) != len(signature):
        records = ", ".join(record.__name__ for record in KERNELS[kind])
        raise TypeError(
            f"{kind} {function.py_func.__qualname__}: takes {len(taken)} arguments; expected "
            f"{len(signature)}: the rows, then the records {records}."
        )
    return entry_of(function, signature)


class Entry:
    """A kernel that other kernels call by its address, which is known once it is compiled.

    Parameters
    ----------
    function
        The kernel. It has no address if it is not compiled by numba, or None.
    kind
        Its kind, such as ``"map_kernel"``.
    """

    def __init__(self, function: Any, kind: str) -> None:
        self.place: IntArray = np.zeros(1, dtype=np.int64)
        """The address, 0 until `ready`, for a record that refers to the array."""
        self._function, self._kind = function, kind
        self._has_address = hasattr(function, "overloads")
        self._ready = False

    def ready(self) -> bool:
        """Compile the kernel, unless kernels are interpreted; return whether it has an address."""
        if not self._ready and self._has_address and not interprets():
            self.place[0], self._ready = address_of(self._function, self._kind), True
        return self._ready
