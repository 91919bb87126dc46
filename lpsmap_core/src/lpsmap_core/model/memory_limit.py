"""Memory that is estimated, and compared with a maximum, before it is allocated.

A short file can describe a large graph, since views broadcast and text compresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_MEMORY = 2**30
"""Default number of bytes that reading a file may take."""

VARIABLE_BYTES, LINK_BYTES, VIEW_BYTES = 40, 160, 9
"""Bytes of a graph and its layout for each variable, of these for each slot of a factor, and of a
view for each entry."""

DECLARATION_BYTES = 2048
"""Bytes of the objects of a block of variables, or of a declaration of factors, however small."""


class MemoryLimitError(ValueError):
    """Reading a file would take more memory than is allowed."""


class _Budget:
    """Bytes that are reserved so far, and their maximum."""

    def __init__(self, maximum: int) -> None:
        self.maximum, self.reserved = maximum, 0


_budget: ContextVar[_Budget | None] = ContextVar("lpsmap_memory_budget", default=None)


@contextmanager
def memory_limit(max_memory: float) -> Iterator[None]:
    """Limit what `reserve_memory` accepts within a block.

    Parameters
    ----------
    max_memory
        The maximum number of bytes, of all that is reserved in the block.
    """
    token = _budget.set(_Budget(int(max_memory)))
    try:
        yield
    finally:
        _budget.reset(token)


def reserve_memory(n_bytes: int, what: str) -> None:
    """Count memory that is about to be allocated; outside of `memory_limit` without a limit.

    Parameters
    ----------
    n_bytes
        An estimate of its size.
    what
        What it is for, in the plural, for errors.

    Raises
    ------
    MemoryLimitError
        If the limit is exceeded.
    """
    budget = _budget.get()
    if budget is None:
        return
    budget.reserved += n_bytes
    if budget.reserved > budget.maximum:
        raise MemoryLimitError(
            f"{what} would take the memory to about {_shown(budget.reserved)}; expected at most "
            f"{_shown(budget.maximum)}. If you trust the file, raise the limit with max_memory, on "
            "the command line --max-memory."
        )


def _shown(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.3g} GB"
