"""Arrays in a file beside a graph's own, as `numpy.savez` writes them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.plugins.formats import FileFormatError

__all__ = ["Arrays"]


class Arrays:
    """Arrays by name.

    Parameters
    ----------
    arrays
        What there is.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        self._arrays = dict(arrays or {})

    @classmethod
    def read(cls, folder: Path, name: str) -> Arrays:
        """Return the arrays in a file of a folder, which has to be right there.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If it is elsewhere, or not what `numpy.savez` writes.
        """
        if not name or Path(name).name != name:
            raise FileFormatError(f"got {name[:60]!r}; expected the name of a file beside this one")
        path = folder / name
        if path.exists() and not path.is_file():
            raise FileFormatError(f"{path}: is no regular file; expected arrays of numpy.savez")
        try:
            with zipfile.ZipFile(path) as whole:
                if sum(x.file_size for x in whole.infolist()) > path.stat().st_size:
                    raise ValueError("it is compressed, or promises more than it has")
                return cls({x.filename[:-4]: _array(whole, x) for x in whole.infolist()})
        except (
            ValueError,
            EOFError,
            NotImplementedError,
            RuntimeError,
            zipfile.BadZipFile,
        ) as error:
            raise FileFormatError(
                f"{path}: {error}; expected arrays of numbers, as numpy.savez writes them"
            ) from error

    def resolve(self, value: Any) -> Any:
        """Return the array that ``{"array": name}`` stands for, and anything else as it is."""
        if not isinstance(value, dict):
            return value
        if set(value) != {"array"}:
            raise ValueError(f'got {value!r:.60}; expected numbers, or {{"array": "name"}}')
        name = value["array"]
        if name not in self._arrays:
            there = ", ".join(sorted(self._arrays)[:10]) or "none"
            raise ValueError(f"there is no array {name!r:.60}; expected one of: {there}")
        return self._arrays[name]


def _array(whole: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array; what its header promises has to be there."""
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename[:60]!r} is no array, or compressed")
    with whole.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{member.filename[:60]!r} is of version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{member.filename[:60]!r} has shape {shape!r:.60} of {dtype!s:.60}")
    with whole.open(member) as file:
        found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found
