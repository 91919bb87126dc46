"""A declaration's factors one by one: where their slots lie, and what the type's methods see.

The slots of a declaration are the entries of its variables that take part, flat, factor by factor.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables

__all__ = [
    "flipped_slots",
    "given_variables",
    "name_of_factor",
    "placed_values",
    "row_values",
    "row_view",
    "slot_values",
    "slots_of",
]


def slot_values(factor: Factor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return those of `values`, of ``factor.variables.shape``, that are of its slots, flat."""
    return values.reshape(-1) if factor.keep is None else values[factor.keep]


def slots_of(factor: Factor, i: int) -> slice:
    """Return where the slots of factor `i` lie among those of its declaration."""
    return slice(int(factor.offsets[i]), int(factor.offsets[i + 1]))


def row_values(factor: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of factor `i`'s slots in its event shape (flat if a mask is used)."""
    return values.reshape(_row_shape(factor, i))


def placed_values(factor: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of slots as `row_values` does, but with a mask in the whole event shape.

    For factor `i` of a declaration `factor`, with 0 where the mask leaves entries out.
    """
    if not factor._masked or factor.keep is None:
        return row_values(factor, i, values)
    event = np.zeros(factor.event_shape, dtype=values.dtype)
    event[factor.keep.reshape(factor.n_factors, *factor.event_shape)[i]] = values
    return event


def row_view(factor: Factor, i: int) -> Any:
    """Return the view of factor `i` on which ``solve_map``, ``vertex`` and ``decode`` are called.

    A copy of the declaration, in which the event shape and what was registered are this factor's.
    """
    view = copy.copy(factor)
    view.event_shape = _row_shape(factor, i)
    for name, shape in factor._parameters.rows.items():
        own = getattr(factor, name)[i]
        setattr(view, name, own if shape else own.item())
    link, integers = factor._parameters.link, factor._parameters.integers
    if link is not None:
        own = slot_values(factor, getattr(factor, link))[slots_of(factor, i)]
        setattr(view, link, row_values(factor, i, own))
    if integers is not None and isinstance(arrays := getattr(factor, integers), tuple):
        setattr(view, integers, arrays[i])
    return view


def flipped_slots(factor: Factor) -> npt.NDArray[np.bool_] | None:
    """Return which slots of a `factor` its type has negated, as ``Nand`` makes an ``Or``, or None.

    Its structures are shown in the sense of the variables that it was given.
    """
    return None if factor._flipped is None else slot_values(factor, factor._flipped)


def given_variables(factor: Factor) -> Variables:
    """Return the variables of a `factor` in the sense of its declaration; see `flipped_slots`."""
    return factor.variables if factor._flipped is None else factor.variables ^ factor._flipped


def name_of_factor(factor: Factor, i: int) -> str:
    """Return what an error calls factor `i`."""
    return factor._name_of(i)


def _row_shape(factor: Factor, i: int) -> tuple[int, ...]:
    """Return the shape in which factor `i` sees its slots."""
    if factor._masked:
        return (int(factor.offsets[i + 1] - factor.offsets[i]),)
    shape = list(factor.event_shape)
    if factor.lengths is not None:
        for axis, length in zip(factor._cut_axes(), factor.lengths[i], strict=True):
            shape[axis] = int(length)
    return tuple(shape)
