"""Base classes of layers over pairs, such as the words of two sentences: lengths and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_torch.layers.checks import Instances, check_ends, prefix_lengths
from lpsmap_torch.layers.layer import Layer


class PairLayer(Layer):
    """A layer whose scores are tables of pairs, `m` rows by `n` columns."""

    event_ndim: int = 2
    mask_ndim: int = 2
    max_lengths: int = 2
    accepts_single_length: bool = False

    def pairs(
        self, scores: Tensor, options: dict[str, Any] | None = None, **arguments: Any
    ) -> list[Any]:
        """Return the pairs of the best structures, a list of tuples (row, column) for each item.

        Items without a structure have an empty list: those with scores that are NaN, for which
        the solve warns, and those whose constraints contradict each other.

        Parameters
        ----------
        scores, options, arguments
            As in `decode`. With several batch axes, the lists are nested.
        """
        return _pairs(self.decode(scores, options, **arguments))

    def _allowed(self, shape: tuple[int, ...], instances: Instances) -> NDArray[np.bool_]:
        """Return which pairs are within the lengths and allowed by the mask."""
        lengths = instances.lengths
        allowed = np.ones(shape, dtype=bool) if instances.mask is None else instances.mask
        if lengths is None:
            return np.asarray(allowed)
        check_ends(type(self).__name__, lengths, shape[-2:])
        return np.asarray(allowed & _inside(shape, lengths))

    def _rectangles(
        self, allowed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return (..., 2) numbers of rows and columns with pairs, and forbidden ones among them."""
        name = type(self).__name__
        rows = prefix_lengths(name, np.any(allowed, axis=-1), "rows")
        columns = prefix_lengths(name, np.any(allowed, axis=-2), "columns")
        lengths = np.stack([rows, columns], axis=-1)
        forbidden = _inside(allowed.shape, lengths) & ~allowed
        return lengths, forbidden if forbidden.any() else None


class RelaxedPairLayer(PairLayer):
    """A layer of pairs by LP-SparseMAP; sums of weights are 1 only at convergence.

    Parameters
    ----------
    rescale
        Whether to divide by the sums over the words of the shorter side: "For both LP-SparseMAP
        approaches, we rescale the result by row sums to ensure feasibility" (Niculae & Martins
        2020, section 5.2).
    options
        As in `Layer`.
    """

    def __init__(self, rescale: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.rescale = rescale

    def _finish(self, marginals: Tensor, inputs: dict[str, Any]) -> Tensor:
        if not self.rescale:
            return marginals
        lengths = self._checked_lengths(inputs["lengths"], tuple(marginals.shape[:-2]))
        return rescaled(marginals, lengths, inputs["mask"])

    def _repr_arguments(self) -> dict[str, Any]:
        return {"rescale": self.rescale} if self.rescale else {}


def _inside(shape: tuple[int, ...], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pairs are within (..., 2) numbers of rows and columns."""
    rows, columns = lengths[..., 0, None, None], lengths[..., 1, None, None]
    inside = (np.arange(shape[-2])[:, None] < rows) & (np.arange(shape[-1]) < columns)
    return np.asarray(inside)


def _pairs(table: Tensor) -> list[Any]:
    if table.ndim > 2:
        return [_pairs(x) for x in table]
    return [tuple(pair) for pair in (table > 0.0).nonzero().tolist()]


def rescaled(weights: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return (..., m, n) weights divided by the sums over the words of the shorter side.

    The lengths are ``(..., 2)`` numbers of rows and columns; the mask is as in `PairLayer`.
    """
    shape = weights.shape
    allowed = torch.ones(shape, dtype=torch.bool, device=weights.device)
    if mask is not None:
        allowed = allowed & mask.to(weights.device)
    if lengths is not None:
        rows, columns = lengths.to(weights.device)[..., None, None].unbind(-3)
        places = [torch.arange(k, device=weights.device) for k in shape[-2:]]
        allowed = allowed & (places[0][:, None] < rows) & (places[1] < columns)
    wide = allowed.any(-1).sum(-1) <= allowed.any(-2).sum(-1)
    sums = torch.where(
        wide[..., None, None], weights.sum(-1, keepdim=True), weights.sum(-2, keepdim=True)
    )
    return weights / sums.masked_fill(sums == 0, 1.0)
