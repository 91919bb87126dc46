"""Scores of additionals in any array library, broadcast to all factors of a declaration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from lpsmap_core.api import check_readable, real_numbers, reserve_memory


def as_scores(name: str, scores: Any) -> Any:
    """Return an array of another library as it is, anything else as a NumPy array of floats."""
    if is_array_api_obj(scores) and not isinstance(scores, np.ndarray):
        check_readable(name, scores)
        return scores
    return real_numbers(name, scores).astype(np.float64, copy=False)


def broadcast_scores(name: str, scores: Any, shape: tuple[int, ...], of: str) -> Any:
    """Broadcast scores with their own array library, so that gradients reach them.

    Parameters
    ----------
    name
        Their name in errors.
    scores
        The result of `as_scores`.
    shape
        The shape of the result.
    of
        The owner of this shape, for errors.
    """
    reserve_memory(8 * math.prod(shape), name)
    try:
        return array_namespace(scores).broadcast_to(scores, shape)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"{name} has shape {tuple(scores.shape)}; expected one that broadcasts to {shape}, "
            f"the shape of {of}."
        ) from None
