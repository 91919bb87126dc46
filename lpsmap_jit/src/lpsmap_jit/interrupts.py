"""Interrupting compiled code by Ctrl-C and time limits.

Python runs signal handlers in the main thread, between two bytecode instructions: while a kernel
runs there, Ctrl-C is pending. Therefore every long loop of a kernel calls `interrupted`. In the
main thread it lets Python run pending handlers a few times a second. An exception that they raise
is stored, all threads return from compiled code, and `raise_interrupt` raises it. A time limit
makes kernels return in the same way without an exception, and so does Ctrl-C if it ends the work
rather than raises.

Every thread has a record of 64-bit words in thread-local storage, so kernels, also those of
plugins, need no argument for it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from lpsmap_jit.by_address import forwarded
from lpsmap_jit.compile import COMPILED, leaf
from lpsmap_jit.deadlines import Deadline, seconds_in_compilation, when_compiled
from lpsmap_jit.native import integers

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_STATE, _LEADER, _DEADLINE, _NEXT_LOOK, _KEPT, _TIME, _SIZE = 0, 1, 2, 3, 4, 7, 9
"""Words of a record: the state; the address of the record with the state of the group, that of
another thread for a helper thread; two times in nanoseconds; the exception of a handler; memory for
the clock.
"""


class Record(ctypes.c_int64 * _SIZE):  # type: ignore[misc]
    """The record of a thread."""

    deadline: Deadline | None
    """The deadline of its `Watch`."""
    group: list[Record]
    """The records of the threads that work together, including this one."""


_IDLE, _RUNNING, _HALTED, _TIMED_OUT = -1, 0, 1, 2
"""The states of a record; outside of any `Watch` it is idle, and kernels are not interrupted."""

_NEVER = 2**63 - 1

_PERIOD = 100_000_000
"""Nanoseconds between two calls of pending handlers, which acquire the GIL."""

_MAX_SECONDS = 1e9
"""Longer time limits, in seconds, are ignored."""

# Two clocks with the same origin: the second is cheaper, with a resolution of milliseconds.
_EXACT = getattr(time, "CLOCK_MONOTONIC", 0)
_COARSE = 6 if sys.platform == "linux" else _EXACT


class Watch:
    """A block in which kernels return early if a handler raises, or after a time limit.

    Parameters
    ----------
    max_time
        Time limit in seconds, without compilation; None for no limit.
    leader
        The record of the thread that this one helps, and is interrupted with.
    within
        A deadline that also applies.
    """

    def __init__(
        self,
        max_time: float | None = None,
        leader: Record | None = None,
        within: Deadline | None = None,
    ) -> None:
        self._max_time, self._leader, self._within = max_time, leader, within

    def __enter__(self) -> Watch:
        record, leader = thread_record(), self._leader
        self._before: tuple[Any, ...] = record[:], record.deadline, record.group
        next_look, state_at = _NEVER, ctypes.addressof(record)
        if leader is None:
            limited = self._max_time is not None or self._within is not None
            record.deadline = Deadline(self._max_time, self._within) if limited else None
            record.group = [record]
            if threading.get_ident() == threading.main_thread().ident:
                next_look = _now() + _PERIOD
        else:
            state_at, record.deadline, record.group = leader[_LEADER], leader.deadline, leader.group
            record.group.append(record)
        record[:] = [_RUNNING, state_at, _time_of(record.deadline), next_look, *[0] * 5]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        record = thread_record()
        try:
            raise_interrupt()
        finally:
            if self._leader is not None:
                record.group.remove(record)
            record[:], record.deadline, record.group = self._before
            record[_DEADLINE] = _time_of(record.deadline)


def interruptible(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let Ctrl-C interrupt the kernels that a function calls."""

    @functools.wraps(function)
    def watched(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with Watch():
            return function(*args, **kwargs)

    return watched


def raise_interrupt() -> None:
    """Raise the exception of a handler that ran during the kernels; to be called after them."""
    record = thread_record()
    if record[_KEPT]:
        kept = record[_KEPT:_TIME]
        record[_KEPT:_TIME] = [0, 0, 0]
        _raise(*kept)


_raise: Any = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", ctypes.pythonapi))
"""Called from Python, it raises the restored exception."""


def out_of_time() -> bool:
    """Return whether kernels returned early because of the time limit."""
    return _state().value == _TIMED_OUT


def halt() -> None:
    """Make the kernels of this thread and its helpers return early."""
    state = _state()
    if state.value == _RUNNING:
        state.value = _HALTED


def thread_record() -> Record:
    """Return the record of this thread, created on first use."""
    try:
        return _of_thread.record  # type: ignore[no-any-return]
    except AttributeError:
        record = _of_thread.record = Record()
        record.deadline, record.group = None, [record]
        address = record[_LEADER] = ctypes.addressof(record)
        record[_STATE] = _IDLE
        _announce(address)
        return record


_of_thread = threading.local()


def _state() -> ctypes.c_int64:
    return ctypes.c_int64.from_address(thread_record()[_LEADER])


def renew_deadline() -> None:
    """Update the deadline in the records of all threads that work together."""
    record = thread_record()
    for one in tuple(record.group):
        one[_DEADLINE] = _time_of(record.deadline)


when_compiled(renew_deadline)


def _time_of(deadline: Deadline | None) -> int:
    """Return a deadline in the units of kernels."""
    if deadline is None:
        return _NEVER
    left = deadline.left
    return _NEVER if left >= _MAX_SECONDS else _now() + int(1e9 * left)


def _now() -> int:
    """Return the time in the units of kernels."""
    if sys.platform == "win32":
        return 1_000_000 * int(_ticks())
    return time.clock_gettime_ns(_EXACT)


if sys.platform == "win32":
    _ticks = ctypes.WINFUNCTYPE(ctypes.c_uint64)(("GetTickCount64", ctypes.windll.kernel32))


def _address_in_python() -> int:
    return ctypes.addressof(thread_record())


def _time_in_python(which: int, time: int) -> int:
    """Return the time at which the interpreted kernel was called: time limits exclude its own."""
    return _now() - int(1e9 * seconds_in_compilation())


def _nothing_pending(kept: int) -> bool:
    """Return True: Python runs its handlers itself, between two instructions."""
    return True


if COMPILED:
    from lpsmap_jit.numba_names import add_symbol, cgutils, ir, types

    _api, _pointer = ctypes.pythonapi, ctypes.c_void_p
    _key = ctypes.PYFUNCTYPE(_pointer)(("PyThread_tss_alloc", _api))()
    ctypes.PYFUNCTYPE(ctypes.c_int, _pointer)(("PyThread_tss_create", _api))(_key)
    _set_key = ctypes.PYFUNCTYPE(ctypes.c_int, _pointer, _pointer)(("PyThread_tss_set", _api))
    add_symbol("lpsmap_thread_key", _key)

    def _announce(address: int) -> None:
        """Register the record of this thread for kernels."""
        _set_key(_key, address)

    def _find_record(typing_context: Any) -> Any:
        """Return the address of the record of this thread; 0 if it has none."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            module, byte = builder.module, ir.IntType(8)
            key = module.globals.get("lpsmap_thread_key")
            if key is None:
                key = ir.GlobalVariable(module, byte, "lpsmap_thread_key")
                key.linkage = "external"
            kind = ir.FunctionType(byte.as_pointer(), [byte.as_pointer()])
            get = cgutils.get_or_insert_function(module, kind, "PyThread_tss_get")
            return builder.ptrtoint(builder.call(get, [key]), ir.IntType(64))

        return types.int64(), generate

    _external = types.ExternalFunction
    _ensure_lock = _external("PyGILState_Ensure", types.int32())
    _release_lock = _external("PyGILState_Release", types.void(types.int32))
    _check_signals = _external("PyErr_CheckSignals", types.int32())
    _fetch_error = _external("PyErr_Fetch", types.void(*[types.int64] * 3))

    @leaf
    def _run_handlers(kept: int) -> bool:
        """Run pending signal handlers; if one raises, store the exception and return false."""
        lock = _ensure_lock()
        fine: bool = _check_signals() == 0
        if not fine:
            _fetch_error(kept, kept + 8, kept + 16)
        _release_lock(lock)
        return fine

    if sys.platform == "win32":
        _count_milliseconds = _external("GetTickCount64", types.int64())

        @leaf
        def _clock(which: int, time: int) -> int:
            """Return the time in nanoseconds, like `_now`."""
            return 1_000_000 * _count_milliseconds()  # type: ignore[no-any-return]

    else:
        _read_clock = _external("clock_gettime", types.int32(types.int32, types.int64))

        @leaf
        def _clock(which: int, time: int) -> int:
            """Return the time of a clock in nanoseconds, read at the address of two words."""
            _read_clock(which, time)
            seconds, rest = integers(time, 2)
            return 1_000_000_000 * seconds + rest  # type: ignore[no-any-return]

    _record_address = forwarded(_find_record, _address_in_python)
    _clock.interpreted = _time_in_python  # type: ignore[attr-defined]
    _run_handlers.interpreted = _nothing_pending  # type: ignore[attr-defined]

else:

    def _announce(address: int) -> None:
        """Do nothing: no compiled code looks for the record."""

    _record_address, _clock = _address_in_python, _time_in_python
    _run_handlers = _nothing_pending


@leaf
def stopped() -> bool:
    """Return whether `interrupted` has returned true; cheaper than another call."""
    address = _record_address()
    if address == 0:
        return False
    state = integers(integers(address, _SIZE)[_LEADER], 1)
    return state[0] > _RUNNING  # type: ignore[no-any-return]


@leaf
def interrupted() -> bool:
    """Return whether kernels must return early; to be called in every long loop of a kernel.

    A call takes about as long as ten additions. After it has returned true, results of the kernel
    are discarded or partial; its arrays must remain readable.
    """
    address = _record_address()
    if address == 0:
        return False
    record = integers(address, _SIZE)
    state = integers(record[_LEADER], 1)
    if state[0] == _RUNNING:
        time = address + 8 * _TIME
        now = _clock(_COARSE, time)
        if record[_DEADLINE] != _NEVER and _clock(_EXACT, time) >= record[_DEADLINE]:
            state[0] = _TIMED_OUT
        elif now >= record[_NEXT_LOOK]:
            record[_NEXT_LOOK] = now + _PERIOD
            if not _run_handlers(address + 8 * _KEPT):
                state[0] = _HALTED
    return state[0] > _RUNNING  # type: ignore[no-any-return]
