"""Compiled kernels on disk: a file for each signature, validated when it is read.

numba does not validate its cache files: one truncated by a full disk or a crash breaks every later
process. Here a kernel with an invalid file is compiled again, and is not cached if no file can be
written.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pickle
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any

from filelock import FileLock

from lpsmap_jit.callers import stacklevel

numba: Any
with suppress(ImportError):
    import numba

    from lpsmap_jit import linkable_kernels
    from lpsmap_jit.numba_names import CacheFormat, CPUDispatcher, dumps

__all__ = ["CompilationNotice", "keep_on_disk", "locked"]

FIRST_TIME = (
    "lpsmap compiles kernels of {package} for the first time on this machine{takes}. Later "
    "processes load them in milliseconds."
)
A_MINUTE = ": this takes about a minute, once"
NOT_KEPT = (
    "lpsmap compiles its kernels in every process, which takes about a minute each time: they "
    "cannot be cached on disk ({reason}). Set the environment variable NUMBA_CACHE_DIR to a "
    "writable folder on a disk with free space."
)


class CompilationNotice(UserWarning):
    """Kernels are compiled for the first time on this machine, or cannot be cached on disk."""


def keep_on_disk(dispatcher: Any, is_part: bool = False) -> None:
    """Give a kernel an on-disk cache of compiled code."""
    try:
        dispatcher._cache = (PartCache if is_part else KernelCache)(dispatcher.py_func)
    except RuntimeError:  # numba found no writable folder
        dispatcher._cache = NoCache()


class KernelCache:
    """The cache of a kernel, with the interface of numba.

    The name of a file consists of the kernel and digests of the sources that may be compiled into
    it and of the signature. The file contains a digest of its name and content, followed by the
    content.

    Raises
    ------
    RuntimeError
        If there is no writable folder for the files.
    """

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._format = CacheFormat(function)
        self._folder = Path(self._format.locator.get_cache_path())
        # stamps at import: sources may be edited before the kernel is compiled
        self._source = self._format.locator.get_source_stamp()  # whether or not it is in a package
        _stamp(_package(function))

    @property
    def cache_path(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    @functools.cached_property
    def lock_path(self) -> Path:
        """The lock of the kernel's files.

        Its holder may acquire the locks of kernels that this one calls. Calls have no cycles, so
        processes cannot deadlock, and other processes can compile other kernels meanwhile.
        """
        return self._folder / f"{self._name}.lock"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled code for a signature, or None if it has to be compiled."""
        target.refresh()
        try:
            kept, compiled = pickle.loads(_read(self._path(signature, target.codegen())))
            # different types may have the same name
            return self._rebuilt(target, compiled) if kept == signature else None
        except FileNotFoundError:
            self._announce()
        except Exception:  # compile again on any error
            pass
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Cache the compiled code for a signature, if there is free space."""
        if not self._format.check_cachable(compiled):
            return
        content = _dumps((signature, self._reduced(compiled)))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in self._folder.glob(f"{self._name}.*"):
                current = path.suffix == ".nbc" and path.name.startswith(self._stem)
                if not current and path != self.lock_path:
                    path.unlink()  # of other sources, or incomplete
            _write(self._path(signature, compiled.codegen), content)
        except OSError as error:
            _warn_once(NOT_KEPT, reason=str(error))

    def has_some(self) -> bool:
        """Return whether the kernel is cached for any signature."""
        return any(self._folder.glob(f"{self._stem}*.nbc"))

    def flush(self) -> None:
        """Remove the files of the kernel."""
        for path in self._folder.glob(f"{self._stem}*"):
            path.unlink()

    def _reduced(self, compiled: Any) -> Any:
        """Return the part of the compiled code that can be pickled."""
        return self._format.reduce(compiled)

    def _rebuilt(self, target: Any, reduced: Any) -> Any:
        """Rebuild the compiled code."""
        return self._format.rebuild(target, reduced)

    @functools.cached_property
    def _stem(self) -> str:
        """The prefix of the names of files with the current sources."""
        stamps = map(_stamp, _packages(self._function))
        return f"{self._name}.{_short_digest(*stamps)}."

    @property
    def _name(self) -> str:
        """The prefix of the names of all files of the kernel."""
        return str(self._format.filename_base)

    def _path(self, signature: Any, codegen: Any) -> Path:
        cells = self._function.__closure__ or ()
        closure = _dumps([cell.cell_contents for cell in cells]) if cells else None
        build = (numba.__version__, numba.config.BOUNDSCHECK, *codegen.magic_tuple())
        key = _short_digest(signature, build, closure, self._source)
        return self._folder / f"{self._stem}{key}.nbc"

    def _announce(self) -> None:
        """Announce compilation, if the kernel was never cached here."""
        name, _, _ = self._name.rpartition("-")  # without the line of the source
        if any(self._folder.glob(f"{name}-*.nbc")):
            return
        package = self._function.__module__.partition(".")[0]
        nothing_yet = package == LARGE and not any(self._folder.glob("*.nbc"))
        _warn_once(FIRST_TIME, package=package, takes=A_MINUTE if nothing_yet else "")


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


class NoCache:
    """The interface of a cache if there is no writable folder."""

    cache_path = None
    lock_path = None

    def load_overload(self, signature: Any, target: Any) -> None:
        """Load nothing."""
        _warn_once(NOT_KEPT, reason="no folder can be written")

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save nothing."""

    def has_some(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Remove nothing."""


LARGE = "lpsmap_core"
"""The package whose kernels take a minute to compile in a first solve."""

_said: set[str] = set()


def _warn_once(message: str, **details: str) -> None:
    if message not in _said:
        _said.add(message)
        warnings.warn(message.format(**details), CompilationNotice, stacklevel=stacklevel())


# -------------------------------------------------------------------- files


def _read(path: Path) -> memoryview:
    """Return the content of a file.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is damaged.
    """
    held = memoryview(path.read_bytes())
    size = hashlib.sha256().digest_size
    if held[:size] != _digest(path, held[size:]):
        raise ValueError(f"{path}: damaged")
    return held[size:]


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
    try:
        with unfinished.open("wb") as file:
            file.write(_digest(path, content))
            file.write(content)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _digest(path: Path, content: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(path.name.encode())
    digest.update(content)
    return digest.digest()


def _short_digest(*parts: Any) -> str:
    """Return a digest for the name of a file."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _dumps(content: Any) -> bytes:
    dumped: bytes = dumps(content)
    return dumped


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
            lock.acquire(timeout=LONGEST_WAIT)
            held = lock
    try:
        yield
    finally:
        if held is not None:
            held.release()


# -------------------------------------------------------------------- sources


def _packages(function: FunctionType) -> list[Path]:
    """Return the packages that a kernel may be compiled from.

    They are its own, this one, core, and those of the kernels that its modules import by name.
    """
    own = _outermost(Path(__file__).parent)
    todo, seen, found = [function], set(), {own}
    if _package(function) != own:
        found |= _packages_of_records()
    while todo:
        some = todo.pop()
        found.add(_package(some))
        if some.__module__ not in seen and _package(some) != own:  # which imports no other
            seen.add(some.__module__)
            values = list(some.__globals__.values())
            todo += [value.py_func for value in values if isinstance(value, CPUDispatcher)]
    return sorted(found)


@functools.cache
def _packages_of_records() -> frozenset[Path]:
    """Return where the records are declared that kernels of any package may read: core."""
    spec = importlib.util.find_spec(LARGE)
    return (
        frozenset() if spec is None else frozenset(map(Path, spec.submodule_search_locations or ()))
    )


def _package(function: FunctionType) -> Path:
    """Return the folder of a function's outermost package; that of its module if it has none."""
    return _outermost(Path(function.__code__.co_filename).parent)


@functools.cache
def _outermost(folder: Path) -> Path:
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


@functools.cache
def _stamp(folder: Path) -> str:
    """Return a digest that changes with any module of a package or of its subpackages.

    Folders that are not packages are skipped.
    """
    is_package = (folder / "__init__.py").exists()
    files = filter(Path.is_file, folder.rglob("*.py") if is_package else folder.glob("*.py"))
    status = sorted((str(file.relative_to(folder)), file.stat()) for file in files)
    return _short_digest(*((name, at.st_size, at.st_mtime_ns) for name, at in status))
