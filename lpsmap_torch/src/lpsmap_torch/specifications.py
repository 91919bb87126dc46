"""Specifications: layers as text, from which any process can build their solvers.

A specification is canonical JSON with the type of a layer and the options that its solutions depend
on. It is an argument of operators, so that an exported program behaves the same wherever it is
loaded, and compiled code is shared by layers with equal specifications.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from lpsmap_core import Factor, installed

__all__ = ["NotSpecifiable", "layer_of", "specification"]

MAX_ARRAY = 10_000
"""Maximum number of entries of an array in a specification."""

LAYERS = "lpsmap_torch.layers"


class NotSpecifiable(ValueError):
    """A layer has no specification; the message gives the reason."""


def specification(layer_type: type, options: dict[str, Any]) -> str:
    """Return the specification of a layer.

    Parameters
    ----------
    layer_type
        The type of the layer.
    options
        Arguments of its constructor.

    Raises
    ------
    NotSpecifiable
        If another process could not build the same layer from it.
    """
    name = layer_type.__name__
    if getattr(importlib.import_module(LAYERS), name, None) is not layer_type:
        raise NotSpecifiable(f"its type {name} is not one of {LAYERS}")
    encoded = {key: _encoded(key, value) for key, value in options.items()}
    return json.dumps({"layer": name, "options": encoded}, sort_keys=True, separators=(",", ":"))


def layer_of(text: str) -> Any:
    """Build a layer from a specification.

    Raises
    ------
    RuntimeError
        If this process cannot build it.
    """
    try:
        read = json.loads(text)
        layer_type = getattr(importlib.import_module(LAYERS), read["layer"])
        options = {key: _decoded(value) for key, value in read["options"].items()}
        return layer_type(**options.pop("options", {}), **options)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise RuntimeError(
            f"{text}: this process cannot build the layer that the program was exported with "
            f"({error}). Install the packages that it was exported with, in the same versions."
        ) from error


def _encoded(name: str, value: Any) -> Any:
    """Return a value for JSON; values that JSON does not support are tagged by their type."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encoded(name, x) for x in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encoded(key, x) for key, x in value.items()}}
    if type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        if value.size > MAX_ARRAY:
            raise NotSpecifiable(f"its option {name} has more than {MAX_ARRAY:,} entries")
        return {"array": value.tolist(), "dtype": value.dtype.name, "shape": value.shape}
    if isinstance(value, type) and issubclass(value, Factor):
        return {"factor": value.__name__, "package": _package_of(value)}
    raise NotSpecifiable(f"its option {name} is of type {type(value).__name__}")


def _decoded(value: Any) -> Any:
    """Return the value that `_encoded` encoded."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    if "factor" in value:
        factors = installed().factors
        if value["factor"] not in factors:
            raise ImportError(f"the factor type {value['factor']} is not installed")
        factor_type: type = factors[value["factor"]].value
        if _package_of(factor_type) != value["package"]:
            raise ImportError(
                f"the factor type {value['factor']} belongs to {_package_of(factor_type)} here; "
                f"expected {value['package']}"
            )
        return factor_type
    if "dict" in value:
        return {key: _decoded(x) for key, x in value["dict"].items()}
    ((kind, entries),) = value.items()
    return {"list": list, "tuple": tuple}[kind](map(_decoded, entries))


def _package_of(factor_type: type[Factor]) -> str:
    """Return the package of an installed factor type."""
    registration = installed().factors.get(factor_type.__name__)
    if registration is None or registration.value is not factor_type:
        raise NotSpecifiable(
            f"the factor type {factor_type.__name__} is not that of an installed plugin"
        )
    return str(factor_type.__module__).partition(".")[0]
