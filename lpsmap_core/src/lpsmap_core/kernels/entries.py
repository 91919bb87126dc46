"""Calls by address: how compiled loops call kernels of factor types and of local solvers.

A whole solve runs inside one compiled loop, which depends neither on the factor types nor on the
arrays of their solvers. Each solver gives it the words of a `SolverRecord`, with addresses of
kernels and of the solver's own records. Interpreted kernels do not use this module; see
`lpsmap_core.local.solvers`.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, NamedTuple

from lpsmap_core.kernels.records import KERNELS
from lpsmap_jit import lazy_kernels
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.by_address import record_at, referred_record, type_of
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.native import entry_of

__all__ = ["SolverRecord", "address_of", "lazy_place", "reader_of", "signature_of", "solver_at"]


class SolverRecord(NamedTuple):
    """The record of a solver for compiled loops."""

    solve: int
    """Address of the kernel that solves the bucket."""
    jvp: int
    """Place of the kernel that multiplies with its Jacobians; see `lpsmap_jit.lazy_kernels`."""
    further: IntArray
    """Places of further kernels, in pairs."""
    call: int
    """Address of a `Callback`."""
    failed: IntArray
    """One number, which is not zero if the callback has raised."""
    status: IntArray
    """Status of each factor's local problem; empty if the solver always succeeds."""
    own: int
    """The addresses of the records that `reader_of` reads, 0 without."""
    sets: int


solver_at = record_at(SolverRecord)
"""Returns, in leaves, the record of a solver from its handle."""


def reader_of(record: type, field: str = "own") -> Any:
    """Return a function by which kernels read a solver's own record.

    Parameters
    ----------
    record
        The type that `LocalSolver.own_record` returns.
    field
        The field of `SolverRecord` with the address of the record.

    Returns
    -------
    callable
        Takes the first argument of a solver's kernels and returns the record.
    """
    return referred_record(SolverRecord, field, record)


SIGNATURES: dict[str, Any] = {}
"""Argument types of the kernels that are called by address, by kind."""

if COMPILED:
    from lpsmap_jit.numba_names import types

    _floats = types.Array(types.float64, 1, "C")
    _ints = types.Array(types.int64, 1, "C")
    for _name, _records in KERNELS.items():
        SIGNATURES[_name] = (_ints, *map(type_of, _records))
    SIGNATURES["solve"] = (_ints, _ints, *[_floats] * 4, types.int64)
    SIGNATURES["jvp"] = (_ints, _ints, *[_floats] * 4)


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


def lazy_place(function: Any, kind: str) -> int:
    """Return the place of a kernel that its first call compiles; see `address_of`."""
    if not hasattr(function, "overloads"):
        return 0
    return lazy_kernels.later(function, kind, signature_of)


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
        if kind not in KERNELS:
            raise TypeError(
                f"{kind} kernel {function.py_func.__qualname__}: takes {len(taken)} arguments; "
                f"expected {len(signature)}: the solver, then those of LocalSolver.{kind}."
            )
        records = ", ".join(record.__name__ for record in KERNELS[kind])
        raise TypeError(
            f"{kind} {function.py_func.__qualname__}: takes {len(taken)} arguments; expected "
            f"{len(signature)}: the rows, then the records {records}."
        )
    return signature
