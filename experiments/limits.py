"""Suppression of warnings of deliberately limited solves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lpsmap import ConvergenceWarning

__all__ = ["limited_on_purpose"]


@contextmanager
def limited_on_purpose(limited: bool = True) -> Iterator[None]:
    """Suppress warnings of limits if these are part of the experiment."""
    with warnings.catch_warnings():
        if limited:
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "lpsmap: the gradients of some components are")
        yield
