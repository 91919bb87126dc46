"""Compilation that takes seconds is announced; tests set the clock, and take no time."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forks import Server
from lpsmap_jit import announcements, kernel
from lpsmap_jit.announcements import QUIET, announced, waiting, watch

pytestmark = pytest.mark.compiled


@kernel
def innermost(x):
    return x + 1.0


@kernel
def inner(x):
    return 2.0 * innermost(x)


@kernel
def outer(x):
    return inner(x) + innermost(x)


OUTER, INNER, INNERMOST = outer.py_func, inner.py_func, innermost.py_func


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce as in a process that has compiled nothing."""
    monkeypatch.delenv(QUIET, raising=False)
    monkeypatch.setattr(announcements, "_compilation", announcements._Compilation())


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


def test_a_process_warns_once(at_once, caplog) -> None:
    caplog.set_level(logging.INFO)
    for n in (1, 2):
        with compiled(OUTER):
            wait_for(lambda n=n: len(caplog.messages) == n)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_what_is_finished_is_not_left() -> None:
    with compiled(INNERMOST):
        pass
    left = announcements._compilation._left
    assert left(OUTER) == "1 of the 2 functions that it calls are left"
    with compiled(INNER):
        pass
    assert left(OUTER) == "its optimisation is left"


def test_another_process_is_waited_for(at_once, caplog) -> None:
    with announced(OUTER), waiting():
        wait_for(lambda: caplog.messages)
    assert f"waiting for another process that compiles {__name__}.outer." in caplog.messages[0]


@pytest.mark.parametrize(("pause", "n_made"), [(0.5, 1), (1.5, 0)])
def test_short_compilations_without_a_pause_count_as_one(
    monkeypatch, caplog, pause: float, n_made: int
) -> None:
    """Each takes a second by the clock of the test, and no time."""
    now = [100.0]
    monkeypatch.setattr(announcements.time, "monotonic", lambda: now[0])
    for _ in range(2):
        with compiled(OUTER):
            now[0] += 1.0
        now[0] += pause
    with compiled(OUTER):
        assert announcements._compilation._unannounced == 2.0 * n_made
        wait_for(lambda: len(caplog.messages) == n_made)
    assert len(caplog.messages) == n_made


def test_quiet_processes_are_not_watched(monkeypatch) -> None:
    monkeypatch.setenv(QUIET, "1")
    monkeypatch.setattr(announcements._Compilation, "begin", lambda self: pytest.fail("watched"))
    with compiled(OUTER):
        pass


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_line_until_the_end(at_once, monkeypatch, caplog) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(announcements, "REFRESHED", 0.001)
    with compiled(OUTER):
        wait_for(lambda: "compiling" in terminal.getvalue())
    lines = terminal.getvalue().split("\r\033[K")
    assert f"compiling {__name__}.outer: 0 s, 2 of the 2 functions" in lines[1]
    assert lines[-1] == ""


def test_a_function_that_is_loaded_is_not_watched(monkeypatch) -> None:
    monkeypatch.setattr(announcements._Compilation, "begin", lambda self: pytest.fail("watched"))
    with announced(OUTER):
        pass


def test_an_error_ends_the_watch(at_once, caplog) -> None:
    with pytest.raises(KeyboardInterrupt), compiled(OUTER), compiled(INNER):
        raise KeyboardInterrupt
    assert announcements._compilation.functions == []


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
