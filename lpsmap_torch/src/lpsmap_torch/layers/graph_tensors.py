"""Tensors of a layer on the variables of its graph."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer_graph import LayerGraph, Tied
from lpsmap_torch.tensor.graphs import DeviceSolution

__all__ = ["arrays_of", "placed", "rescore", "shown_marginals", "tied_scores"]


def arrays_of(*given: Tensor | None) -> list[NDArray[Any] | None]:
    """Return lengths and masks as arrays."""
    return [None if x is None else x.detach().cpu().numpy() for x in given]


def shown_marginals(layout: LayerGraph, solution: DeviceSolution) -> Tensor:
    """Return the marginals of the scores; zeros in padding and in infeasible instances."""
    shape, shown = layout.variables.shape, layout.declared.shown
    found, infeasible = solution.marginals.reshape(shape)[shown], solution.infeasible()
    if infeasible is not None:
        rows = layout.by_instance(infeasible)
        nothing = rows.any(-1, keepdim=True).expand_as(rows).reshape(shape)[shown]
        found = found.masked_fill(nothing, 0.0)
    if layout.keep is not None:
        found = found.masked_fill(~_on(layout, "keep", layout.keep, found.device), 0.0)
    return found


def rescore(
    graph: TorchFactorGraph, layout: LayerGraph, scores: Tensor, weights: Tensor | None
) -> None:
    """Set the scores of the graph of a layer, and the parameters of every instance."""
    graph.rescore(layout.variables, placed(layout, scores))
    for tied in layout.declared.tied:
        assert weights is not None
        rows = tied_scores(layout, tied, weights)
        graph.rescore(tied.factor, rows.reshape(np.shape(tied.factor.additionals)))


def tied_scores(layout: LayerGraph, tied: Tied, weights: Tensor) -> Tensor:
    """Return the (n_factors, n_additionals) scores of a declaration with shared parameters."""
    name, device = id(tied.factor), weights.device
    entries = _on(layout, (name, "entries"), tied.entries(weights.shape[-1]), device)
    scored = _on(layout, (name, "scored"), tied.scored, device)
    found = weights.new_zeros(tied.factor.n_factors, tied.factor.n_additionals)
    found[:, scored] = weights.reshape(-1)[entries]
    return found


def placed(layout: LayerGraph, scores: Tensor) -> Tensor:
    """Return scores of all variables, like `LayerGraph.placed`, with gradients."""
    keep, forbidden, shown = layout.keep, layout.declared.forbidden, layout.declared.shown
    if keep is not None:
        scores = scores.masked_fill(~_on(layout, "keep", keep, scores.device), 0.0)
    if forbidden is not None:
        flags = _on(layout, "forbidden", forbidden, scores.device)
        scores = scores.masked_fill(flags, -torch.inf)
    if shown is Ellipsis:
        return scores
    whole = scores.new_zeros(layout.variables.shape)
    whole[shown] = scores
    return whole


def _on(layout: LayerGraph, name: Hashable, array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array of a layout as a tensor on a device, which is copied there once."""
    key = name, device
    if key not in layout.on_devices:
        layout.on_devices[key] = torch.from_numpy(array).to(device)
    found: Tensor = layout.on_devices[key]
    return found
