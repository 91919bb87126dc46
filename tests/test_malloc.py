"""The settings of ``make test-malloc`` find an address that outlives its array."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys

import pytest

from environments import ROOT

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="settings of the GNU C library"
)

PLANTED = """
import ctypes
import numpy as np

array = np.ones(3000, dtype=np.uint8)
left = (ctypes.c_uint8 * 3000).from_address(array.ctypes.data)
del array
print("read", *set(left[100:2900]), flush=True)
array = np.ones(2999, dtype=np.uint8)
left = (ctypes.c_uint8 * 3000).from_address(array.ctypes.data)  # mostly the same place
left[2999] ^= 1
del array
print("written", flush=True)
"""
"""Memory that is read and written by its address after it was freed."""


def settings(name: str) -> dict[str, str]:
    """Return a variable of the Makefile that sets variables of the environment."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"\t$({name}) $(BIN)/python -m pytest" in makefile
    (words,) = re.findall(rf"^{name} := (.*)$", makefile, re.MULTILINE)
    return dict(word.split("=", 1) for word in words.split())


def planted(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    known = {"MALLOC_PERTURB_", "MALLOC_CHECK_", "LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONMALLOC"}
    inherited = {k: v for k, v in os.environ.items() if k not in known}
    return subprocess.run(
        [sys.executable, "-c", PLANTED],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_seen_without_them() -> None:
    done = planted({})
    assert (done.stdout, done.returncode) == ("read 1\nwritten\n", 0)


def test_what_is_freed_is_overwritten() -> None:
    assert planted(settings("OVERWRITTEN")).stdout.startswith("read 165\n")


def test_what_is_written_to_freed_memory_ends_the_process() -> None:
    done = planted(settings("CHECKED"))
    if "cannot be preloaded" in done.stderr:
        pytest.skip("libc_malloc_debug is not installed")
    assert done.returncode == -signal.SIGABRT
    assert "written" not in done.stdout
    assert "free(): invalid pointer" in done.stderr
