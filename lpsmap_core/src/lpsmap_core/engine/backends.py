"""Array libraries and their devices, on which engines and closed forms in array-API code run."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

__all__ = ["Backend", "NumpyBackend"]


class Backend(abc.ABC):
    """An array library that follows the array API standard, and the devices that it finds.

    Plugins offer backends by the hook ``lpsmap_backends``, and
    `lpsmap_core.installed` finds them. Core computes with NumPy; an engine of another library
    names its backend, and the conformance kit holds every closed form in array-API code to its
    NumPy answer on every device here.
    """

    name: ClassVar[str]
    """What the backend is known by, such as ``"torch"``."""

    @abc.abstractmethod
    def devices(self) -> Sequence[str]:
        """Return the names of the devices that are there now; none if the library is missing."""

    @abc.abstractmethod
    def asarray(self, array: npt.NDArray[Any], device: str) -> Any:
        """Return a NumPy array as one of this library's on a device, of the same dtype.

        Parameters
        ----------
        array
            Of any shape; float64, int64, int8 or bool.
        device
            One of `devices`.
        """

    @abc.abstractmethod
    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """Return one of this library's arrays, on whichever device, as a NumPy array."""


class NumpyBackend(Backend):
    """NumPy on the processor."""

    name = "numpy"

    def devices(self) -> Sequence[str]:
        """Return the one device that there is."""
        return ["cpu"]

    def asarray(self, array: npt.NDArray[Any], device: str) -> Any:
        """Return the array."""
        return array

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """Return the array."""
        return np.asarray(array)
