"""Registered parameters of a bucket's declarations, as arrays for kernels."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core.layout.ragged import concatenate_rows
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import slot_values
from lpsmap_jit.arrays import FloatArray, FloatTable, IntArray

__all__ = ["integers", "link_parameter", "row_parameters"]

_NO_FLOATS = np.empty(0)
_NO_INTEGERS = np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64)


def row_parameters(declarations: list[Factor], n: int) -> FloatTable:
    """Return the registered columns of the `n` factors of some declarations of a type."""
    rows = declarations[0]._parameters.rows
    parameters, begin = np.empty((n, sum(map(math.prod, rows.values())))), 0
    for name, shape in rows.items():
        arrays, end = [d._kernel_numbers(name) for d in declarations], begin + math.prod(shape)
        columns = parameters[:, begin] if shape == () else parameters[:, begin:end]
        if shape:
            arrays = [array.reshape(len(array), end - begin) for array in arrays]
        np.concatenate(arrays, out=columns, casting="unsafe")
        begin = end
    return parameters


def link_parameter(declarations: list[Factor]) -> FloatArray:
    """Return the registered numbers of all slots, or an empty array."""
    name = declarations[0]._parameters.link
    if name is None:
        return _NO_FLOATS
    values = [slot_values(d, d._kernel_numbers(name)) for d in declarations]
    return np.concatenate(values).astype(np.float64)


def integers(declarations: list[Factor]) -> tuple[IntArray, IntArray]:
    """Return all integers of some declarations, and the range of each factor's integers."""
    arrays, ranges, begin = [], [], 0
    for d in declarations:
        of_declaration, position = d._kernel_integers()
        if not len(of_declaration):
            continue
        ends = begin + np.cumsum([array.size for array in of_declaration], dtype=np.int64)
        ranges.append(np.stack([np.append(begin, ends[:-1]), ends], axis=1)[position])
        arrays += [array.reshape(-1) for array in of_declaration]
        begin = int(ends[-1])
    return (concatenate_rows(arrays, np.int64), np.concatenate(ranges)) if ranges else _NO_INTEGERS
