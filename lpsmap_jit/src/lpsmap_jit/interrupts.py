"""How Ctrl-C and limits of time reach compiled code.

Python runs a signal's handler in the main thread, between two instructions of its own: while a
kernel runs there, Ctrl-C waits. So every loop of a kernel that may take long asks `interrupted`. In
the main thread that lets Python run its handlers, a few times a second. What they raise is kept,
all threads come out of compiled code, whatever they were at, and `raise_interrupt` raises it. A
limit of time makes kernels come out in the same way, with nothing to raise; and so does Ctrl-C
where it is to end the work rather than to raise.

Every thread has a record of 64-bit words, found by thread-specific storage: kernels need no
argument for it, nor do those that plugins bring.
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

from lpsmap_jit.compile import COMPILED, interpreted_by, leaf
from lpsmap_jit.deadlines import Deadline, when_compiled
from lpsmap_jit.native import integers, keep_error, raise_kept

__all__ = [
    "Watch",
    "halt",
    "interrupted",
    "interruptible",
    "out_of_time",
    "raise_interrupt",
    "renew_deadline",
    "stopped",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_STATE, _LEADER, _DEADLINE, _NEXT_LOOK, _KEPT, _SIZE = 0, 1, 2, 3, 4, 7
"""Words of a record: whether to come out; the address of the record whose first word says so, that
of another thread if this one helps it; two times in nanoseconds; what a handler raised.
"""


class Record(ctypes.c_int64 * _SIZE):  # type: ignore[misc]
    """A thread's record."""

    deadline: Deadline | None
    """Of its `Watch`."""
    group: list[Record]
    """Those of the threads that work together, this one among them."""


_IDLE, _RUNNING, _HALTED, _TIMED_OUT = -1, 0, 1, 2
"""The states of a record; outside of any `Watch` it is idle, and nothing interrupts kernels."""

_NEVER = 2**63 - 1

_PERIOD = 100_000_000
"""Nanoseconds between two times that Python may run its handlers, for which it takes its lock."""

_LONGEST = 1e9
"""Limits of more seconds are none."""

# Two clocks of the same time: the second is cheaper to read, and ticks every few milliseconds.
_EXACT = getattr(time, "CLOCK_MONOTONIC", 0)
_COARSE = 6 if sys.platform == "linux" else _EXACT


class Watch:
    """A stretch of work in which kernels come out if a handler raises, or if the time is up.

    Parameters
    ----------
    max_time
        Seconds from its beginning on, without those that compiling takes; None for no limit.
    leader
        The record of the thread that this one helps, and comes out with.
    within
        A limit of what this is a part of.
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
        record[:] = [_RUNNING, state_at, _time_of(record.deadline), next_look, 0, 0, 0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        record = thread_record()
        try:
            raise_kept(record, _KEPT)
        finally:
            if self._leader is not None:
                record.group.remove(record)
            record[:], record.deadline, record.group = self._before
            record[_DEADLINE] = _time_of(record.deadline)


def interruptible(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let Ctrl-C come through to the kernels that a function calls."""

    @functools.wraps(function)
    def watched(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with Watch():
            return function(*args, **kwargs)

    return watched


def raise_interrupt() -> None:
    """Raise what a handler raised while this thread's kernels ran; to be called after them."""
    raise_kept(thread_record(), _KEPT)


def out_of_time() -> bool:
    """Whether the limit of time was reached, and kernels came out for it."""
    return _state().value == _TIMED_OUT


def thread_record() -> Record:
    """Return this thread's record, made when it is first asked for, kept until the thread ends."""
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
    """Write the deadline of this thread's work anew, for all threads that do it."""
    record = thread_record()
    for one in tuple(record.group):
        one[_DEADLINE] = _time_of(record.deadline)


when_compiled(renew_deadline)


def _time_of(deadline: Deadline | None) -> int:
    """Return a deadline as kernels read it."""
    if deadline is None:
        return _NEVER
    left = deadline.left
    return _NEVER if left >= _LONGEST else _now() + int(1e9 * left)


def _now() -> int:
    """Return the time as kernels read it."""
    if sys.platform == "win32":
        return 1_000_000 * int(_ticks())
    return time.clock_gettime_ns(_EXACT)


if sys.platform == "win32":
    _ticks = ctypes.WINFUNCTYPE(ctypes.c_uint64)(("GetTickCount64", ctypes.windll.kernel32))


if COMPILED:
    from lpsmap_jit.numba_names import add_symbol, cgutils, intrinsic, ir, types

    _api, _pointer = ctypes.pythonapi, ctypes.c_void_p
    _key = ctypes.PYFUNCTYPE(_pointer)(("PyThread_tss_alloc", _api))()
    ctypes.PYFUNCTYPE(ctypes.c_int, _pointer)(("PyThread_tss_create", _api))(_key)
    _set_key = ctypes.PYFUNCTYPE(ctypes.c_int, _pointer, _pointer)(("PyThread_tss_set", _api))
    add_symbol("lpsmap_thread_key", _key)

    def _announce(address: int) -> None:
        """Let kernels find this thread's record."""
        _set_key(_key, address)

    @intrinsic  # type: ignore[untyped-decorator]
    def _record_address(typing_context: Any) -> Any:
        """Return the address of this thread's record; 0 if it has none."""

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

    @intrinsic  # type: ignore[untyped-decorator]
    def _clock(typing_context: Any, which: Any) -> Any:
        """Return the time of a clock in nanoseconds, as `_now` does."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, number = ir.IntType(64), ir.IntType(32)
            if sys.platform == "win32":
                kind = ir.FunctionType(word, [])
                read = cgutils.get_or_insert_function(builder.module, kind, "GetTickCount64")
                return builder.mul(builder.call(read, []), word(1_000_000))
            pair = cgutils.alloca_once(builder, ir.LiteralStructType([word, word]))
            kind = ir.FunctionType(number, [number, pair.type])
            read = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
            builder.call(read, [builder.trunc(values[0], number), pair])
            seconds = builder.load(cgutils.gep_inbounds(builder, pair, 0, 0))
            rest = builder.load(cgutils.gep_inbounds(builder, pair, 0, 1))
            return builder.add(builder.mul(seconds, word(1_000_000_000)), rest)

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def _run_handlers(typing_context: Any, kept: Any) -> Any:
        """Let Python run its signal handlers; false if one raised, which is kept at an address."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            api, number = context.get_python_api(builder), ir.IntType(32)
            lock = api.gil_ensure()
            kind = ir.FunctionType(number, [])
            check = cgutils.get_or_insert_function(builder.module, kind, "PyErr_CheckSignals")
            fine = builder.icmp_signed("==", builder.call(check, []), number(0))
            with builder.if_then(builder.not_(fine)):
                keep_error(builder, api, values[0])
            api.gil_release(lock)
            return fine

        return types.boolean(types.int64), generate

else:

    def _announce(address: int) -> None:
        """Do nothing: there are no kernels, and Python runs its handlers by itself."""


def _stopped() -> bool:
    return _state().value > _RUNNING


def _interrupted() -> bool:
    state = _state()
    if state.value == _RUNNING and _now() >= thread_record()[_DEADLINE]:
        state.value = _TIMED_OUT
    return state.value > _RUNNING


def _halt() -> None:
    state = _state()
    if state.value == _RUNNING:
        state.value = _HALTED


@interpreted_by(_stopped)
@leaf
def stopped() -> bool:
    """Whether kernels are to come out, as far as `interrupted` has seen; cheaper than that."""
    address = _record_address()
    if address == 0:
        return False
    state = integers(integers(address, _SIZE)[_LEADER], 1)
    return state[0] > _RUNNING  # type: ignore[no-any-return]


@interpreted_by(_interrupted)
@leaf
def interrupted() -> bool:
    """Whether kernels are to come out; to be asked by whatever loop of theirs may take long.

    One call takes about as long as ten additions. What a kernel returns after it was true is
    not used, or counts as far as it got: arrays must be such that they can be read.
    """
    address = _record_address()
    if address == 0:
        return False
    record = integers(address, _SIZE)
    state = integers(record[_LEADER], 1)
    if state[0] == _RUNNING:
        now = _clock(_COARSE)
        if record[_DEADLINE] != _NEVER and _clock(_EXACT) >= record[_DEADLINE]:
            state[0] = _TIMED_OUT
        elif now >= record[_NEXT_LOOK]:
            record[_NEXT_LOOK] = now + _PERIOD
            if not _run_handlers(address + 8 * _KEPT):
                state[0] = _HALTED
    return state[0] > _RUNNING  # type: ignore[no-any-return]


@interpreted_by(_halt)
@leaf
def halt() -> None:
    """Let the kernels of this thread and of those that help it come out."""
    address = _record_address()
    if address == 0:
        return
    state = integers(integers(address, _SIZE)[_LEADER], 1)
    if state[0] == _RUNNING:
        state[0] = _HALTED
