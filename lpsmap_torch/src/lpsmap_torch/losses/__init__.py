"""Losses for structures: PyTorch criteria for any factor graph."""

from __future__ import annotations

from lpsmap_torch.losses.field import CRFLoss, MarginCRFLoss
from lpsmap_torch.losses.maxima import (
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
    sparsemap_loss,
)

__all__ = [
    "CRFLoss",
    "MarginCRFLoss",
    "MarginSparseMAPLoss",
    "PerceptronLoss",
    "SparseMAPLoss",
    "StructuredHingeLoss",
    "sparsemap_loss",
]
