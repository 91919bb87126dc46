"""Every loss with batches of a size at which all their structures can be listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import normal
from lpsmap import AtMostOne, Budget, DepTree, Sequence, Xor
from lpsmap_torch.losses import (
    CRFLoss,
    MarginCRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
)

__all__ = [
    "ALL",
    "FIELDS",
    "MARGINS",
    "PROBLEMS",
    "SMOOTH",
    "TREES",
    "Problem",
    "held",
    "limited",
    "losses",
    "matching",
]

FIELDS = (CRFLoss, MarginCRFLoss)
MARGINS = (MarginSparseMAPLoss, StructuredHingeLoss, MarginCRFLoss)
ALL = (SparseMAPLoss, MarginSparseMAPLoss, PerceptronLoss, StructuredHingeLoss, *FIELDS)
SMOOTH = (SparseMAPLoss, MarginSparseMAPLoss, *FIELDS)


def matching(u: Any) -> list[Any]:
    """One of every row, at most one of every column: factors that interact."""
    return [Xor(u), AtMostOne(u, axis=1)]


def limited(u: Any, **options: Any) -> list[Any]:
    """Trees in which no word has more than one modifier."""
    words = ~np.eye(u.shape[-1], dtype=bool)
    if "lengths" in options:
        inside = np.arange(u.shape[-1]) < np.asarray(options["lengths"])[:, None]
        words = words & inside[:, :, None] & inside[:, None, :]
    else:
        words = np.broadcast_to(words, u.shape)
    return [DepTree(u, **options), Budget(u, 1, axis=-2, mask=words)]


def tagging(u: Any, w: Any, **options: Any) -> Any:
    """Sequences, whose transitions are scored."""
    return Sequence(u, w, **options)


class Problem(NamedTuple):
    """Factors, scores and targets of a batch."""

    factors: Callable[..., Any]
    scores: Tensor
    target: Tensor
    arguments: dict[str, Any]
    interacts: bool = False


TREES = torch.tensor([[0, 0, 1], [1, 1, 1], [2, 2, 2]])
PROBLEMS = {
    "trees": Problem(DepTree, normal(3, 3, 3), TREES, {}),
    "taggings": Problem(
        tagging, normal(2, 3, 3), torch.tensor([[0, 2, 1], [1, 1, 0]]), {"w": normal(3, 3)}
    ),
    "matchings": Problem(
        matching, normal(2, 3, 4, seed=1), torch.tensor([[0, 3, 1], [2, 1, 0]]), {}, True
    ),
    "limited trees": Problem(limited, normal(3, 3, 3, seed=2), TREES * 0 + TREES[:1], {}, True),
}
HELD = [
    (loss, name)
    for loss in ALL
    for name, problem in PROBLEMS.items()
    if loss not in FIELDS or not problem.interacts
]
held = pytest.mark.parametrize(
    ("loss", "name"), HELD, ids=lambda x: x if isinstance(x, str) else x.__name__
)


def losses(loss: type, problem: Problem, scores: Tensor | None = None, **options: Any) -> Tensor:
    """Return the losses of the items of a batch."""
    found: Tensor = loss(problem.factors, reduction="none", **options)(
        problem.scores if scores is None else scores,
        problem.target,
        root="self",
        **problem.arguments,
    )
    return found
