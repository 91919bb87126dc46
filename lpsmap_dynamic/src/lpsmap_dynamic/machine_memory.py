"""The memory of this machine, with which requests of users are compared."""

from __future__ import annotations

import os


def check_fits_memory(name: str, number: int, bytes_each: int) -> None:
    """Reject a number of objects that exceeds the memory of this machine.

    Parameters
    ----------
    name
        Name of the number in errors.
    number
        Number of objects.
    bytes_each
        Memory of one object in bytes.

    Raises
    ------
    ValueError
        If the objects do not fit into memory.
    """
    memory = _memory()
    if number * bytes_each > memory:
        raise ValueError(
            f"{name}: got {number}, which needs {number * bytes_each / 2**30:.3g} GiB of memory; "
            f"expected at most {memory // bytes_each} on this machine."
        )


def _memory() -> int:
    """Return the number of bytes of memory, or a guess if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 35
