"""Validation of factor types over squares, such as those of trees."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor


def check_square(factor: Factor, meaning: str) -> None:
    """Validate that the first two event axes of every factor are equal.

    Parameters
    ----------
    factor
        The declaration.
    meaning
        What an entry of the square stands for, in errors.

    Raises
    ------
    ValueError
        If the axes, or two lengths of a factor, are different.
    """
    name, (rows, columns) = type(factor).__name__, factor.event_shape[:2]
    if rows != columns:
        axes = "axes before the labels" if factor.variables_ndim > 2 else "last two axes"
        raise ValueError(
            f"{name}: variables has shape {factor.variables.shape}; expected equal {axes}: "
            f"{meaning}."
        )
    if factor.lengths is None:
        return
    wrong = np.flatnonzero(factor.lengths[:, 0] != factor.lengths[:, 1])
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(
            f"{name}: lengths of factor {i} are {tuple(factor.lengths[i].tolist())}; expected "
            f"equal ones: {meaning}. Give one length for every factor."
        )
