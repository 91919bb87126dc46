"""What a warning says besides its words."""

from __future__ import annotations

import warnings

from lpsmap_core import ConvergenceWarning

__all__ = ["details_of"]


def details_of(caught: warnings.WarningMessage) -> str:
    """Return the numbers of a warning of a solve."""
    assert isinstance(caught.message, ConvergenceWarning)
    return caught.message.details
