"""What an error says, with the function that raised it."""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path

from lpsmap_core.plugins.offers import DuplicateNameError

__all__ = ["error_with_origin", "raised_by_core"]

CORE = Path(__file__).parent.parent


def error_with_origin(error: BaseException) -> str:
    """Return what an error says, and what raised it.

    That is the last function outside core that core called, or the function that raised it.

    Parameters
    ----------
    error
        An exception that was caught.
    """
    lines = traceback.extract_tb(error.__traceback__)
    called = itertools.dropwhile(lambda line: not _is_of_core(line), lines)
    others = [line for line in called if not _is_of_core(line)]
    last = (others or lines)[-1]
    place = f"{last.name} in {last.filename}, line {last.lineno}"
    return f"{type(error).__name__}: {error}, raised by {place}"


def raised_by_core(error: Exception) -> bool:
    """Return whether core raised `error`, whose message then tells the user what to mend.

    Other kinds of exceptions are defects, also where core raised them.
    """
    (*_, last) = traceback.extract_tb(error.__traceback__)
    kinds = OSError, ValueError, ModuleNotFoundError, DuplicateNameError
    return _is_of_core(last) and isinstance(error, kinds)


def _is_of_core(line: traceback.FrameSummary) -> bool:
    return Path(line.filename).is_relative_to(CORE)
