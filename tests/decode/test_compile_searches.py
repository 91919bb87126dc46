"""Searches find their kernels compiled, after ``lpsmap compile``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.compiled
def test_searches_call_only_kernels_compiled_ahead(monkeypatch) -> None:
    monkeypatch.setenv("LPSMAP_COMPILE_AFTER", "0")
    script = Path(__file__).with_name("compiled_searches.py")
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "18 []\n"
