"""What an error of a plugin says, with the line that raised it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType

from lpsmap_core.plugins.offers import DuplicateNameError

__all__ = ["blamed", "is_of_core"]

CORE = Path(__file__).parent.parent

LIBRARIES = ("lpsmap_core.", "lpsmap_dynamic.")
"""Packages whose functions and base classes raise errors about what plugins ask of them."""


def blamed(error: BaseException) -> str:
    """Return what an error says, and what raised it: the last function that is no library's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    others = [(frame, line) for frame, line in frames if not _is_of_a_library(frame)]
    frame, line = (others or frames)[-1]
    place = f"{frame.f_code.co_name} in {frame.f_code.co_filename}, line {line}"
    return f"{type(error).__name__}: {error}, raised by {place}"


def _is_of_a_library(frame: FrameType) -> bool:
    return f"{frame.f_globals.get('__name__')}.".startswith(LIBRARIES)


def is_of_core(error: Exception) -> bool:
    """Return whether core raised an error, of a kind that is told in words."""
    (*_, last) = traceback.extract_tb(error.__traceback__)
    by_core = Path(last.filename).is_relative_to(CORE)
    kinds = OSError, ValueError, ModuleNotFoundError, DuplicateNameError
    return by_core and isinstance(error, kinds)
