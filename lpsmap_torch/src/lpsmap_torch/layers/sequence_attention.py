"""Sequence attention."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.types import Device

from lpsmap_core import Factor, Variables
from lpsmap_core.api import checked_count
from lpsmap_torch.built_graph import Declarations, SharedScores, factor_type
from lpsmap_torch.layers.checks import Instances
from lpsmap_torch.layers.pairs import PairLayer, RelaxedPairLayer


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
    Scores, lengths and masks are those of `MatchingAttention`.
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


class LPSequenceAttention(RelaxedPairLayer):
    """Bidirectional attention by sequences that use each column at most once on average.

    The graph has a `Sequence` over the words of the shorter side, whose states are the words of the
    longer side, with one learned score for steps to a neighbour, ``(i, j)`` to ``(i + 1, j +- 1)``;
    and an `AtMostOne` for every word of the longer side (Niculae & Martins 2020, section 5.2:
    LP-sequence).

    Parameters
    ----------
    rescale
        Whether to divide by the sums over the words of the shorter side, which are 1 only at
        convergence, as in the paper.
    device, dtype
        Of the parameter, as in the modules of `torch.nn`.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Attributes
    ----------
    transition
        (1,) the score of steps to a neighbour; a parameter.

    Notes
    -----
    Scores, lengths and masks are those of `MatchingAttention`.
    """

    def __init__(
        self,
        rescale: bool = False,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(rescale, **options)
        self.transition = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the score of steps to zero."""
        nn.init.zeros_(self.transition)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return the sequences, and the factors of the words of the longer side."""
        m, n = u.shape[-2:]
        allowed = self._allowed(u.shape, instances)
        if not allowed.any():
            return Declarations([])
        rows, columns = self._rectangles(allowed)[0].reshape(-1, 2).T
        in_rows = np.broadcast_to((np.arange(m) < rows[:, None])[:, :, None], (len(rows), m, n))
        in_columns = np.broadcast_to(np.arange(n) < columns[:, None, None], (len(rows), m, n))
        wide, table = rows <= columns, u.reshape(-1, m, n)
        # the states of a sequence are all columns, including padding, which is forbidden
        used = np.where(wide[:, None, None], in_rows, in_columns)
        forbidden = used.reshape(u.shape) & ~allowed
        pairs = in_rows & in_columns
        parts = [
            _sequences(np.flatnonzero(wide), table, pairs),
            _sequences(np.flatnonzero(~wide), table.transpose(0, 2, 1), pairs.transpose(0, 2, 1)),
        ]
        factors = [factor for part, _ in parts for factor in part]
        return Declarations(
            factors, forbidden, tuple(shared for _, part in parts for shared in part)
        )

    def _weights(self) -> Tensor:
        return self.transition


def _sequences(
    chosen: NDArray[np.int64], table: Variables, pairs: NDArray[np.bool_]
) -> tuple[list[Factor], list[SharedScores]]:
    """Return sequences over the rows of chosen instances, and the factors of their columns."""
    view, inside = table[chosen], pairs[chosen]
    if not inside.any():
        return [], []
    n = view.shape[2]
    steps = np.where(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1, 0, -1)
    ends = np.full(n, -1)
    index = np.concatenate([ends, steps.reshape(-1), ends])
    scores = np.zeros((len(chosen), len(index)))
    lengths = inside.any(axis=2).sum(axis=1)
    sequence = factor_type("Sequence")(view, additionals=scores, lengths=lengths)
    instance, column = np.nonzero(inside.any(axis=1))
    limits = factor_type("AtMostOne")(view[instance, :, column], mask=inside[instance, :, column])
    return [sequence, limits], [SharedScores(sequence, index, chosen)]
