"""Files that are written whole, with a digest that is checked when they are read."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress
from pathlib import Path

__all__ = ["read_checked", "write_checked"]


def read_checked(path: Path) -> memoryview:
    """Return the content of a file.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is damaged.
    """
    held = memoryview(path.read_bytes())
    size = hashlib.sha256().digest_size
    if held[:size] != _digest(path, held[size:]):
        raise ValueError(f"{path}: damaged")
    return held[size:]


def write_checked(path: Path, content: bytes) -> None:
    """Write a file atomically, as a digest of its name and content, followed by the content."""
    unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
    try:
        with unfinished.open("wb") as file:
            file.write(_digest(path, content))
            file.write(content)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _digest(path: Path, content: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(path.name.encode())
    digest.update(content)
    return digest.digest()
