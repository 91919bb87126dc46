"""Compilation that takes seconds is announced; tests set the clock, and take no time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forks import Server
from lpsmap_jit import announcements, kernel
from lpsmap_jit.announcements import QUIET, WAITING, announced, watch

pytestmark = pytest.mark.compiled


@kernel
def inner(x):
    return 2.0 * x


@kernel
def outer(x):
    return inner(x) + 1.0


OUTER, INNER = outer.py_func, inner.py_func


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce as in a process that has compiled nothing."""
    monkeypatch.delenv(QUIET, raising=False)
    monkeypatch.setattr(announcements, "_announcement", announcements._Announcement())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "PATIENCE", 0.0)


@contextmanager
def compiled(function: object) -> Iterator[None]:
    """A block that compiles a function."""
    with announced(function):
        watch()
        yield


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for the thread that announces."""
    until = time.perf_counter() + 60.0
    while not condition():
        assert time.perf_counter() < until
        time.sleep(0.001)


def test_a_first_use_names_the_function_and_what_to_do(at_once, caplog) -> None:
    with compiled(OUTER):
        wait_for(lambda: caplog.messages)
    (message,) = caplog.messages
    assert message.startswith(f"First use: compiling {__name__}.outer, once, ")
    assert "lpsmap compile;" in message
    assert f"{QUIET}=1" in message


def test_a_process_announces_once(at_once, caplog) -> None:
    with compiled(OUTER):
        wait_for(lambda: caplog.messages)
    with compiled(INNER):
        assert announcements._announcement._timer is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_another_process_is_waited_for(at_once, caplog) -> None:
    with announced(OUTER):
        watch(WAITING)
        wait_for(lambda: caplog.messages)
    assert f"waiting for another process that compiles {__name__}.outer." in caplog.messages[0]


def test_short_compilations_count_as_one(monkeypatch, caplog) -> None:
    """Each takes a second by the clock of the test, and no time."""
    now = [100.0]
    monkeypatch.setattr(announcements.time, "monotonic", lambda: now[0])
    for _ in range(2):
        with compiled(INNER):
            now[0] += 1.0
    with compiled(OUTER):
        wait_for(lambda: caplog.messages)
    (message,) = caplog.messages
    assert f"{__name__}.outer" in message


def test_quiet_processes_are_not_watched(monkeypatch) -> None:
    monkeypatch.setenv(QUIET, "1")
    with compiled(OUTER):
        assert announcements._announcement._timer is None


def test_a_function_that_is_loaded_is_not_watched() -> None:
    with announced(OUTER):
        assert announcements._announcement._timer is None


def test_an_error_ends_the_watch() -> None:
    with pytest.raises(KeyboardInterrupt), compiled(OUTER), compiled(INNER):
        raise KeyboardInterrupt
    assert announcements._announcement.function is None
    assert announcements._announcement._timer is None


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
    first = "from lpsmap_jit import announcements\nannouncements.PATIENCE = 0.0\nimport theirs"
    printed, errors = server.begin(first, tmp_path, environment).communicate()
    assert printed == "3.0\n"
    assert errors.startswith("First use: compiling theirs.total, once, ")
    assert errors.count("\n") == 1
