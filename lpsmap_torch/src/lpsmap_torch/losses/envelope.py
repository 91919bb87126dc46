"""Values whose derivatives are given: what a maximum has by the envelope theorem."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["with_slopes"]


def with_slopes(
    values: Tensor, inputs: list[Tensor], slopes: list[Tensor], items: list[Tensor]
) -> Tensor:
    """Return values with given first derivatives, and those of the slopes for second ones.

    Parameters
    ----------
    values
        (n_items,)
    inputs
        Flat tensors, on which the values depend.
    slopes
        For every input a tensor like it: the derivatives of the values in its entries. They carry
        gradients of their own.
    items
        For every input the item of each entry, on which alone it acts; -1 for none.
    """
    found: Tensor = _WithSlopes.apply(values, len(inputs), *inputs, *slopes, *items)  # type: ignore[no-untyped-call]
    return found


class _WithSlopes(torch.autograd.Function):
    """The identity on given values, with given slopes for a derivative."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, n_inputs: int, *tensors: Tensor) -> Tensor:
        ctx.n_inputs = n_inputs
        ctx.save_for_backward(*tensors[n_inputs:])
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        n, tensors = ctx.n_inputs, ctx.saved_tensors
        padded = torch.cat([gradient, gradient.new_zeros(1)])  # item -1 is the last
        products: list[Tensor | None] = [
            (padded[item] * slope).to(slope.dtype) if wanted else None
            for slope, item, wanted in zip(
                tensors[:n], tensors[n:], ctx.needs_input_grad[2 : 2 + n], strict=True
            )
        ]
        return (None, None, *products, *[None] * (2 * n))
