"""Compiled kernels on disk: a file for each signature, validated when it is read.

numba does not validate its cache files: one truncated by a full disk or a crash breaks every later
process. Here a kernel with an invalid file is compiled again, and is not cached if no file can be
written. Files of the platform wheel (`lpsmap_jit.baselines`) are read, too. A file is executed as
code, so it is read only if no other user can write to it or to its folder.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

from filelock import FileLock, Timeout

from lpsmap_jit import sources
from lpsmap_jit.announcements import WAITING, announce
from lpsmap_jit.baselines import Processor, files_of_wheel
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.checked_files import (
    UntrustedError,
    check_trusted,
    read_checked,
    write_checked,
)
from lpsmap_jit.sources import short_digest

numba: Any
with suppress(ImportError):
    import numba

    from lpsmap_jit import linkable_kernels
    from lpsmap_jit.numba_names import CacheFormat, CacheLocator, CompileResult, dumps


NOT_KEPT = (
    "lpsmap compiles kernels in every process, which takes up to a minute each time: they cannot "
    "be cached on disk ({reason}). Set the environment variable NUMBA_CACHE_DIR to a writable "
    "folder on a disk with free space."
)

NOT_TRUSTED = (
    "lpsmap compiles kernels that are cached on disk, because {reason}, and kernels are code: "
    "whoever writes them can do all that you can. Remove the permission with `chmod -R go-w` on a "
    "folder of your own, or set the environment variable NUMBA_CACHE_DIR to another folder."
)


class CompilationNotice(UserWarning):
    """Compiled kernels cannot be cached on disk."""


class KernelCache:
    """The cache of a kernel, with the interface of numba.

    The name of a file consists of the kernel and digests of the sources that may be compiled into
    it, of the signature and of the processor. The file contains a digest of its name and content,
    followed by the content.
    """

    n_compiled: ClassVar[int] = 0
    """Number of functions that this process has compiled rather than loaded."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._folder: Path | None = None
        with suppress(RuntimeError):  # numba found no writable folder
            self._format = CacheFormat(function)
            self._folder = Path(self._format.locator.get_cache_path())
        # digests at import: sources may be edited before the kernel is compiled
        self._source = _digest_of_source(function)  # whether or not it is in a package
        sources.digest_of_package(sources.package_of(function))

    @property
    def cache_path(self) -> str | None:
        """The folder of the files; None if no folder can be written."""
        return None if self._folder is None else str(self._folder)

    @cached_property
    def lock_path(self) -> Path | None:
        """The lock of the kernel's files; None if no folder can be written.

        Its holder may acquire the locks of kernels that this one calls. Calls have no cycles, so
        processes cannot deadlock, and other processes can compile other kernels meanwhile.
        """
        return None if self._folder is None else self._folder / f"{self._name}.lock"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled code for a signature, or None if it has to be compiled."""
        target.refresh()
        for path in self._paths(signature, target.codegen().magic_tuple()):
            with suppress(Exception):  # try the next file, and then compile, on any error
                kept, compiled = pickle.loads(_read(path))
                if kept == signature:  # different types may have the same name
                    return self._rebuilt(target, compiled)
        announce(self._function)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Cache the compiled code for a signature, if there is free space."""
        KernelCache.n_compiled += 1
        if self._folder is None:
            _warn_once(NOT_KEPT, reason="no folder can be written")
            return
        if not self._format.check_cachable(compiled):
            return
        content = dumps((signature, self._reduced(compiled)))
        path = next(self._paths(signature, compiled.codegen.magic_tuple()))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            check_trusted(self._folder)
            for other in self._folder.glob(f"{self._name}.*"):
                current = other.suffix == ".nbc" and other.name.startswith(self._stem)
                if not current and other != self.lock_path:
                    other.unlink()  # of other sources, or incomplete
            write_checked(path, content)
        except OSError as error:
            _warn_once(NOT_KEPT, reason=str(error))
        except UntrustedError as error:
            _warn_once(NOT_TRUSTED, reason=str(error))

    def has_some(self, target: Any) -> bool:
        """Return whether the kernel is cached for any signature."""
        folders = [folder for folder, _ in self._folders(target.codegen().magic_tuple())]
        return any(True for folder in folders for _ in folder.glob(f"{self._stem}*.nbc"))

    def flush(self) -> None:
        """Remove the files of the kernel."""
        for path in () if self._folder is None else self._folder.glob(f"{self._stem}*"):
            path.unlink()

    def _reduced(self, compiled: Any) -> Any:
        """Return the part of the compiled code that can be pickled."""
        return compiled._reduce()

    def _rebuilt(self, target: Any, reduced: Any) -> Any:
        return CompileResult._rebuild(target, *reduced)

    @cached_property
    def _stem(self) -> str:
        """The prefix of the names of files with the current sources."""
        packages = map(sources.digest_of_package, sources.packages_of(self._function))
        return f"{self._name}.{short_digest(*sorted(packages))}."

    @property
    def _name(self) -> str:
        """The prefix of the names of all files of the kernel."""
        code = self._function.__code__
        name = f"{Path(code.co_filename).stem}.{self._function.__qualname__}-{code.co_firstlineno}"
        version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        return f"{name.replace('<', '').replace('>', '')}.{version}"  # illegal on Windows

    def _folders(self, processor: Processor) -> Iterator[tuple[Path, Processor]]:
        """Yield the folders of files that a processor can run, and what they are compiled for.

        The folder where numba would write first is read even if it cannot be written.
        """
        file = self._function.__code__.co_filename
        first = Path(file).parent / "__pycache__"
        if numba.config.CACHE_DIR:
            first = Path(numba.config.CACHE_DIR, CacheLocator.get_suitable_cache_subpath(file))
        for folder in dict.fromkeys([self._folder, first]):
            if folder is not None:
                yield folder, processor
        yield from files_of_wheel(processor)

    def _paths(self, signature: Any, processor: Processor) -> Iterator[Path]:
        """Yield the paths where the compiled code for a signature may be, the cache's first."""
        cells = self._function.__closure__ or ()
        closure = dumps([cell.cell_contents for cell in cells]) if cells else None
        build = (numba.__version__, numba.config.BOUNDSCHECK)
        kernel = (self._function.__module__, self._source, closure)
        for folder, target in self._folders(processor):
            yield folder / f"{self._stem}{short_digest(signature, build, target, kernel)}.nbc"


class PartCache(KernelCache):
    """The cache of a linkable kernel; see `lpsmap_jit.linkable_kernels`."""

    @property
    def _name(self) -> str:
        name, _, line = super()._name.rpartition("-")
        return f"{name}-part-{line}"

    def _reduced(self, compiled: Any) -> Any:
        return linkable_kernels.stored(compiled)

    def _rebuilt(self, target: Any, reduced: Any) -> Any:
        return linkable_kernels.restored(target, reduced)


def _digest_of_source(function: FunctionType) -> str:
    """Return a digest of the file, or notebook cell, with a function."""
    file = Path(function.__code__.co_filename)
    if file.is_file():
        return sources.digest_of_file(file)
    with suppress(OSError):
        return short_digest(inspect.getsource(function))
    return ""


def _read(path: Path) -> memoryview:
    """Return the content of a file; the exceptions are those of `read_checked`."""
    try:
        if path.exists():
            check_trusted(path.parent)
        return read_checked(path)
    except UntrustedError as error:
        _warn_once(NOT_TRUSTED, reason=str(error))
        raise


_said: set[str] = set()


def _warn_once(message: str, **details: str) -> None:
    if message not in _said:
        _said.add(message)
        warnings.warn(message.format(**details), CompilationNotice, stacklevel=stacklevel())


# -------------------------------------------------------------------- locks

_locks: dict[Path, FileLock] = {}
if hasattr(os, "register_at_fork"):  # a forked process cannot use the lock of its parent
    os.register_at_fork(after_in_child=_locks.clear)

LONGEST_WAIT = 600.0
"""Maximum seconds to wait for another process that compiles the same kernel."""


@contextmanager
def locked(dispatcher: Any) -> Iterator[None]:
    """Hold the lock on the files of a kernel, re-entrant within a process.

    It keeps processes that start together from compiling the same kernels; where it cannot be had,
    they do, for files are whole at any time.
    """
    path, held = dispatcher._cache.lock_path, None
    # nothing can be written, the disk has no locks, or the wait is too long
    with suppress(OSError, NotImplementedError):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _locks.setdefault(path, FileLock(path))
            _acquire(lock, dispatcher.py_func)
            held = lock
    try:
        yield
    finally:
        if held is not None:
            held.release()


def _acquire(lock: FileLock, function: FunctionType) -> None:
    try:
        lock.acquire(timeout=0.0)
    except Timeout:
        announce(function, WAITING)
        lock.acquire(timeout=LONGEST_WAIT)
