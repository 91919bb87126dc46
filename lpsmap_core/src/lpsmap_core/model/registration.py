"""Validation of a declaration's registered parameters, which buckets are built from."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.names import check_names
from lpsmap_core.model.parameters import Parameters

__all__ = ["check_registered", "check_same_parameters", "parameters_of"]


def parameters_of(factor: Factor) -> Parameters:
    """Return the parameters of a `factor`, which is a declaration or the view of one factor."""
    return factor._parameters


def check_registered(factor: Factor) -> None:
    """Reject attributes that cannot be passed to kernels.

    Raises
    ------
    TypeError
        If `check_names` rejects an attribute, or if a registered attribute is missing or differs
        in kind or shape from the registered value.
    """
    check_names(factor)
    parameters = factor._parameters
    for name, shape in parameters.rows.items():
        helper = "counts" if name in parameters.counts else "per_factor"
        _check_shape(factor, name, (factor.n_factors, *shape), helper)
    if parameters.link is not None:
        _check_shape(factor, parameters.link, factor.variables.shape, "per_link")
    if parameters.integers is not None:
        value: Any = getattr(factor, parameters.integers, None)
        per_factor = isinstance(value, tuple) and len(value) == factor.n_factors
        arrays: Any = value if per_factor else (value,)
        if not all(isinstance(x, np.ndarray) and x.dtype == np.int64 for x in arrays):
            expected = "an array of int64 for all factors, or a tuple of one for each"
            raise _not_kept(factor, parameters.integers, value, expected, "integers")


def check_same_parameters(factor: Factor, other: Factor) -> None:
    """Reject two declarations of a type that cannot share a bucket.

    Raises
    ------
    TypeError
        If they register different parameters, or in another order.
    """
    if not factor._parameters.same_as(other._parameters):
        raise TypeError(
            f"{factor!r} registers the parameters {factor._parameters}, but {other!r} registers "
            f"{other._parameters}; expected the same parameters of every {type(factor).__name__}, "
            "in the same order, because kernels find them by column. Register a default for "
            "parameters that are not passed."
        )


def _check_shape(factor: Factor, name: str, shape: tuple[int, ...], helper: str) -> None:
    value: Any = getattr(factor, name, None)
    if getattr(value, "shape", None) != shape:
        raise _not_kept(factor, name, value, f"an array of shape {shape}", helper)


def _not_kept(factor: Factor, name: str, value: Any, expected: str, helper: str) -> TypeError:
    """Return the error about an attribute that differs from its registered value."""
    if not hasattr(factor, name):
        got = "is missing"
    elif hasattr(value, "shape") and value.dtype != object:
        got = f"is an array of shape {value.shape} and dtype {value.dtype}"
    else:
        got = f"is {value!r:.60}"
    return TypeError(
        f"{type(factor).__name__}: the parameter {name!r} is registered, but self.{name} {got}; "
        f"expected {expected}. Assign the returned value to the attribute of the same name: "
        f"self.{name} = self.{helper}({name!r}, value)."
    )
