"""A data set whose items are solved by the workers that load them, spawned ones too."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lpsmap_torch.layers import LPMatchingAttention, Rationale

__all__ = ["SolvedItems"]


class SolvedItems(Dataset):
    """Items that a worker solves, by layers that came with the data set."""

    def __init__(self) -> None:
        self.layers = Rationale(2), LPMatchingAttention(threads=2)
        self.scores = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.scores)

    @torch.no_grad()
    def __getitem__(self, i: int) -> Tensor:
        one, two = self.layers
        return torch.cat([one(self.scores[i]), two(self.scores[i].reshape(8, 8)).reshape(-1)])
