"""Compilation that takes seconds is announced, once in a process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from forks import Server
from lpsmap_jit import announcements, kernel
from lpsmap_jit.announcements import ANNOUNCED_AFTER, QUIET, WAITING, announce
from lpsmap_jit.deadlines import compiling, seconds_of_compilation

pytestmark = pytest.mark.compiled


@kernel
def inner(x):
    return 2.0 * x


@kernel
def outer(x):
    return inner(x) + 1.0


OUTER, INNER = outer.py_func, inner.py_func


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Announce as in a process that has compiled for as many seconds as the list says."""
    taken = [ANNOUNCED_AFTER]
    monkeypatch.delenv(QUIET, raising=False)
    monkeypatch.setattr(announcements, "_announced", [])
    monkeypatch.setattr(announcements, "seconds_of_compilation", lambda: taken[0])
    return taken


def test_a_first_use_names_the_function_and_what_to_do(caplog) -> None:
    announce(OUTER)
    (message,) = caplog.messages
    assert message.startswith(f"First use: compiling {__name__}.outer, once, ")
    assert "lpsmap compile;" in message
    assert f"{QUIET}=1" in message


def test_a_process_announces_once(caplog) -> None:
    announce(OUTER)
    announce(INNER)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_another_process_is_waited_for(caplog) -> None:
    announce(OUTER, WAITING)
    assert f"waiting for another process that compiles {__name__}.outer." in caplog.messages[0]


def test_short_compilations_are_not_announced(seconds, caplog) -> None:
    seconds[0] = 0.9 * ANNOUNCED_AFTER
    announce(INNER)
    assert not caplog.messages
    seconds[0] = ANNOUNCED_AFTER
    announce(OUTER)
    assert f"{__name__}.outer" in caplog.messages[0]


def test_quiet_processes_announce_nothing(monkeypatch, caplog) -> None:
    monkeypatch.setenv(QUIET, "1")
    announce(OUTER)
    assert not caplog.messages


def test_seconds_of_nested_compilations_count_once() -> None:
    before = seconds_of_compilation()
    with compiling(), compiling():
        time.sleep(0.1)
        assert 0.1 <= seconds_of_compilation() - before < 60.0
    assert seconds_of_compilation() - before >= 0.1


MODULE = """
import numpy as np
from lpsmap_jit import kernel

@kernel
def total(x):
    return x.sum()

print(total(np.ones(3)))
"""


def test_kernels_of_any_package_are_announced(tmp_path: Path, server: Server) -> None:
    (tmp_path / "theirs.py").write_text(MODULE, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != QUIET}
    at_once = "from lpsmap_jit import announcements\nannouncements.ANNOUNCED_AFTER = 0.0\n"
    first = f"{at_once}import theirs"
    printed, errors = server.begin(first, tmp_path, environment).communicate()
    assert printed == "3.0\n"
    assert errors.startswith("First use: compiling theirs.total, once, ")
    assert errors.count("\n") == 1
