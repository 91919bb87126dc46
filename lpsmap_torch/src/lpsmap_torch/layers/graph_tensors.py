"""Tensors of a layer on the variables of its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer_graph import LayerGraph
from lpsmap_torch.tensor.graphs import DeviceSolution

__all__ = ["arrays_of", "placed", "rescore", "shown_marginals"]


def arrays_of(*given: Tensor | None) -> list[NDArray[Any] | None]:
    """Return lengths and masks as arrays."""
    return [None if x is None else x.detach().cpu().numpy() for x in given]


def shown_marginals(layout: LayerGraph, solution: DeviceSolution) -> Tensor:
    """Return the marginals of the scores; zeros in padding and in infeasible instances."""
    shape, shown = layout.variables.shape, layout.declared.shown
    rows = layout.by_instance(solution.infeasible())
    nothing = rows.any(-1, keepdim=True).expand_as(rows).reshape(shape)[shown]
    if layout.keep is not None:
        nothing = nothing | ~torch.from_numpy(layout.keep).to(nothing.device)
    return solution.marginals.reshape(shape)[shown].masked_fill(nothing, 0.0)


def rescore(
    graph: TorchFactorGraph, layout: LayerGraph, scores: Tensor, weights: Tensor | None
) -> None:
    """Set the scores of the graph of a layer, and the parameters of every instance."""
    graph.rescore(layout.variables, placed(layout, scores))
    for tied in layout.declared.tied:
        assert weights is not None
        entries = torch.from_numpy(tied.entries(weights.shape[-1])).to(weights.device)
        scores = weights.new_zeros(tied.factor.n_factors, tied.factor.n_additionals)
        scores[:, torch.from_numpy(tied.scored).to(weights.device)] = weights.reshape(-1)[entries]
        graph.rescore(tied.factor, scores.reshape(np.shape(tied.factor.additionals)))


def placed(layout: LayerGraph, scores: Tensor) -> Tensor:
    """Return scores of all variables, like `LayerGraph.placed`, with gradients."""
    keep, forbidden, shown = layout.keep, layout.declared.forbidden, layout.declared.shown
    if keep is not None:
        scores = scores.masked_fill(~torch.from_numpy(keep).to(scores.device), 0.0)
    if forbidden is not None:
        scores = scores.masked_fill(torch.from_numpy(forbidden).to(scores.device), -torch.inf)
    whole = scores.new_zeros(layout.variables.shape)
    whole[shown] = scores
    return whole
