"""Text files that may be compressed."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from lpsmap_core.plugins.formats import FileFormatError

__all__ = ["file_bytes", "write_text"]

GZIP = b"\x1f\x8b"
"""How a compressed file begins."""

UNSUSPICIOUS = 2**18
"""Bytes to which any compressed file may grow."""

MOST_GROWTH = 100
"""How many times as large as its compressed form a larger file may be."""


def file_bytes(path: Path) -> bytes:
    """Return what is in a file, unpacked if it is compressed by gzip, whatever its name.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it is damaged, or a small file that becomes very large.
    """
    with path.open("rb") as file:
        head = file.read(2)
        if head != GZIP:
            return head + file.read()
        file.seek(0)
        return _unpacked(path, file)


def _unpacked(path: Path, file: io.BufferedReader) -> bytes:
    """Return the bytes of a compressed file, which may have several members."""
    found, n_read, unpack = bytearray(), 0, zlib.decompressobj(wbits=31)
    try:
        while data := file.read(2**16):
            n_read += len(data)
            while data:
                found += unpack.decompress(data, 2**20)
                if len(found) > max(UNSUSPICIOUS, MOST_GROWTH * n_read):
                    raise FileFormatError(
                        f"{path}: {n_read} compressed bytes became more than {len(found)}; "
                        f"expected a text, of up to {MOST_GROWTH} times as many. Unpack the file "
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
    """Write a text, compressed if the file's name ends in ``.gz``."""
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
