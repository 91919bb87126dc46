"""Text files, optionally compressed by gzip."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from lpsmap_core.api import reserve_memory
from lpsmap_decode.formats.file_format import FileFormatError

GZIP = b"\x1f\x8b"
"""First bytes of a compressed file."""

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some editors write."""

WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16."""

MAX_BYTES = 2**30
"""Maximum size of a text in bytes."""

PARSED = 24
"""Bytes of the objects that a byte of text becomes, roughly: numbers and lists of few of them."""


def file_bytes(path: Path) -> bytes:
    """Return the bytes of the text in the file at `path`, decompressed if their content is gzip's.

    Decode them inside the ``try`` that raises `FileFormatError`: they need not be UTF-8. Pipes such
    as ``/dev/stdin`` are supported. A byte order mark of UTF-8 is removed.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it is a device, larger than a gigabyte, in UTF-16, or damaged.
    ValueError
        If what is read from it would exceed the memory limit of `read_graph`.
    """
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise FileFormatError(f"{path}: is a device; expected a text file, or a pipe.")
        head = file.read(2)
        plain = itertools.chain([head], iter(lambda: file.read(2**20), b""))
        text = _joined(path, _decompressed(path, head, file) if head == GZIP else plain)
    if text.startswith(WIDE_MARKS):
        raise FileFormatError(f"{path}: is a text in UTF-16; expected UTF-8. Save it as UTF-8.")
    return text.removeprefix(MARK)


def _joined(path: Path, pieces: Iterator[bytes]) -> bytes:
    """Join the pieces of a text, whose memory is reserved as they come."""
    found = bytearray()
    for piece in pieces:
        reserve_memory(PARSED * len(piece), f"{len(found) + len(piece)} bytes of text")
        found += piece
        if len(found) > MAX_BYTES:
            raise FileFormatError(
                f"{path}: has more than {MAX_BYTES} bytes; expected a smaller text. Split it, or "
                "build the graph in Python."
            )
    return bytes(found)


def _decompressed(path: Path, head: bytes, file: io.BufferedReader) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, which may have several members."""
    unpack = zlib.decompressobj(wbits=31)
    data = head
    try:
        while data := data or file.read(2**16):
            while data:
                yield unpack.decompress(data, 2**20)
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


def write_text(path: Path, text: str) -> None:
    """Write `text` to the file at `path`, compressed if its name ends in ``.gz``."""
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
