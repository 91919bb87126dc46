"""Handlers of signals wait while a kernel is compiled, and are called afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from lpsmap_jit.deferral import deferred

if not hasattr(signal, "SIGALRM"):
    pytest.skip("there are no such signals", allow_module_level=True)

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1]


class Called(Exception):
    """What the handlers of these tests raise, with their signal."""


def handler(number: int, frame: object) -> None:
    raise Called(signal.Signals(number))


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    before = [signal.signal(number, handler) for number in SIGNALS]
    yield
    for number, other in zip(SIGNALS, before, strict=True):
        signal.signal(number, other)


def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_what_a_handler_raises_comes_at_the_end(number: signal.Signals) -> None:
    """What an alarm raised in LLVM was lost, and once the process with it."""
    reached = False
    with pytest.raises(Called) as raised, deferred():
        send(number)
        reached = True
    assert reached
    assert raised.value.args == (number,)
    assert signal.getsignal(number) is handler


def test_all_handlers_are_called_and_given_back() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    with pytest.raises(Called) as raised, deferred():
        send(signal.SIGALRM, signal.SIGINT, signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert raised.value.args == (signal.SIGINT,)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == [handler] * 2


def test_inner_blocks_call_what_waits() -> None:
    """Kernels are compiled within kernels, for longer than Ctrl-C should wait."""
    with pytest.raises(Called), deferred():
        with pytest.raises(Called), deferred():
            send(signal.SIGINT)
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_ignored_signals_stay_ignored_and_other_threads_have_none() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with deferred():
        send(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    entered: list[bool] = []

    def elsewhere() -> None:
        with deferred():
            entered.append(signal.getsignal(signal.SIGINT) is handler)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert entered == [True]
