"""Scores of additionals in any array library."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from lpsmap_core.api import check_readable, real_numbers


def as_scores(name: str, scores: Any) -> Any:
    """Return an array of another library as it is, anything else as a NumPy array of floats.

    Parameters
    ----------
    name
        Their name in errors.
    scores
        The scores that a user gave.
    """
    if is_array_api_obj(scores) and not isinstance(scores, np.ndarray):
        check_readable(name, scores)
        return scores
    return real_numbers(name, scores).astype(np.float64, copy=False)
