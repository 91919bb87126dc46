"""torch as a library of arrays for closed forms, on every device that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lpsmap_core import Backend

__all__ = ["TorchBackend"]


class TorchBackend(Backend):
    """torch tensors on the processor and on every accelerator that computes in float64."""

    name = "torch"

    def devices(self) -> Sequence[str]:
        """Return ``cpu``, and ``cuda:0`` and so on where there are any."""
        return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]

    def asarray(self, array: NDArray[Any], device: str) -> torch.Tensor:
        """Return a copy of a NumPy array as a tensor on a device."""
        return torch.tensor(array, device=device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a tensor as a NumPy array on the host."""
        return np.asarray(array.detach().cpu())
