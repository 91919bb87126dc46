"""Losses for structures: PyTorch criteria for any factor graph."""

from __future__ import annotations

from lpsmap_torch.losses.maxima import (
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
    sparsemap_loss,
)
from lpsmap_torch.losses.random_field import CRFLoss, MarginCRFLoss

__all__ = [
    "CRFLoss",
    "MarginCRFLoss",
    "MarginSparseMAPLoss",
    "PerceptronLoss",
    "SparseMAPLoss",
    "StructuredHingeLoss",
    "sparsemap_loss",
]
