"""The solution of a factor graph as a differentiable function of its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Solution
from lpsmap_torch.tensors import converted, on_host, tensor_of

__all__ = ["Differentiable", "attach", "attach_probabilities"]


class Differentiable(NamedTuple):
    """Values of variables and additionals with the derivative of a surrogate."""

    values: NDArray[np.float64]
    """(n_variables,)"""
    additionals: Sequence[NDArray[np.float64]]
    """For every declaration, (n_factors, n_additionals)."""
    factors: Sequence[Factor]
    vjp: Callable[..., tuple[NDArray[np.float64], list[NDArray[np.float64]]]] | None = None
    """Maps gradients with respect to values and additionals to those with respect to scores; None
    if no score requires a gradient."""
    linear: bool = True
    """Whether `vjp` is linear and symmetric, so that it has a derivative."""


def attach(
    solution: Solution | Differentiable | Any,
    scores: list[Tensor],
    additionals: list[Tensor | None],
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the marginals of a solution as tensors with gradients with respect to its scores.

    Parameters
    ----------
    solution
        The solution, or values with the derivative of a surrogate; an assignment has no gradients.
    scores
        The scores of each block of variables, in the order of the graph.
    additionals
        For every declaration, the scores of its additionals, with the same number of entries as in
        the solution; None for a declaration without additionals.

    Returns
    -------
    Tensor
        The flat marginals of all variables.
    list of Tensor
        The (n_factors, n_additionals) marginals of every declaration, None without additionals. All
        have the common dtype of the scores and are on the device of the first block.
    """
    declared = [i for i, given in enumerate(additionals) if given is not None]
    inputs = [*scores, *(given for given in additionals if given is not None)]
    dtype, device = scores[0].dtype, scores[0].device
    for tensor in inputs:
        if tensor.dtype is not dtype and tensor.numel():
            dtype = torch.promote_types(dtype, tensor.dtype)
    found = [solution.values, *(solution.additionals[i] for i in declared)]
    outputs = [tensor_of(x, dtype, device) for x in found]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        outputs = _Attach.apply(solution, declared, outputs, len(scores), *inputs)  # type: ignore[no-untyped-call]
    marginals: list[Tensor | None] = [None] * len(additionals)
    for i, tensor in zip(declared, outputs[1:], strict=True):
        marginals[i] = tensor
    return outputs[0], marginals


def attach_probabilities(found: Distributions, values: Tensor) -> Distributions:
    """Return distributions as tensors; gradients flow from probabilities to the marginals.

    Parameters
    ----------
    found
        The distributions of a declaration.
    values
        (n_variables,) the flat marginals of the same solution, returned by `attach`.
    """

    def convert(array: NDArray[np.float64]) -> Tensor:
        return tensor_of(array, values.dtype, values.device)

    probabilities = convert(found.probabilities)
    if values.requires_grad and torch.is_grad_enabled():
        probabilities = _AttachProbabilities.apply(found, probabilities, values)  # type: ignore[no-untyped-call]
    return found.with_arrays(probabilities, convert)


class _Attach(torch.autograd.Function):
    """The identity on given outputs, with the Jacobian of the solution as its derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        solution: Solution | Differentiable,
        declared: list[int],
        outputs: list[Tensor],
        n_blocks: int,
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.solution, ctx.declared, ctx.n_blocks = solution, declared, n_blocks
        ctx.like = [(x.shape, x.dtype, x.device) for x in inputs]
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            products = _Multiply.apply(ctx.solution, ctx.declared, *gradients)  # type: ignore[no-untyped-call]
        else:
            products = _product(ctx.solution, ctx.declared, gradients)
        flat, n_blocks = list(products), ctx.n_blocks
        if n_blocks > 1:
            sizes = [shape.numel() for shape, _, _ in ctx.like[:n_blocks]]
            flat[:1] = torch.split(products[0], sizes)
        wanted = ctx.needs_input_grad[4:]
        return (
            *(None, None, None, None),
            *(
                converted(g.reshape(shape), dtype, device) if wants else None
                for g, wants, (shape, dtype, device) in zip(flat, wanted, ctx.like, strict=True)
            ),
        )


class _Multiply(torch.autograd.Function):
    """The product of the solution's symmetric Jacobian with a vector.

    The solution is piecewise affine in the scores: within a face, the Jacobian is constant, and the
    product is linear in the vector. Its derivative is therefore the same product.
    """

    @staticmethod
    def forward(
        ctx: Any, solution: Solution | Differentiable, declared: list[int], *vectors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.solution, ctx.declared = solution, declared
        return _product(solution, declared, vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if isinstance(ctx.solution, Differentiable) and not ctx.solution.linear:
            raise RuntimeError(
                "estimator: the gradient has no derivative of its own; expected a single backward "
                'pass. Use the gradient "straight-through" for second derivatives.'
            )
        products = _Multiply.apply(ctx.solution, ctx.declared, *gradients)  # type: ignore[no-untyped-call]
        return (None, None, *products)


def _product(
    solution: Solution | Differentiable, declared: list[int], vectors: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Multiply vectors on the variables and on declared additionals with the Jacobian."""
    arrays = [on_host("backward", x) for x in vectors]
    extra: list[NDArray[np.float64]] = []
    if declared:
        extra = [np.zeros(0) for _ in solution.factors]
        for i, array in zip(declared, arrays[1:], strict=True):
            extra[i] = array
    assert solution.vjp is not None
    product, extra = solution.vjp(arrays[0], extra)
    return tuple(
        tensor_of(p, x.dtype, x.device)
        for p, x in zip([product, *(extra[i] for i in declared)], vectors, strict=True)
    )


class _AttachProbabilities(torch.autograd.Function):
    """The identity on given probabilities, with their derivative with respect to the marginals."""

    @staticmethod
    def forward(ctx: Any, found: Distributions, numbers: Tensor, values: Tensor) -> Tensor:
        ctx.found = found
        return numbers

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps = ctx.found.pull_back, ctx.found.push_forward
        return None, None, _LinearMap.apply(*maps, gradient)  # type: ignore[no-untyped-call]


class _LinearMap(torch.autograd.Function):
    """A linear map between arrays on the host; its derivative is its transpose."""

    @staticmethod
    def forward(
        ctx: Any,
        apply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        transpose: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        vector: Tensor,
    ) -> Tensor:
        ctx.maps = transpose, apply
        product = apply(on_host("backward", vector))
        return tensor_of(product, vector.dtype, vector.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _LinearMap.apply(*ctx.maps, gradient)  # type: ignore[no-untyped-call]
