"""The arguments of a call as a list of tensors and a text, as operators take them."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import kind_of

__all__ = ["packed", "unpacked"]


def packed(name: str, value: Any, tensors: list[Tensor]) -> str:
    """Return a value as a literal of Python, and append its tensors to a list.

    The compiler traces this function. Numbers are tensors, so that it does not compile again when
    they change.

    Parameters
    ----------
    name
        The name of the value, for error messages.
    value
        Tensors, arrays, numbers, strings, booleans, None, and lists, tuples and dictionaries of
        them.
    tensors
        The list.

    Raises
    ------
    TypeError
        If the value is of another type.
    """
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, dict):
        items = [f"{key!r}: {packed(str(key), x, tensors)}" for key, x in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"('{kind}', [{', '.join([packed(name, x, tensors) for x in value])}])"
    if isinstance(value, Tensor):
        kind, tensor = "tensor", value
    elif isinstance(value, (int, float)):
        dtype = torch.int64 if isinstance(value, int) else torch.float64
        kind, tensor = "number", torch.full((), value, dtype=dtype)
    elif isinstance(value, np.ndarray):
        kind, tensor = "array", torch.as_tensor(value)
    else:
        raise TypeError(
            f"{name}: got {kind_of(value)}; expected tensors, arrays, numbers, strings, booleans "
            "or None as arguments of a loss inside torch.compile and transforms of torch.func. "
            "Give other arguments to the factors by functools.partial."
        )
    tensors.append(tensor)
    return f"('{kind}', {len(tensors) - 1})"


def unpacked(text: str, tensors: list[Tensor]) -> Any:
    """Return the value of a text and a list of tensors."""
    return _unpacked(_literal(text), tensors)


_literal = functools.lru_cache(maxsize=64)(ast.literal_eval)
"""Cached, because a small solve takes no longer than to read a text."""


def _unpacked(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, dict):
        return {key: _unpacked(x, tensors) for key, x in value.items()}
    if not isinstance(value, tuple):
        return value
    kind, inside = value
    if kind in ("list", "tuple"):
        entries = [_unpacked(x, tensors) for x in inside]
        return entries if kind == "list" else tuple(entries)
    tensor = tensors[inside]
    if kind == "number":
        return tensor.item()
    return tensor.detach().cpu().numpy() if kind == "array" else tensor
