"""Attention by sequences."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lpsmap_core import Variables
from lpsmap_core.api import checked_count
from lpsmap_torch.layers.layer import Lengths, Mask, factor_type
from lpsmap_torch.layers.layout import Declared, Tied
from lpsmap_torch.layers.pairs import PairLayer

__all__ = ["SequenceAttention"]


class SequenceAttention(PairLayer):
    """Attention of rows to columns: a mixture of few sequences of columns, a column a row.

    What follows what is scored by its distance, in bins, so that the layer learns to go on
    monotonically, or to jump (Niculae et al. 2018, section 5.2). For attention from the columns,
    use another layer on the transposed scores.

    Parameters
    ----------
    reach
        From which distance on steps share a score: with 2, as in the paper, the bins are -2 or
        less, -1, 0, 1, 2 or more.
    max_iter, max_inner_iter, tol, step_size, adapt, relaxation, threads, engine
        As for `FactorGraph.solve`.

    Attributes
    ----------
    distances
        (2 * reach + 1,) scores of the steps; a parameter, as are `initial` and `final`.
    initial, final
        (reach,) scores of the first and last columns, as for `SequenceDistance`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers of the batch's shape with an axis of two, rows
    and columns; axes of the batch may be 1, and the last ones left out. A mask says which pairs are
    allowed, and broadcasts to the scores; rows and columns of no pair have weights of zero, and
    have to come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("reach",)

    def __init__(self, reach: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.reach = reach = checked_count("SequenceAttention: reach", reach)
        self.initial = nn.Parameter(torch.empty(reach))
        self.distances = nn.Parameter(torch.empty(2 * reach + 1))
        self.final = nn.Parameter(torch.empty(reach))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Score all steps with zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declared:
        """Return a sequence an instance."""
        allowed = self._allowed(u.shape, lengths, mask)
        if not allowed.any():
            return Declared([])
        rectangles, forbidden = self._rectangles(allowed)
        distances = np.zeros((*u.shape[:-2], 2 * self.reach + 1))
        sequence = factor_type("SequenceDistance")(u, distances, lengths=rectangles)
        return Declared([sequence], forbidden, (Tied(sequence, np.arange(n_weights)),))

    def _weights(self) -> Tensor:
        return torch.cat([self.initial, self.distances, self.final])

    def _own_repr(self) -> dict[str, Any]:
        return {"reach": self.reach}
