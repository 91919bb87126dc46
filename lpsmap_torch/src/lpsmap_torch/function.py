"""The solution of a factor graph as a differentiable function of its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Solution
from lpsmap_torch.tensors import is_batched, on_host, over_batch, tensor_of


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
    copy: bool = False,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the marginals of a solution as tensors with gradients with respect to its scores.

    These are the flat marginals of all variables, and for every declaration the (n_factors,
    n_additionals) marginals of its additionals, or None without them. All have the common dtype of
    the scores, those of the blocks of variables and of declarations, and are on the device of the
    first block. With `copy` they share no memory with the solution, and may change in place. The
    solution lives as long as they do.
    """
    declared = [i for i, x in enumerate(additionals) if x is not None]
    inputs = [*scores, *(x for x in additionals if x is not None)]
    dtype, device = scores[0].dtype, scores[0].device
    for tensor in inputs:
        if tensor.dtype is not dtype and tensor.numel():
            dtype = torch.promote_types(dtype, tensor.dtype)
    arrays = [solution.values, *(solution.additionals[i] for i in declared)]
    outputs = [tensor_of(x, dtype, device, copy) for x in arrays]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        outputs = _Attach.apply(solution, declared, outputs, len(scores), *inputs)  # type: ignore[no-untyped-call]
    marginals: list[Tensor | None] = [None] * len(additionals)
    for i, tensor in zip(declared, outputs[1:], strict=True):
        marginals[i] = tensor
    return outputs[0], marginals


def attach_probabilities(distributions: Distributions, values: Tensor) -> Distributions:
    """Return distributions as tensors; gradients flow from probabilities to the marginals.

    The `values` are the flat marginals of the same solution, returned by `attach`.
    """

    def convert(array: NDArray[np.float64]) -> Tensor:
        return tensor_of(array, values.dtype, values.device)

    probabilities = convert(distributions.probabilities)
    if values.requires_grad and torch.is_grad_enabled():
        probabilities = _AttachProbabilities.apply(distributions, probabilities, values)  # type: ignore[no-untyped-call]
    return distributions.with_arrays(probabilities, convert)


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
        like = [(x.dtype, x.device) for x in gradients]
        maps = _products(ctx.solution, ctx.declared)
        products = mapped(*maps, like, *gradients)
        flat, n_blocks = list(products), ctx.n_blocks
        if n_blocks > 1:
            sizes = [shape.numel() for shape, _, _ in ctx.like[:n_blocks]]
            flat[:1] = torch.split(products[0], sizes)
        wanted = ctx.needs_input_grad[4:]
        return (
            *(None,) * 4,
            *(
                g.reshape(shape).to(device, dtype) if wants else None
                for g, wants, (shape, dtype, device) in zip(flat, wanted, ctx.like, strict=True)
            ),
        )


def _products(
    solution: Solution | Differentiable, declared: list[int]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the product with the symmetric Jacobian, and its transpose.

    Its vectors are on the variables, and on the additionals of some declarations.
    """

    def multiply(d: NDArray[np.float64], *of_declared: NDArray[np.float64]) -> Any:
        extra: list[NDArray[np.float64]] = []
        if declared:
            extra = [np.zeros(0) for _ in solution.factors]
            for i, array in zip(declared, of_declared, strict=True):
                extra[i] = array
        assert solution.vjp is not None
        product, extra = solution.vjp(d, extra)
        return product, *(extra[i] for i in declared)

    def refuse(*_: NDArray[np.float64]) -> Any:
        raise RuntimeError(
            "estimator: the gradient has no derivative of its own; expected a single backward "
            'pass. Use the gradient "straight-through" for second derivatives.'
        )

    nonlinear = isinstance(solution, Differentiable) and not solution.linear
    return multiply, refuse if nonlinear else multiply


class _AttachProbabilities(torch.autograd.Function):
    """The identity on given probabilities, with their derivative with respect to the marginals."""

    @staticmethod
    def forward(ctx: Any, distributions: Distributions, numbers: Tensor, values: Tensor) -> Tensor:
        ctx.distributions = distributions
        return numbers

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps = ctx.distributions.pull_back, ctx.distributions.push_forward
        like = [(gradient.dtype, gradient.device)]
        return None, None, *mapped(*maps, like, gradient)


Like: TypeAlias = Sequence[tuple[torch.dtype, torch.device]]
"""The dtypes and devices of tensors."""


def mapped(
    apply: Callable[..., Any], transpose: Callable[..., Any], like: Like, *vectors: Tensor
) -> tuple[Tensor, ...]:
    """Return the images of vectors under a linear map between arrays on the host.

    The derivative is the transpose. Such are the products with a solution's Jacobian: the solution
    is piecewise affine, and within a face, the Jacobian is constant. Both maps take arrays and
    return an array or a tuple; `like` has the dtypes and devices of the images.
    """
    if torch.is_grad_enabled():
        images: tuple[Tensor, ...] = _LinearMap.apply(apply, transpose, like, *vectors)  # type: ignore[no-untyped-call]
        return images
    return tuple(image(apply, like, vectors))


def image(apply: Callable[..., Any], like: Like, vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return the images of vectors under a map between arrays on the host; see `mapped`."""
    if any(map(is_batched, vectors)):
        return over_batch(partial(image, apply, like), vectors)
    arrays = apply(*[on_host("backward", x) for x in vectors])
    if not isinstance(arrays, tuple):
        arrays = (arrays,)
    return [tensor_of(x, *kind) for x, kind in zip(arrays, like, strict=True)]


class _LinearMap(torch.autograd.Function):
    """A linear map between arrays on the host; its derivative is its transpose."""

    @staticmethod
    def forward(
        ctx: Any,
        apply: Callable[..., Any],
        transpose: Callable[..., Any],
        like: Like,
        *vectors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.maps = transpose, apply, [(x.dtype, x.device) for x in vectors]
        return tuple(image(apply, like, vectors))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *mapped(*ctx.maps, *gradients)
