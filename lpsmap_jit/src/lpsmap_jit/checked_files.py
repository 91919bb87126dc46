"""Files of code: written whole, with a digest, and read only if no other user can write them."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path


class UntrustedError(Exception):
    """Other users can write a file or folder."""


def check_trusted(path: Path, status: os.stat_result | None = None) -> None:
    """Raise unless only this user and root can write a file or folder.

    On Windows, where access is not a matter of owners and modes, nothing is checked.

    Parameters
    ----------
    path
        The file or folder.
    status
        Its status, if it is already open.
    """
    if not hasattr(os, "geteuid"):
        return
    status = path.stat() if status is None else status
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(f"{path} belongs to another user")
    others = stat.S_IWOTH if _is_private(status.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & others:
        raise UntrustedError(f"other users can write to {path}")


@functools.cache
def _is_private(group_id: int) -> bool:
    """Return whether a group is the one that many systems create for this user alone."""
    with suppress(ImportError, KeyError):  # Windows; a user or a group without a name
        import grp
        import pwd

        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
        own = group_id == user.pw_gid and group.gr_name == user.pw_name
        return own and set(group.gr_mem) <= {user.pw_name}
    return False


def read_checked(path: Path) -> memoryview:
    """Return the content of a file."""
    with path.open("rb") as file:
        check_trusted(path, os.fstat(file.fileno()))
        held = memoryview(file.read())
    size = hashlib.sha256().digest_size
    if held[:size] != _digest(path, held[size:]):
        raise ValueError(f"{path}: damaged")
    return held[size:]


def write_checked(path: Path, content: bytes) -> None:
    """Write a file atomically, as a digest of its name and content, followed by the content.

    Only this user can write to it, whatever the process allows others.
    """
    unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
    try:
        with open(unfinished, "wb", opener=_open_for_owner) as file:
            file.write(_digest(path, content))
            file.write(content)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _digest(path: Path, content: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(path.name.encode())
    digest.update(content)
    return digest.digest()
