"""Layers and losses by name, as the operator of `lpsmap_torch.traced_calls` finds them.

The name of a layer is its specification: canonical JSON with its type and the options that its
solutions depend on. Any process can build the layer from it, so that an exported program behaves
the same wherever it is loaded, and layers with equal specifications share compiled code. Layers
without one, and losses, have names that are valid only in this process and in forked ones.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import threading
import uuid
import weakref
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import Tensor

from lpsmap_core import Factor, installed

MAX_LOADED = 32
"""Maximum number of cached layers of loaded programs."""


class Callee(Protocol):
    """What the operator calls: a layer or a loss."""

    _maps_batches: bool
    """Whether a further batch axis of all inputs is one of the output, too."""

    @property
    def _evaluate(self) -> Callable[..., Tensor]:
        """Maps scores, and arguments by name, to the output, with gradients to all of them."""


Shared = TypeVar("Shared")

_CALLEES: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_SHARED: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_HERE = f" of process {uuid.uuid4().hex}, number "


def local_name(kind: str) -> str:
    """Return a new name that is valid only in this process, for a ``"layer"`` or a ``"loss"``."""
    return f"{kind}{_HERE}{next(_NUMBERS)}"


def register(name: str, callee: Callee) -> None:
    """Let the operator find a layer or a loss as long as something else refers to it."""
    _CALLEES[name] = callee


def shared_by(name: str, make: Callable[[], Shared]) -> Shared:
    """Return what all layers of a name share, or make it."""
    with _LOCK:
        shared: Shared | None = _SHARED.get(name)
        if shared is None:
            shared = _SHARED[name] = make()
        return shared


def callee_named(name: str) -> Callee:
    """Return the layer or the loss with a name.

    A layer whose options changed has another name since.
    """
    callee = _CALLEES.get(name)
    if callee is not None and callee._name == name:
        return callee  # type: ignore[no-any-return]
    if name.startswith("{"):
        layer: Callee = _loaded(name)  # that of a loaded program
        return layer
    kind = name.partition(" ")[0]
    if _HERE in name:
        raise RuntimeError(
            f"{name}: the {kind} no longer exists, or its options were changed; keep a reference "
            "to it, or to its model, and its options, until the backward pass is done."
        )
    raise RuntimeError(
        f"{name}: the {kind} belongs to another process and has no specification, so it cannot be "
        "rebuilt here. Compile or export the model in this process."
    )


# -------------------------------------------------------------------- specifications

MAX_ARRAY = 10_000
"""Maximum number of entries of an array in a specification."""

LAYERS = "lpsmap_torch.layers"


class NotSpecifiable(ValueError):
    """A layer has no specification; the message gives the reason."""


def specification(layer_type: type, options: dict[str, Any]) -> str:
    """Return the specification of a layer, given its type and the arguments of its constructor."""
    name = layer_type.__name__
    if getattr(importlib.import_module(LAYERS), name, None) is not layer_type:
        raise NotSpecifiable(f"its type {name} is not one of {LAYERS}")
    encoded = {key: _encoded(key, value) for key, value in options.items()}
    return json.dumps({"layer": name, "options": encoded}, sort_keys=True, separators=(",", ":"))


@functools.lru_cache(MAX_LOADED)
def _loaded(text: str) -> Any:
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
    if type(value) in (dict, MappingProxyType) and all(type(key) is str for key in value):
        return {"dict": {key: _encoded(key, x) for key, x in value.items()}}
    if type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        if value.size > MAX_ARRAY:
            raise NotSpecifiable(f"its option {name} has more than {MAX_ARRAY:,} entries")
        return {"array": value.tolist(), "dtype": value.dtype.name, "shape": value.shape}
    if isinstance(value, type) and issubclass(value, Factor):
        return {"factor": value.__name__, "package": _package_of(value)}
    raise NotSpecifiable(f"its option {name} is of type {type(value).__name__}")


def _decoded(value: Any) -> Any:
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
    registration = installed().factors.get(factor_type.__name__)
    if registration is None or registration.value is not factor_type:
        raise NotSpecifiable(
            f"the factor type {factor_type.__name__} is not that of an installed plugin"
        )
    return str(factor_type.__module__).partition(".")[0]
