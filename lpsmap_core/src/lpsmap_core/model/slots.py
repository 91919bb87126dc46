"""Single factors of a declaration: the positions of their slots, and views for their methods.

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
    "declared_variables",
    "name_of_factor",
    "placed_values",
    "row_values",
    "row_view",
    "slot_values",
    "slots_of",
]


def slot_values(factor: Factor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries of `values`, of shape ``factor.variables.shape``, at the slots, flat."""
    return values.reshape(-1) if factor.keep is None else values[factor.keep]


def slots_of(factor: Factor, i: int) -> slice:
    """Return the positions of the slots of factor `i` among the slots of its declaration."""
    return slice(int(factor.offsets[i]), int(factor.offsets[i + 1]))


def row_values(factor: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of factor `i`'s slots in its event shape (flat if a mask is used)."""
    return values.reshape(_row_shape(factor, i))


def placed_values(factor: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of factor `i`'s slots in its event shape, also if a mask is used.

    Then excluded entries are 0, and `lengths` do not cut the shape.
    """
    if not factor._masked or factor.keep is None:
        return row_values(factor, i, values)
    event = np.zeros(factor.event_shape, dtype=values.dtype)
    event[factor.keep.reshape(factor.n_factors, *factor.event_shape)[i]] = values
    return event


def row_view(factor: Factor, i: int) -> Any:
    """Return the view of factor `i` on which ``solve_map``, ``vertex`` and ``decode`` are called.

    It is a copy of the declaration with the event shape and parameters of this factor.
    """
    view = copy.copy(factor)
    view.event_shape = _row_shape(factor, i)
    for name, shape in factor._parameters.rows.items():
        value = getattr(factor, name)[i]
        setattr(view, name, value if shape else value.item())
    link, integers = factor._parameters.link, factor._parameters.integers
    if link is not None:
        values = slot_values(factor, getattr(factor, link))[slots_of(factor, i)]
        setattr(view, link, row_values(factor, i, values))
    if integers is not None and isinstance(arrays := getattr(factor, integers), tuple):
        setattr(view, integers, arrays[i])
    return view


def flipped_slots(factor: Factor) -> npt.NDArray[np.bool_] | None:
    """Return flags of the slots of a `factor` that its type negated, as ``Nand`` does, or None.

    The user sees structures without this negation.
    """
    return None if factor._flipped is None else slot_values(factor, factor._flipped)


def declared_variables(factor: Factor) -> Variables:
    """Return the variables that the user passed to a `factor`; see `flipped_slots`."""
    return factor.variables if factor._flipped is None else factor.variables ^ factor._flipped


def name_of_factor(factor: Factor, i: int) -> str:
    """Return the name of factor `i` in errors."""
    return factor._name_of(i)


def _row_shape(factor: Factor, i: int) -> tuple[int, ...]:
    """Return the shape of the slots of factor `i` in its view."""
    if factor._masked:
        return (int(factor.offsets[i + 1] - factor.offsets[i]),)
    shape = list(factor.event_shape)
    if factor.lengths is not None:
        for axis, length in zip(factor._cut_axes(), factor.lengths[i], strict=True):
            shape[axis] = int(length)
    return tuple(shape)
