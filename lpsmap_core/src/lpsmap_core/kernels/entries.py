"""Addresses of the kernels of factor types, and records that kernels of solvers read by address.

A solver passes its kernels one handle instead of a dozen arrays: the words of its record. Calls
from Python then take a quarter of the time.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from lpsmap_core.kernels.records import KERNELS
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.by_address import record_at, type_of
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.native import entry_of

__all__ = ["address_of", "reader_of", "signature_of", "write_address"]


def reader_of(record: type, attribute: str = "_own", precedes: bool = False) -> Any:
    """Return a function by which kernels read a solver's own record.

    Parameters
    ----------
    record
        The type that `LocalSolver.own_record` returns.
    attribute
        The attribute of the solver with the record, which interpreted kernels read.
    precedes
        Whether the record lies before the solver's own, as that of active sets does.

    Returns
    -------
    callable
        Takes the first argument of a solver's kernels and returns the record.
    """
    return record_at(record, attribute, precedes)


SIGNATURES: dict[str, Any] = {}
"""Argument types of the kernels that are called by address, by kind."""

if COMPILED:
    from lpsmap_jit.numba_names import types

    _ints = types.Array(types.int64, 1, "C")
    for _name, _records in KERNELS.items():
        SIGNATURES[_name] = (_ints, *map(type_of, _records))


@functools.cache
def address_of(function: Any, kind: str) -> int:
    """Return the address of a kernel of some kind; 0 if it is not compiled by numba.

    Raises
    ------
    TypeError
        If the kernel has the wrong number of parameters for its kind.
    """
    if not hasattr(function, "overloads"):
        return 0
    return entry_of(function, signature_of(function, kind))


def write_address(place: IntArray, function: Any, kind: str) -> None:
    """Write the address of a kernel in an array of one element, which is 0 until then.

    A record that refers to the array needs the kernel only when it is called, not at once.
    """
    if place[0] == 0:
        place[0] = address_of(function, kind)


def signature_of(function: Any, kind: str) -> Any:
    """Return the argument types of a kernel of some kind.

    Raises
    ------
    TypeError
        If the kernel has the wrong number of parameters for its kind.
    """
    signature = SIGNATURES[kind]
    taken = inspect.signature(function.py_func).parameters
    if len(taken) != len(signature):
        records = ", ".join(record.__name__ for record in KERNELS[kind])
        raise TypeError(
            f"{kind} {function.py_func.__qualname__}: takes {len(taken)} arguments; expected "
            f"{len(signature)}: the rows, then the records {records}."
        )
    return signature
