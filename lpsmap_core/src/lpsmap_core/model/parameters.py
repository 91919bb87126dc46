"""A factor's parameters: whether they are the arrays that buckets are built from."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.names import check_names

__all__ = ["check_arrays"]


def check_arrays(factor: Factor) -> None:
    """Refuse a type's attributes for kernels that are not the arrays that they should be.

    Raises
    ------
    TypeError
        If an attribute is misspelt or hides a method, `row_parameters` is one name, or an attribute
        that it, `link_parameter` or `integer_parameter` names is missing or of another kind or
        shape.
    """
    check_names(factor)
    rows, links, integers = factor.row_parameters, factor.link_parameter, factor.integer_parameter
    if isinstance(rows, str):
        raise TypeError(
            f"{type(factor).__name__}: row_parameters is {rows!r}; expected a tuple of names, such "
            f"as ({rows!r},)."
        )
    for name in rows:
        _check_shape(factor, name, (factor.n_factors,), "row_parameters", "per_factor")
    if links is not None:
        _check_shape(factor, links, factor.variables.shape, "link_parameter", "per_link")
    if integers is not None:
        given = getattr(factor, integers, None)
        own = isinstance(given, tuple) and len(given) == factor.n_factors
        if not own and not (isinstance(given, np.ndarray) and given.dtype == np.int64):
            raise TypeError(
                f"{type(factor).__name__}: {integers}, of integer_parameter, is {given!r:.60}; "
                "expected an array of int64 for all factors, or a tuple of one for each. Set it "
                f"with self.integers({integers!r}, value)."
            )


def _check_shape(
    factor: Factor, name: str, shape: tuple[int, ...], listed: str, helper: str
) -> None:
    value: Any = getattr(factor, name, None)
    if getattr(value, "shape", None) != shape:
        got = f"of shape {value.shape}" if hasattr(value, "shape") else repr(value)[:60]
        raise TypeError(
            f"{type(factor).__name__}: {name}, of {listed}, is {got}; expected an array of shape "
            f"{shape}. Set it with self.{helper}({name!r}, value)."
        )
