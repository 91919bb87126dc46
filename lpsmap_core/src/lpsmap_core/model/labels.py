"""Names of factors for messages, such as "row 0, digit 5"."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Any

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of

__all__ = ["label_of", "set_label"]

LABEL = "_label"
"""The attribute of a declaration that holds its name."""


def set_label(factor: Factor, name: Any) -> None:
    """Validate and store the name of a declaration; see `FactorGraph.add`.

    Raises
    ------
    TypeError
        If the name is neither text nor a sequence of texts.
    ValueError
        If its fields do not fit the batch axes, or there is not one text for each factor.
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
    """Return the name of a factor, or its type, index and place among the declarations.

    Parameters
    ----------
    factor, row
        The declaration, and the number of the factor in it.
    factors
        The declarations of the graph.
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
