"""The one place that decides how kernels are compiled.

Kernels are plain Python functions on flat arrays. With numba they are compiled on first use,
release the interpreter lock and are cached on disk; without it, or with ``LPSMAP_DISABLE_JIT=1``,
the same source runs undecorated.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from lpsmap_core.callers import stacklevel

numba: Any
try:
    import numba
except ImportError:  # a Python newer than numba's wheels
    numba = None

__all__ = ["COMPILED", "CompilationNotice", "general_position", "kernel", "leaf"]

COMPILED: bool = numba is not None and os.environ.get("LPSMAP_DISABLE_JIT", "0") in ("", "0")
"""Whether kernels are compiled in this process."""

Function = TypeVar("Function", bound=Callable[..., Any])


class CompilationNotice(UserWarning):
    """Kernels are being compiled for the first time on this machine."""


def kernel(function: Function) -> Function:
    """Compile a function of NumPy arrays and numbers, lock-free at run time and cached on disk.

    Parameters
    ----------
    function
        A function in numba's nopython subset. It must not print, allocate per factor where that is
        avoidable, or rely on relaxed floating-point rules: ``fastmath`` stays off.

    Returns
    -------
    function
        The compiled dispatcher, or ``function`` itself where `COMPILED` is false.

    See Also
    --------
    leaf : for what allocates nothing.
    """
    return _compiled(function, counts=True)


def leaf(function: Function) -> Function:
    """Compile a kernel that allocates nothing, and so counts no references to memory.

    Counting costs an atomic operation for every array that a kernel names, slices or unpacks: up to
    a third of the time of short ones. Without it, memory is held by whoever called.

    Parameters
    ----------
    function
        As for `kernel`. It makes no array but views, returns none, and calls other leaves, or
        kernels that return numbers.

    Returns
    -------
    function
        As of `kernel`.

    Raises
    ------
    TypeError
        While compiling, if it makes an array, or calls a kernel that returns one and is no leaf,
        whose memory would never be freed.
    """
    return _compiled(function, counts=False)


def _compiled(function: Function, counts: bool) -> Function:
    if not COMPILED:
        return function
    # said both ways: what is not said, numba takes from the kernel that is being compiled
    options = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": counts}
    dispatcher: Any = numba.njit(**options)(function)
    compile_or_load = dispatcher.compile
    _guard_cache(dispatcher, Path(function.__code__.co_filename).parent)

    def locked_compile(signature: Any) -> Any:
        # numba's cache files are not safe under concurrent writers (numba#4807, #10128).
        with _one_thread, _cache_lock(dispatcher.stats.cache_path), _announced(dispatcher):
            try:
                address = compile_or_load(signature)
            except numba.core.errors.NumbaError as error:
                if not counts and any(words in str(error) for words in _MADE_AN_ARRAY):
                    raise TypeError(
                        f"leaf {function.__qualname__} makes an array, by a NumPy function or by "
                        "assigning to a slice from another; expected views only. Make it a kernel."
                    ) from error
                raise
        if not counts:
            for compiled in dispatcher.overloads.values():
                _check_leaf(function.__qualname__, compiled.type_annotation)
        return address

    dispatcher.compile = locked_compile
    return dispatcher  # type: ignore[no-any-return]


_MADE_AN_ARRAY = ("NRT required", "Only accept returning of array passed into the function")
"""What numba says of it."""


def _check_leaf(name: str, annotation: Any) -> None:
    """Raise if a leaf calls a kernel that hands it memory to free; loaded ones were checked."""
    for call, signature in getattr(annotation, "calltypes", {}).items():
        if getattr(call, "op", None) != "call":
            continue
        callee = getattr(annotation.typemap[call.func.name], "dispatcher", None)
        if callee is None or not callee.targetoptions.get("_nrt", True):
            continue
        if _holds_arrays(signature.return_type):
            raise TypeError(
                f"leaf {name} calls {callee.py_func.__qualname__}, which returns arrays that it "
                "may have allocated; expected leaves, or kernels that return numbers. Make it a "
                "leaf, too, or the caller a kernel."
            )


def _holds_arrays(kind: Any) -> bool:
    if isinstance(kind, numba.types.BaseTuple):
        return any(_holds_arrays(field) for field in kind.types)
    return isinstance(kind, numba.types.Array)


def _guard_cache(dispatcher: Any, folder: Path) -> None:
    """Make a cached kernel stale when any module of its package changes, or if it is unreadable.

    numba looks at the kernel's own file alone, but compiles into it the kernels of other files; and
    it fails on what names a type that another version of the package had.
    """
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is None or not hasattr(cache_file, "_source_stamp"):
        return
    cache_file._source_stamp = (cache_file._source_stamp, _newest(folder))
    load = cache_file._load_index

    def load_or_forget() -> Any:
        try:
            return load()
        except Exception:
            return {}

    cache_file._load_index = load_or_forget


@functools.cache
def _newest(folder: Path) -> int:
    """Return when a folder's newest module was changed, in nanoseconds."""
    return max((file.stat().st_mtime_ns for file in folder.glob("*.py")), default=0)


@contextmanager
def _cache_lock(cache_path: str | None) -> Iterator[None]:
    """Hold the lock on a cache folder, re-entrant within a process; in vain on a read-only disk."""
    folder = Path(cache_path or tempfile.gettempdir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locks.setdefault(str(folder), FileLock(str(folder / "lpsmap.lock")))
        lock.acquire()
    except OSError:
        yield  # nothing can be written there, hence nothing can be torn
        return
    try:
        yield
    finally:
        lock.release()


_one_thread = threading.RLock()  # taken first, so that threads cannot cross numba's lock and ours
_locks: dict[str, FileLock] = {}
_announcement_made = False

CORE = __name__.partition(".")[0]


@contextmanager
def _announced(dispatcher: Any) -> Iterator[None]:
    """Say once in a process that compiling starts, if this kernel was never cached here."""
    global _announcement_made
    folder, name = dispatcher.stats.cache_path, dispatcher.py_func.__qualname__
    cached = folder is not None and any(Path(folder).glob(f"*.{name}-*.nbi"))
    if not cached and not _announcement_made:
        _announcement_made = True
        package = dispatcher.py_func.__module__.partition(".")[0]
        nothing_yet = folder is None or not any(Path(folder).glob("*.nbi"))
        takes = ": this takes about a minute, once" if nothing_yet and package == CORE else ""
        warnings.warn(
            f"lpsmap compiles kernels of {package} for the first time on this machine{takes}. "
            "Later processes load them in milliseconds.",
            CompilationNotice,
            stacklevel=stacklevel(),
        )
    yield


@leaf
def general_position(i: int, stream: int) -> float:
    """Return the i-th of some fixed numbers in [-1, 1] between which no simple relation holds.

    Every `stream` has numbers of its own, and no two that are equal: the steps are bijections of
    the integers below 2^31 (sums, products with odd numbers, shifts, as in hash functions).
    """
    mask = (1 << 31) - 1
    x = (0x5851F42D * (i + 1) + 0x14057B7F * (stream + 1)) & mask
    x ^= x >> 16
    x = (x * 0x7FEB352D) & mask
    x ^= x >> 15
    x = (x * 0x68E31DA5) & mask
    x ^= x >> 16
    return x * (2.0 / mask) - 1.0
