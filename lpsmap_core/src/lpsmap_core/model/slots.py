"""Single factors of a declaration: the positions of their slots, views for methods, and names.

The slots of a declaration are the entries of its variables that take part, flat, factor by factor.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from string import Formatter
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.model.parameters import Parameters
from lpsmap_core.model.variables import Variables

LABEL = "_label"
"""The attribute of a declaration that holds its name."""


def slot_values(declaration: Factor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries of `values`, shaped as ``declaration.variables``, at the slots, flat."""
    return values.reshape(-1) if declaration.keep is None else values[declaration.keep]


def placed_slots(declaration: Factor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of the slots of `declaration` in the shape of its variables; else zeros."""
    if declaration.keep is None:
        return values.reshape(declaration.variables.shape)
    placed = np.zeros(declaration.variables.shape, dtype=values.dtype)
    placed[declaration.keep] = values
    return placed


def slots_of(declaration: Factor, i: int) -> slice:
    """Return the positions of the slots of factor `i` among the slots of its `declaration`."""
    return slice(int(declaration.offsets[i]), int(declaration.offsets[i + 1]))


def row_values(declaration: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of factor `i` of `declaration` in its event shape; flat with a mask."""
    return values.reshape(_row_shape(declaration, i))


def placed_values(declaration: Factor, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values` of factor `i` of `declaration` in its event shape, also if a mask is used.

    Then excluded entries are 0, and `lengths` do not cut the shape.
    """
    if not declaration._masked or declaration.keep is None:
        return row_values(declaration, i, values)
    event = np.zeros(declaration.event_shape, dtype=values.dtype)
    event[declaration.keep.reshape(declaration.n_factors, *declaration.event_shape)[i]] = values
    return event


def row_view(declaration: Factor, i: int) -> Any:
    """Return the view of factor `i` on which ``solve_map``, ``vertex`` and ``decode`` are called.

    It is a copy of the declaration with the event shape and parameters of this factor.
    """
    view = copy.copy(declaration)
    view.event_shape = _row_shape(declaration, i)
    for name, shape in declaration._parameters.rows.items():
        value = getattr(declaration, name)[i]
        setattr(view, name, value if shape else value.item())
    link, integers = declaration._parameters.link, declaration._parameters.integers
    if link is not None:
        values = slot_values(declaration, getattr(declaration, link))[slots_of(declaration, i)]
        setattr(view, link, row_values(declaration, i, values))
    if integers is not None and isinstance(arrays := getattr(declaration, integers), tuple):
        setattr(view, integers, arrays[i])
    return view


def parameters_of(factor: Factor) -> Parameters:
    """Return the parameters of a `factor`, which is a declaration or the view of one factor."""
    return factor._parameters


def flipped_slots(declaration: Factor) -> npt.NDArray[np.bool_] | None:
    """Return flags of the slots of `declaration` that its type negated, as ``Nand`` does, or None.

    The user sees structures without this negation.
    """
    return None if declaration._flipped is None else slot_values(declaration, declaration._flipped)


def declared_variables(declaration: Factor) -> Variables:
    """Return the variables that the user passed to `declaration`; see `flipped_slots`."""
    u, flipped = declaration.variables, declaration._flipped
    return u if flipped is None else u ^ flipped


def name_of_factor(declaration: Factor, i: int) -> str:
    """Return the name of factor `i` of `declaration` in errors."""
    return declaration._name_of(i)


def _row_shape(declaration: Factor, i: int) -> tuple[int, ...]:
    """Return the shape of the slots of factor `i` in its view."""
    if declaration._masked:
        return (int(declaration.offsets[i + 1] - declaration.offsets[i]),)
    shape = list(declaration.event_shape)
    if declaration.lengths is not None:
        for axis, length in zip(declaration._cut_axes(), declaration.lengths[i], strict=True):
            shape[axis] = int(length)
    return tuple(shape)


# -------------------------------------------------------------------- names in messages


def set_label(factor: Factor, name: Any) -> None:
    """Validate and store the `name` of the declaration `factor`.

    `FactorGraph.add` describes names, and the errors that this function raises.
    """
    if isinstance(name, str):
        n_axes = len(factor.batch_shape)
        if not _has_fields(name, n_axes):
            fields = " ".join(["{}"] * n_axes) or "none"
            raise ValueError(
                f"add: name is {name!r}; expected no fields, or {n_axes}, {fields}: one for each "
                f"batch axis of {factor!r}. Double a brace that is meant as text."
            )
    elif not (isinstance(name, Sequence) and all(isinstance(text, str) for text in name)):
        raise TypeError(
            f"add: name: got {kind_of(name)}; expected text such as 'row {{}}, digit {{}}', or a "
            "sequence with a text for each factor."
        )
    elif len(name) != factor.n_factors:
        raise ValueError(
            f"add: name has {len(name)} texts; expected {factor.n_factors}, one for each factor of "
            f"{factor!r}."
        )
    vars(factor)[LABEL] = name


def _has_fields(name: str, n_axes: int) -> bool:
    """Return whether a text has no fields, or one for each of `n_axes` numbers."""
    try:
        name.format(*range(n_axes))
        fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    except (IndexError, KeyError, ValueError, AttributeError):
        return False
    numbers = {field or str(i) for i, field in enumerate(fields)}
    return not fields or numbers == set(map(str, range(n_axes)))


def label_of(factor: Factor, row: int, factors: Sequence[Factor]) -> str:
    """Return the name of factor number `row` of the declaration `factor`.

    Without a name, it is the type, index and place among the graph's declarations, `factors`.
    """
    name = vars(factor).get(LABEL)
    if name is not None and not isinstance(name, str):
        return str(name[row])
    index = [int(i) for i in np.unravel_index(row, factor.batch_shape)]
    if name is not None and "{" in name:
        return name.format(*index)
    at = ", ".join(map(str, index))
    words = [name or type(factor).__name__, *([at] if at else [])]
    if name is None:
        place = next(i for i, other in enumerate(factors) if other is factor)
        words.append(f"of factors[{place}]")
    return " ".join(words)
