"""Values with given derivatives, as the envelope theorem gives them for a maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.items import Items

__all__ = ["scores_with_slopes", "with_slopes"]


def scores_with_slopes(
    graph: TorchFactorGraph, variables: Tensor, additionals: Sequence[Tensor | None], items: Items
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the scores of a graph with given slopes, as `with_slopes` takes them.

    Parameters
    ----------
    graph
        The graph.
    variables, additionals
        The slopes in the scores of the variables, (n_variables,), and of each declaration's
        additionals.
    items
        The items of the graph.
    """
    inputs, slopes = [torch.cat([block.reshape(-1) for block in graph._scores])], [variables]
    item = [items.of_variable]
    for factor, scores, slope in zip(graph.factors, graph._additionals, additionals, strict=True):
        if scores is not None and slope is not None and scores.numel():
            inputs.append(scores.reshape(-1))
            slopes.append(slope.reshape(-1))
            item.append(np.repeat(items.of_factors(factor), factor.n_additionals))
    return inputs, slopes, [torch.from_numpy(x).to(variables.device) for x in item]


def with_slopes(
    values: Tensor, inputs: list[Tensor], slopes: list[Tensor], items: list[Tensor]
) -> Tensor:
    """Return values with given first derivatives; second derivatives are those of the slopes.

    Parameters
    ----------
    values
        (n_items,)
    inputs
        Flat tensors that the values depend on.
    slopes
        For every input, a tensor of the same shape: the derivatives of the values with respect to
        its entries. They may carry gradients.
    items
        For every input, the only item that each entry affects; -1 for none.
    """
    differentiable: Tensor = _WithSlopes.apply(values, len(inputs), *inputs, *slopes, *items)  # type: ignore[no-untyped-call]
    return differentiable


class _WithSlopes(torch.autograd.Function):
    """The identity on given values, with given slopes as its derivative."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, n_inputs: int, *tensors: Tensor) -> Tensor:
        ctx.n_inputs = n_inputs
        ctx.save_for_backward(*tensors[n_inputs:])
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        n, tensors = ctx.n_inputs, ctx.saved_tensors
        padded = torch.cat([gradient, gradient.new_zeros(1)])  # index of item -1
        products: list[Tensor | None] = [
            (padded[item] * slope).to(slope.dtype) if wanted else None
            for slope, item, wanted in zip(
                tensors[:n], tensors[n:], ctx.needs_input_grad[2 : 2 + n], strict=True
            )
        ]
        return (None, None, *products, *[None] * (2 * n))
