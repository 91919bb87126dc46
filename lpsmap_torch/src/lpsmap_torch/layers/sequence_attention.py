"""Sequence attention."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.types import Device

from lpsmap_core import Variables
from lpsmap_core.api import checked_count
from lpsmap_torch.built_graph import Declarations, SharedScores
from lpsmap_torch.layers.checks import Instances
from lpsmap_torch.layers.factor_types import factor_type
from lpsmap_torch.layers.pairs import PairLayer

__all__ = ["SequenceAttention"]


class SequenceAttention(PairLayer):
    """Attention of rows to columns: a sparse mixture of sequences with one column per row.

    Steps between columns are scored by their distance, in bins, so that the layer can learn to
    proceed monotonically or to jump (Niculae et al. 2018, section 5.2). For attention from the
    columns, use another layer on the transposed scores.

    Parameters
    ----------
    reach
        The distance from which on steps share a score: with 2, as in the paper, the bins are -2 or
        less, -1, 0, 1, and 2 or more.
    device, dtype
        Of the parameters, as in the modules of `torch.nn`.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Attributes
    ----------
    distances
        (2 * reach + 1,) scores of steps; a parameter, like `initial` and `final`.
    initial, final
        (reach,) scores of the first and last columns, as in `SequenceDistance`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers in the shape of the batch with a last axis of
    two, rows and columns; axes of the batch may be 1, and the last ones may be omitted. A mask
    marks the allowed pairs, and broadcasts to the scores; rows and columns without pairs have
    weights of zero, and must come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("reach",)

    def __init__(
        self,
        reach: int = 2,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.reach = reach = checked_count("SequenceAttention: reach", reach)
        empty = partial(torch.empty, device=device, dtype=dtype)
        self.initial = nn.Parameter(empty(reach))
        self.distances = nn.Parameter(empty(2 * reach + 1))
        self.final = nn.Parameter(empty(reach))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scores of all steps to zero."""
        for parameter in (self.initial, self.distances, self.final):
            nn.init.zeros_(parameter)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return one sequence per instance."""
        allowed = self._allowed(u.shape, instances)
        if not allowed.any():
            return Declarations([])
        rectangles, forbidden = self._rectangles(allowed)
        lengths = None if instances.are_whole else rectangles  # losses tell them from full ones
        distances = np.zeros((*u.shape[:-2], 2 * self.reach + 1))
        sequence = factor_type("SequenceDistance")(u, distances, lengths=lengths)
        shared = SharedScores(sequence, np.arange(n_parameters))
        return Declarations([sequence], forbidden, (shared,))

    def _weights(self) -> Tensor:
        return torch.cat([self.initial, self.distances, self.final])

    def _repr_arguments(self) -> dict[str, Any]:
        return {"reach": self.reach}
