"""Text files, optionally compressed by gzip."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from pathlib import Path

from lpsmap_core.plugins.formats import FileFormatError

__all__ = ["file_bytes", "write_text"]

GZIP = b"\x1f\x8b"
"""First bytes of a compressed file."""

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some editors write."""

WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16."""

MAX_BYTES = 2**30
"""Maximum size of a text in bytes."""

SAFE_SIZE = 2**18
"""Size in bytes up to which a file may have any compression ratio."""

MAX_EXPANSION = 100
"""Maximum compression ratio of larger files."""


def file_bytes(path: Path) -> bytes:
    """Return the bytes of the text in the file at `path`, decompressed if their content is gzip's.

    Decode them inside the ``try`` that raises `FileFormatError`: they need not be UTF-8. Pipes such
    as ``/dev/stdin`` are supported. A byte order mark of UTF-8 is removed.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it is a device, larger than a gigabyte, in UTF-16, damaged, or compressed with an
        implausible ratio.
    """
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise FileFormatError(f"{path}: is a device; expected a text file, or a pipe.")
        head = file.read(2)
        text = _decompress(path, head, file) if head == GZIP else _read_rest(path, head, file)
    if text.startswith(WIDE_MARKS):
        raise FileFormatError(f"{path}: is a text in UTF-16; expected UTF-8. Save it as UTF-8.")
    return text.removeprefix(MARK)


def _read_rest(path: Path, head: bytes, file: io.BufferedReader) -> bytes:
    """Return `head` and the rest of a file."""
    found = bytearray(head)
    while data := file.read(2**20):
        found += data
        if len(found) > MAX_BYTES:
            raise FileFormatError(
                f"{path}: has more than {MAX_BYTES} bytes; expected a smaller text. Split it, or "
                "build the graph in Python."
            )
    return bytes(found)


def _decompress(path: Path, head: bytes, file: io.BufferedReader) -> bytes:
    """Return the decompressed bytes of a file, which may have several members."""
    found, n_read, unpack = bytearray(), 0, zlib.decompressobj(wbits=31)
    data = head
    try:
        while data := data or file.read(2**16):
            n_read += len(data)
            while data:
                found += unpack.decompress(data, 2**20)
                if len(found) > max(SAFE_SIZE, MAX_EXPANSION * n_read):
                    raise FileFormatError(
                        f"{path}: {n_read} compressed bytes expand to more than {len(found)}; "
                        f"expected a ratio of up to {MAX_EXPANSION}. Decompress the file yourself "
                        "if you trust it."
                    )
                data = unpack.unconsumed_tail
                if unpack.eof:
                    data = unpack.unused_data
                    unpack = zlib.decompressobj(wbits=31) if data else unpack
    except zlib.error as error:
        raise FileFormatError(
            f"{path}: is compressed, but damaged ({error}); expected gzip. Fetch it again."
        ) from error
    if not unpack.eof:
        raise FileFormatError(
            f"{path}: is compressed, but ends too early; expected gzip. Fetch it again."
        )
    return bytes(found)


def write_text(path: Path, text: str) -> None:
    """Write `text` to the file at `path`, compressed if its name ends in ``.gz``."""
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
