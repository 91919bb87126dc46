"""Messages of errors, with the function that raised them."""

from __future__ import annotations

import itertools
import traceback
from types import FrameType

LIBRARIES = ("lpsmap_core.", "lpsmap_dynamic.", "lpsmap_jit.")
"""Packages whose functions and base classes raise errors about their use by plugins."""


def error_with_origin(error: BaseException) -> str:
    """Return the message of an `error`, and the function of a plugin that raised it, if one did.

    This is the last function outside the libraries that they called.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    called = itertools.dropwhile(lambda entry: not _is_of(LIBRARIES, entry[0]), frames)
    others = [entry for entry in called if not _is_of(LIBRARIES, entry[0])]
    if not others:
        return f"{type(error).__name__}: {error}"
    frame, line = others[-1]
    place = f"{frame.f_code.co_name} in {frame.f_code.co_filename}, line {line}"
    return f"{type(error).__name__}: {error}, raised by {place}"


def _is_of(packages: str | tuple[str, ...], frame: FrameType) -> bool:
    return f"{frame.f_globals.get('__name__')}.".startswith(packages)
