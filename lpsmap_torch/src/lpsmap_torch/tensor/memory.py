"""The memory that a batch may take on its device."""

from __future__ import annotations

import torch

__all__ = ["batch_bytes"]

SHARE = 0.5
"""Share of a GPU's unused memory for a batch. The rest is for solutions of other batches, and for
what a network needs before the next solve of the same layout."""

HOST_BYTES = 2**32
"""The same on other devices. There a launch costs little, so that a fixed number is best: with the
same batches, runs have the same bits."""


def batch_bytes(device: torch.device) -> int:
    """Return how many bytes a batch may take on a device."""
    if device.type != "cuda":
        return HOST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(SHARE * (free + cached))
