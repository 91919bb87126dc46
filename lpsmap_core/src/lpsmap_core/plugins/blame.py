"""What an error of a plugin says, with the line that raised it."""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["blamed"]

CORE = Path(__file__).parent.parent


def blamed(error: BaseException) -> str:
    """Return what an error says, and the line that raised it: the last that is not core's."""
    lines = traceback.extract_tb(error.__traceback__)
    others = [line for line in lines if not Path(line.filename).is_relative_to(CORE)]
    last = (others or lines)[-1]
    return f"{type(error).__name__}: {error}, raised in {last.filename}, line {last.lineno}"
