"""Scores of additionals in any array library, broadcast to all factors of a declaration."""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace

from lpsmap_core.api import reserve_memory


def broadcast_scores(name: str, scores: Any, shape: tuple[int, ...], of: str) -> Any:
    """Broadcast scores with their own array library, so that gradients reach them.

    Parameters
    ----------
    name
        Their name in errors.
    scores
        The result of `lpsmap_dynamic.as_scores`.
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
