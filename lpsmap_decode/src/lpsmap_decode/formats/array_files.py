"""Arrays in a separate file next to a graph's file, as `numpy.savez` writes them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import reserve_memory
from lpsmap_decode.formats.file_format import FileFormatError

Arrays = Mapping[str, npt.NDArray[Any]]


def read_arrays(folder: Path, name: str) -> Arrays:
    """Return the arrays of the file `name` directly in `folder`.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If `name` has a path, or the file was not written by `numpy.savez`.
    """
    if not name or Path(name).name != name:
        raise FileFormatError(f"got {name[:60]!r}; expected a file name without a folder")
    path = folder / name
    if path.exists() and not path.is_file():
        raise FileFormatError(
            f"{path}: is not a regular file; expected arrays written by numpy.savez"
        )
    try:
        with zipfile.ZipFile(path) as whole:
            if sum(x.file_size for x in whole.infolist()) > path.stat().st_size:
                raise ValueError("it is compressed or truncated")
            reserve_memory(path.stat().st_size, f"the arrays of {name}")
            return {x.filename[:-4]: _array(whole, x) for x in whole.infolist()}
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{path}: {error}; expected arrays of numbers, written by numpy.savez"
        ) from error


def resolved(value: Any, arrays: Arrays) -> Any:
    """Return the array for ``{"array": name}``, and any other value unchanged."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"array"}:
        raise ValueError(f'got {value!r:.60}; expected numbers, or {{"array": "name"}}')
    name = value["array"]
    if name not in arrays:
        there = ", ".join(sorted(arrays)[:10]) or "none"
        raise ValueError(f"there is no array {name!r:.60}; expected one of: {there}")
    return arrays[name]


def _array(whole: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array, after a check that the file has the size that its header declares."""
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename[:60]!r} is not an array, or is compressed")
    with whole.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{member.filename[:60]!r} has format version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{member.filename[:60]!r} has shape {shape!r:.60} of {dtype!s:.60}")
        file.seek(0)
        found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found
