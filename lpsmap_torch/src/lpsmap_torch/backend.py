"""torch as an array library, on every available device; imported with the first array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import Backend

if TYPE_CHECKING:
    import torch


class TorchBackend(Backend):
    """torch tensors on the CPU and on every accelerator that supports float64."""

    name = "torch"

    def devices(self) -> Sequence[str]:
        """Return ``cpu``, and ``cuda:0`` and so on if available."""
        import torch

        return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]

    def asarray(self, array: NDArray[Any], device: str) -> torch.Tensor:
        """Return a copy of a NumPy array as a tensor on a device."""
        import torch

        return torch.tensor(array, device=device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a tensor as a NumPy array on the host."""
        return np.asarray(array.detach().cpu())
