"""Values with given derivatives, as the envelope theorem gives them for a maximum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["with_slopes"]


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
    found: Tensor = _WithSlopes.apply(values, len(inputs), *inputs, *slopes, *items)  # type: ignore[no-untyped-call]
    return found


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
