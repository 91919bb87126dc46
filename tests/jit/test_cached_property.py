"""Cached properties read by threads, and by processes forked while a thread computes one."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lpsmap_jit.cached_property import cached_property


class Box:
    """An object with one property, computed by a function."""

    def __init__(self, compute: Callable[[], object]) -> None:
        self.compute = compute

    @cached_property
    def value(self) -> object:
        """What the function returns."""
        return self.compute()


def test_it_is_computed_once() -> None:
    box, other = Box(object), Box(object)
    assert box.value is box.value
    assert box.value is not other.value


def test_threads_get_the_first_value() -> None:
    together = threading.Barrier(2, timeout=20)

    def compute() -> object:
        together.wait()  # both threads are inside: neither waits for the other
        return object()

    box = Box(compute)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: box.value, range(2))
    assert first is second is box.value


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_forked_meanwhile_reads_it() -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def compute() -> None:
        inside.set()
        goes_on.wait()

    thread = threading.Thread(target=lambda: Box(compute).value)
    thread.start()
    assert inside.wait(20)
    child = multiprocessing.get_context("fork").Process(target=lambda: Box(object).value)
    child.start()
    child.join(20)
    still_waits = child.is_alive()
    child.kill()
    goes_on.set()
    thread.join()
    assert not still_waits
