"""What is given to project, and the proof that nothing satisfies the constraints."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch

__all__ = ["Projections", "proves_infeasible"]

PROVED = 1e-9
"""By how much, relative to its summed magnitudes, a certificate of infeasibility has to hold."""


class Projections(NamedTuple):
    """What is projected onto the constraints of a batch."""

    batch: Batch
    eta: Tensor
    """(n, n_variables) finite scores."""
    open: Tensor
    """(n, n_variables) whether a variable may move."""
    fixed: Tensor
    """(n, n_variables) what the others are."""


def proves_infeasible(of: Projections, y: Tensor) -> Tensor:
    """Return whether multipliers prove that nothing satisfies the constraints (Farkas' lemma).

    The sums weighted by y would have to be at least the first number, and are at most the second.
    """
    batch = of.batch
    y = torch.where(torch.where(y > 0.0, batch.low, batch.high).isinf(), 0.0, y)
    y = y / y.abs().amax(-1, keepdim=True).clamp(min=1.0)
    asked = torch.where(y == 0.0, 0.0, y * torch.where(y > 0.0, batch.low, batch.high))
    pull = batch.pull(y)
    given = torch.where(of.open, pull.clamp(min=0.0), of.fixed * pull)
    size = asked.abs().sum(-1, keepdim=True) + given.abs().sum(-1, keepdim=True)
    margin = asked.sum(-1, keepdim=True) - given.sum(-1, keepdim=True)
    return margin > PROVED * size
