"""Values with given derivatives, as the envelope theorem gives them for a maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpsmap_core.api import FloatArray
from lpsmap_dynamic import Items
from lpsmap_torch.graph import TorchFactorGraph


def with_slopes(
    graph: TorchFactorGraph,
    values: FloatArray,
    variables: Tensor,
    additionals: Sequence[Tensor | None],
    items: Items,
    squares: Tensor | None = None,
) -> Tensor:
    """Return values of the items of a graph with given first derivatives in its scores.

    They have the dtype of the slopes, but at least single precision, since sums may overflow.
    Second derivatives are those of the slopes: of `variables`, (n_variables,), and of every
    declaration's `additionals`, (n_factors, n_additionals), which may carry gradients. `squares` is
    the slope in the temperature by variable, if that is a tensor.
    """
    inputs, slopes = [torch.cat([block.reshape(-1) for block in graph._scores])], [variables]
    item = [items.of_variable]
    for factor, scores, slope in zip(graph.factors, graph._additionals, additionals, strict=True):
        if scores is not None and slope is not None and scores.numel():
            shape = factor.n_factors, factor.n_additionals
            inputs.append(scores.reshape(shape))
            slopes.append(slope.reshape(shape))
            item.append(items.of_factors(factor)[:, None])
    if squares is not None and isinstance(graph._temperature, Tensor):
        inputs.append(graph._temperature.to(squares).expand(len(squares)))
        slopes.append(squares)
        item.append(items.of_variable)
    of_entries = [torch.from_numpy(x).to(variables.device) for x in item]
    dtype = torch.promote_types(variables.dtype, torch.float32)
    numbers = torch.from_numpy(values).to(dtype=dtype, device=variables.device)
    differentiable: Tensor = _WithSlopes.apply(numbers, len(inputs), *inputs, *slopes, *of_entries)  # type: ignore[no-untyped-call]
    return differentiable


class _WithSlopes(torch.autograd.Function):
    """The identity on given values, with given slopes as its derivative.

    Its tensors are inputs, their slopes, and for each entry or row of the inputs the only item that
    it affects; -1 for none.
    """

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
