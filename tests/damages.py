"""Files that are damaged in many ways."""

from __future__ import annotations

import functools
import gzip
import re
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from lpsmap_core.command import cli
from lpsmap_decode import FileFormatError
from lpsmap_decode.formats.files import read_graph

__all__ = ["check_damaged"]

WRONG = [
    *(b"-1", b"0", b"7", b"1000000000000", b"999999999999999999999999", b"65536", b"1e400"),
    *(b"nan", b"-inf", b"1_0", b"0x10", b"x", b"-", b"'", b"\xff\xfe", b"9" * 200_000 + b"x"),
    *("\u0663".encode(), b"1.5", b"", b"2 2", b"[" * 2_000),
]
"""What takes the place of a word."""


@functools.cache
def compressed(n: int) -> bytes:
    """Return n ones, compressed."""
    return gzip.compress(b"1 " * n)


def damaged(rng: np.random.Generator, good: bytes, n: int) -> Iterator[bytes]:
    """Yield n damaged forms of a file."""
    words = [m.span() for m in re.finditer(rb"[^\s,:\[\]{}]+", good)]
    yield from (b"", b"\n\n", b"\0" * 1000, rng.bytes(5000), good.decode().encode("utf-16"))
    yield from (b"[" * 100_000, b'{"a":' * 100_000, b"(" * 100_000, good + good, good + b" 1")
    yield b"\x1f\x8b" + rng.bytes(1000)
    yield gzip.compress(good)[:-6]
    yield compressed(2**25)  # 64 MiB in 64 KiB
    yield compressed(2**18 - 100)  # as much as a small file may become
    for i in range(n - 14):
        begin, end = words[rng.integers(len(words))]
        match i % 4:
            case 0:
                yield good[: rng.integers(len(good) - 1)]
            case 1:
                at = rng.integers(len(good))
                yield good[:at] + rng.bytes(3) + good[at + 3 :]
            case 2:
                yield gzip.compress(good[:begin] + good[end:])
            case _:
                yield good[:begin] + WRONG[rng.integers(len(WRONG))] + good[end:]


def check_damaged(folder: Path, suffix: str, good: str, n: int = 150) -> None:
    """Hold that damaged files are refused in a line, in no time, and with little memory.

    Some damages leave a file that is as good as before.
    """
    rng = np.random.default_rng(0)
    path = folder / f"damaged{suffix}"
    path.write_text(good)
    read_graph(path)
    n_refused = 0
    for data in damaged(rng, good.encode(), n):
        path.write_bytes(data)
        begin = time.process_time()
        try:
            read_graph(path)
        except FileFormatError as error:
            n_refused += 1
            assert str(error).startswith(str(path)), error
            assert len(str(error)) < 1000 + 2 * len(str(path)), error
            if n_refused % 8 == 1:  # the command says what is raised, whatever the damage
                result = CliRunner().invoke(cli.main, ["info", str(path)])
                assert result.exit_code == 1, result.output
                assert isinstance(result.exception, SystemExit)
                assert result.output.startswith("Error: ")
        assert time.process_time() - begin < 2.0  # twice a second
    assert n_refused > n / 2, n_refused
    for data in damaged(rng, good.encode(), 40):
        path.write_bytes(data)
        tracemalloc.start()
        try:
            read_graph(path)
        except FileFormatError:
            pass
        finally:
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert most < 200e6, most
