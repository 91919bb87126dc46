"""The line that a warning is about: that of the user, not ours."""

from __future__ import annotations

import sys

PASSED_THROUGH = (
    *("lpsmap.", "lpsmap_core.", "lpsmap_decode.", "lpsmap_dynamic.", "lpsmap_jit."),
    *("lpsmap_jax.", "lpsmap_torch."),
    *("jax.", "torch.", "numba.", "contextlib."),
)
"""Modules through which a call reaches us, or a warning leaves us."""


def stacklevel() -> int:
    """Return the ``stacklevel`` for a warning of the caller that points at the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_passed_through(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    return level


def _is_passed_through(module: str | None) -> bool:
    return f"{module}.".startswith(PASSED_THROUGH)
