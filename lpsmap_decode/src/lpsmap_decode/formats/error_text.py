"""Messages of errors about a file, of a length that fits a screen."""

from __future__ import annotations


def error_text(error: Exception) -> str:
    """Return the message of an error, shortened since it may quote the whole file.

    Types of errors that bad input does not cause are included.
    """
    words = str(error)
    if not words or not isinstance(error, (ValueError, TypeError, IndexError, RecursionError)):
        words = f"{type(error).__name__}: {words}"
    return words if len(words) <= 600 else f"{words[:300]} ... {words[-200:]}"
