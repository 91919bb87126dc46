"""Digests of the sources that a kernel may be compiled from.

They depend on content alone, so that kernels compiled elsewhere, or before files were copied, are
recognised.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

numba: Any
try:
    import numba
except ImportError:  # nothing is compiled
    numba = None
else:
    from lpsmap_jit.numba_names import CPUDispatcher


RECORDS = "lpsmap_core"
"""The package that declares the records that kernels of any package may read."""


def packages_of(function: FunctionType) -> list[Path]:
    """Return the folders of the packages that a kernel may be compiled from.

    They are its own, this one, core, and those of the kernels that its modules import by name.
    """
    own = _outermost(Path(__file__).parent)
    todo, seen, found = [function], set(), {own}
    if package_of(function) != own:
        found |= _packages_of_records()
    while todo:
        some = todo.pop()
        found.add(package_of(some))
        if some.__module__ not in seen and package_of(some) != own:  # which imports no other
            seen.add(some.__module__)
            values = list(some.__globals__.values())
            todo += [value.py_func for value in values if isinstance(value, CPUDispatcher)]
    return sorted(found)


def package_of(function: FunctionType) -> Path:
    """Return the folder of a function's outermost package; that of its module if it has none."""
    return _outermost(Path(function.__code__.co_filename).parent)


@functools.cache
def digest_of_package(folder: Path) -> str:
    """Return a digest that changes with any module of a package or of its subpackages.

    Folders that are not packages are skipped. Modules beside a script, of which there may be
    thousands, are not read: their size and time of change are digested.
    """
    is_package = (folder / "__init__.py").exists()
    state_of = digest_of_file if is_package else _status
    files = filter(Path.is_file, folder.rglob("*.py") if is_package else folder.glob("*.py"))
    return short_digest(*sorted((f.relative_to(folder).as_posix(), state_of(f)) for f in files))


def short_digest(*parts: Any) -> str:
    """Return a digest for the name of a file."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def digest_of_file(file: Path) -> str:
    """Return a digest of the content of a file, read again only if its size or time changes."""
    at = file.stat()
    return _digest_of_content(file, at.st_size, at.st_mtime_ns)


@functools.cache
def _digest_of_content(file: Path, size: int, changed: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _status(file: Path) -> str:
    at = file.stat()
    return f"{at.st_size} {at.st_mtime_ns}"


@functools.cache
def _packages_of_records() -> frozenset[Path]:
    spec = importlib.util.find_spec(RECORDS)
    folders: Iterable[str] = () if spec is None else spec.submodule_search_locations or ()
    return frozenset(map(Path, folders))


@functools.cache
def _outermost(folder: Path) -> Path:
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder
