"""The projections of a batch as a problem, and certificates of infeasibility."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch

__all__ = ["Projections", "proves_infeasible"]

PROVED = 1e-9
"""Minimum margin of a certificate of infeasibility, relative to its summed magnitudes."""


class Projections(NamedTuple):
    """Scores to project onto the constraints of a batch."""

    batch: Batch
    eta: Tensor
    """(n, n_variables) finite scores."""
    open: Tensor
    """(n, n_variables) whether a variable is not fixed."""
    fixed: Tensor
    """(n, n_variables) values of fixed variables."""


def proves_infeasible(problems: Projections, y: Tensor) -> Tensor:
    """Return whether multipliers prove that the constraints are infeasible (Farkas' lemma).

    They do if the least value that the constraints require of the sums, weighted by y, is larger
    than the largest value that the variables attain.
    """
    batch = problems.batch
    y = torch.where(torch.where(y > 0.0, batch.low, batch.high).isinf(), 0.0, y)
    y = y / y.abs().amax(-1, keepdim=True).clamp(min=1.0)
    required = torch.where(y == 0.0, 0.0, y * torch.where(y > 0.0, batch.low, batch.high))
    pull = batch.pull(y)
    attained = torch.where(problems.open, pull.clamp(min=0.0), problems.fixed * pull)
    size = required.abs().sum(-1, keepdim=True) + attained.abs().sum(-1, keepdim=True)
    margin = required.sum(-1, keepdim=True) - attained.sum(-1, keepdim=True)
    return margin > PROVED * size
