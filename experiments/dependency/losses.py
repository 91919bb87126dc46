"""The compared losses, by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import torch
from torch import Tensor, nn

from experiments.dependency.data import Batch
from experiments.dependency.parser import Scores
from experiments.dependency.structures import sibling_tables, tree_factors
from lpsmap_torch.losses import (
    CRFLoss,
    MarginSparseMAPLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
)

__all__ = ["Loss", "ParserLoss"]

COST = 0.5
"""The cost of a wrong arc: 1 for a wrong head, as in Kiperwasser & Goldberg (2016)."""


class Loss(str, Enum):
    """The rows of Table 1."""

    SVM = "svm"
    CRF = "crf"
    SPARSEMAP = "sparsemap"
    MARGIN_SPARSEMAP = "m-sparsemap"


class ParserLoss:
    """The mean loss of a batch of sentences.

    Parameters
    ----------
    loss
        Which one.
    single_root
        Whether the root has exactly one modifier.
    labelled
        Whether arcs have relations.
    """

    def __init__(self, loss: Loss, *, single_root: bool, labelled: bool) -> None:
        factors = partial(tree_factors, single_root=single_root, labelled=labelled)
        self._labelled = labelled
        makers: dict[Loss, Callable[..., nn.Module]] = {
            Loss.SVM: partial(StructuredHingeLoss, cost=COST),
            Loss.CRF: CRFLoss,
            Loss.SPARSEMAP: SparseMAPLoss,
            Loss.MARGIN_SPARSEMAP: partial(MarginSparseMAPLoss, cost=COST),
        }
        self._criterion = makers[loss](factors)

    def __call__(self, scores: Scores, batch: Batch) -> Tensor:
        """Return the mean over the batch's sentences."""
        siblings = None if scores.siblings is None else sibling_tables(*scores.siblings)
        target = batch.heads
        if self._labelled:
            target = labelled_target(batch, scores.arcs)
        value: Tensor = self._criterion(
            scores.arcs, target, lengths=batch.lengths, siblings=siblings
        )
        return value


def labelled_target(batch: Batch, scores: Tensor) -> Tensor:
    """Return 1 at the gold arcs' relations, and 0 elsewhere, in the shape of the scores."""
    word = torch.arange(batch.heads.shape[1])
    there = word < batch.lengths[:, None]
    # arcs from the root are on the diagonal
    slots = torch.where(batch.heads < 0, word, batch.heads)
    sentence, words = there.nonzero(as_tuple=True)
    target = torch.zeros(scores.shape)
    target[sentence, words, slots[there], batch.relations[there]] = 1.0
    return target
