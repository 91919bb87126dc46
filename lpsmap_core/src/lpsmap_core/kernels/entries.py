"""How compiled loops call kernels of factor types and of local solvers: by address.

A whole solve runs inside one compiled loop, which knows neither the factor types nor the arrays of
their solvers. Each solver hands it the words of a `SolverRecord`, with addresses of kernels and of
records of the solver's own. Without compilation none of this is used: see
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

__all__ = ["SolverRecord", "address_of", "later", "reader_of", "signature_of", "solver_at"]


class SolverRecord(NamedTuple):
    """What compiled loops know of a solver, whatever it is."""

    solve: int
    """Addresses, or places as `lpsmap_jit.lazy_kernels` has them: of the kernels that serve the
    bucket."""
    jvp: int
    further: IntArray
    """Those of the kernels beside these, in pairs."""
    call: int
    """The address of a `Callback`."""
    failed: IntArray
    """Whether that has raised: one number, which is not zero then."""
    status: IntArray
    """How each factor's local problem has ended; empty if that is always well."""
    own: int
    """The addresses of the records that `reader_of` reads, 0 without."""
    sets: int


solver_at = record_at(SolverRecord)
"""Returns, in leaves, the record of a solver from its handle."""


def reader_of(record: type, field: str = "own") -> Any:
    """Return a function by which kernels read the record that a solver keeps.

    Parameters
    ----------
    record
        The type of what `LocalSolver.own_record` returns.
    field
        Which record of a `SolverRecord` it is.

    Returns
    -------
    function
        Takes what a solver's kernels get for the solver, and returns its record.
    """
    return referred_record(SolverRecord, field, record)


SIGNATURES: dict[str, Any] = {}
"""Argument types of the kernels that are called by address."""

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
    """Return the address of a kernel of some kind; 0 if it is none of numba's.

    Raises
    ------
    TypeError
        If a kernel of a factor type does not take what such kernels take.
    """
    if not hasattr(function, "overloads"):
        return 0
    return entry_of(function, signature_of(function, kind))


def later(function: Any, kind: str) -> int:
    """Return the place of a kernel of some kind; 0 if it is none of numba's. See `address_of`."""
    if not hasattr(function, "overloads"):
        return 0
    return lazy_kernels.later(function, kind, signature_of)


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
