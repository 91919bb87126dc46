"""Scores of additionals in any array library, flattened to one row for every factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat
import numpy as np

from lpsmap_core.api import reserve_memory
from lpsmap_dynamic import as_scores


def flat_scores(
    name: str,
    batch_shape: tuple[int, ...],
    scores: Mapping[str, Any],
    event_shapes: Mapping[str, tuple[int, ...]],
) -> Any:
    """Flatten and concatenate blocks of scores behind the batch axes.

    Only operations of the array library are used, so that tensors stay differentiable and on their
    device.

    Parameters
    ----------
    name
        The factor type, for messages.
    batch_shape
        The shape of the leading axes, with one row for every entry.
    scores
        Arrays by argument name, at least one. None or a missing name stands for zeros.
    event_shapes
        For every block, in order, the shape behind `batch_shape` that its array must broadcast to.

    Returns
    -------
    array
        An array of shape ``batch_shape + (numbers in all blocks,)``.

    Raises
    ------
    TypeError
        If there are no arrays, or their libraries differ.
    ValueError
        If an array does not broadcast.
    """
    arrays = {key: as_scores(f"{name}: {key}", x) for key, x in scores.items() if x is not None}
    if not arrays:
        raise TypeError(
            f"{name}: {' and '.join(event_shapes)}: got None; expected an array of scores. Pass "
            "zeros for no preferences."
        )
    xp = _shared_library(name, arrays)
    first = next(iter(arrays.values()))
    blocks = []
    for key, event in event_shapes.items():
        shape = (*batch_shape, *event)
        if key in arrays:
            block = _broadcast(xp, f"{name}: {key}", arrays[key], shape)
        else:
            block = xp.zeros(shape, dtype=first.dtype, device=array_api_compat.device(first))
        blocks.append(xp.reshape(block, (*batch_shape, int(np.prod(event)))))
    return xp.concat(blocks, axis=-1)


def _shared_library(name: str, arrays: Mapping[str, Any]) -> Any:
    """Return the namespace of the arrays' library; raise TypeError if libraries are mixed."""
    try:
        return array_api_compat.array_namespace(*arrays.values())
    except TypeError:
        libraries = ", ".join(f"{key} a {type(x).__module__} array" for key, x in arrays.items())
        raise TypeError(
            f"{name}: {libraries}; expected arrays of one library. Convert them to the same."
        ) from None


def _broadcast(xp: Any, name: str, array: Any, shape: tuple[int, ...]) -> Any:
    got = tuple(array.shape)
    try:
        fits = np.broadcast_shapes(got, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} has shape {got}; expected one that broadcasts to {shape}. Add axes of "
            "length 1 where scores are shared."
        )
    reserve_memory(8 * math.prod(shape), name)
    return xp.broadcast_to(array, shape)
