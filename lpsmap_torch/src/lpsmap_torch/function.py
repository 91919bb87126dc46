"""The solution of a factor graph as a differentiable function of its scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Solution
from lpsmap_torch.readable import on_host

__all__ = ["attach", "attach_probabilities"]


def attach(solution: Solution, scores: list[Tensor], additionals: list[Tensor]) -> list[Tensor]:
    """Return a solution's numbers as tensors with gradients to its scores.

    Parameters
    ----------
    solution
        The solution.
    scores
        The blocks of variables' scores, in the graph's order.
    additionals
        For every declaration the scores of its additionals, with as many entries as the solution
        has there (none for a declaration without).

    Returns
    -------
    list of Tensor
        The flat marginals of all variables, then every declaration's (n_factors, n_additionals)
        marginals; in the scores' common dtype, on the device of the first block.
    """
    inputs = [*scores, *additionals]
    dtype = scores[0].dtype
    for tensor in inputs:
        if tensor.numel():
            dtype = torch.promote_types(dtype, tensor.dtype)
    outputs = [solution.values, *solution.additionals]
    numbers = [torch.from_numpy(x).to(dtype=dtype, device=scores[0].device) for x in outputs]
    if not any(tensor.requires_grad for tensor in inputs) or not torch.is_grad_enabled():
        return numbers
    return list(_Attach.apply(solution, numbers, len(scores), *inputs))  # type: ignore[no-untyped-call]


def attach_probabilities(found: Distributions, values: Tensor) -> Distributions:
    """Return distributions in tensors whose probabilities carry the gradients of the marginals.

    Parameters
    ----------
    found
        The distributions of a declaration.
    values
        (n_variables,) the flat marginals of the same solution, as `attach` made them.
    """

    def convert(array: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(array).to(dtype=values.dtype, device=values.device)

    probabilities = convert(found.probabilities)
    if values.requires_grad and torch.is_grad_enabled():
        probabilities = _AttachProbabilities.apply(found, probabilities, values)  # type: ignore[no-untyped-call]
    return found.with_arrays(probabilities, convert)


class _Attach(torch.autograd.Function):
    """The identity on given outputs, with the solution's Jacobian for a derivative."""

    @staticmethod
    def forward(
        ctx: Any, solution: Solution, numbers: list[Tensor], n_blocks: int, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.solution = solution
        ctx.n_blocks = n_blocks
        ctx.like = [(x.shape, x.dtype, x.device) for x in inputs]
        return tuple(numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        products = _Multiply.apply(ctx.solution, *gradients)  # type: ignore[no-untyped-call]
        sizes = [int(np.prod(shape)) for shape, _, _ in ctx.like[: ctx.n_blocks]]
        flat = [*torch.split(products[0], sizes), *products[1:]]
        return (
            None,
            None,
            None,
            *(
                g.reshape(shape).to(dtype=dtype, device=device)
                for g, (shape, dtype, device) in zip(flat, ctx.like, strict=True)
            ),
        )


class _Multiply(torch.autograd.Function):
    """The product of the solution's symmetric Jacobian with a vector.

    The solution is piecewise affine in the scores: inside a face the Jacobian is constant, and the
    product is linear in the vector alone. Its derivative is therefore the same product again.
    """

    @staticmethod
    def forward(ctx: Any, solution: Solution, *vectors: Tensor) -> tuple[Tensor, ...]:
        ctx.solution = solution
        numbers = [on_host("backward", x) for x in vectors]
        product, extra = solution.vjp(numbers[0], numbers[1:])
        return tuple(
            torch.from_numpy(p).to(dtype=x.dtype, device=x.device)
            for p, x in zip([product, *extra], vectors, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *_Multiply.apply(ctx.solution, *gradients))  # type: ignore[no-untyped-call]


class _AttachProbabilities(torch.autograd.Function):
    """The identity on given probabilities, with a derivative in the marginals."""

    @staticmethod
    def forward(ctx: Any, found: Distributions, numbers: Tensor, values: Tensor) -> Tensor:
        ctx.found = found
        return numbers

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps = ctx.found.pull_back, ctx.found.push_forward
        return None, None, _LinearMap.apply(*maps, gradient)  # type: ignore[no-untyped-call]


class _LinearMap(torch.autograd.Function):
    """A linear map between arrays on the host, differentiated by its transpose."""

    @staticmethod
    def forward(
        ctx: Any,
        apply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        transpose: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        vector: Tensor,
    ) -> Tensor:
        ctx.maps = transpose, apply
        product = apply(on_host("backward", vector))
        return torch.from_numpy(product).to(dtype=vector.dtype, device=vector.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _LinearMap.apply(*ctx.maps, gradient)  # type: ignore[no-untyped-call]
