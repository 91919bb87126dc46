"""What an error of a plugin says, with the line that raised it."""

from __future__ import annotations

import traceback
from pathlib import Path

from lpsmap_core.plugins.offers import DuplicateNameError

__all__ = ["blamed", "is_of_core"]

CORE = Path(__file__).parent.parent


def blamed(error: BaseException) -> str:
    """Return what an error says, and what raised it: the last function that is not core's."""
    lines = traceback.extract_tb(error.__traceback__)
    others = [line for line in lines if not Path(line.filename).is_relative_to(CORE)]
    last = (others or lines)[-1]
    place = f"{last.name} in {last.filename}, line {last.lineno}"
    return f"{type(error).__name__}: {error}, raised by {place}"


def is_of_core(error: Exception) -> bool:
    """Return whether core raised an error, of a kind that is told in words."""
    (*_, last) = traceback.extract_tb(error.__traceback__)
    by_core = Path(last.filename).is_relative_to(CORE)
    kinds = OSError, ValueError, ModuleNotFoundError, DuplicateNameError
    return by_core and isinstance(error, kinds)
