"""torch as an array library for closed forms, on every available device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lpsmap_core import Backend

__all__ = ["TorchBackend"]


class TorchBackend(Backend):
    """torch tensors on the CPU and on every accelerator that supports float64."""

    name = "torch"

    def devices(self) -> Sequence[str]:
        """Return ``cpu``, and ``cuda:0`` and so on if available."""
        return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]

    def asarray(self, array: NDArray[Any], device: str) -> torch.Tensor:
        """Return a copy of a NumPy array as a tensor on a device."""
        return torch.tensor(array, device=device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a tensor as a NumPy array on the host."""
        return np.asarray(array.detach().cpu())
