"""The solution of a factor graph as a differentiable function of its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Solution
from lpsmap_torch.tensors import common_dtype, is_batched, on_host, over_batch, tensor_of


@dataclass(frozen=True, eq=False)
class Differentiable:
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
    rows = [x for x in additionals if x is not None]
    dtype, device = common_dtype([*scores, *rows]), scores[0].device
    arrays = [solution.values, *(solution.additionals[i] for i in declared)]
    outputs = [tensor_of(x, dtype, device, copy) for x in arrays]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*scores, *rows)):
        blocks = [block.reshape(-1).to(device) for block in scores]
        flat = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        shaped = [x.reshape(y.shape) for x, y in zip(rows, arrays[1:], strict=True)]
        outputs = _mapped(outputs, *_products(solution, declared), flat, *shaped)
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
        maps = distributions.pull_back, distributions.push_forward
        (probabilities,) = _mapped([probabilities], *maps, values)
    return distributions.with_arrays(probabilities, convert)


def _mapped(
    outputs: list[Tensor], pull: Callable[..., Any], push: Callable[..., Any], *inputs: Tensor
) -> list[Tensor]:
    """Return outputs whose derivative is a map between arrays on the host; see `given`."""
    of_inputs, of_outputs = ([(x.dtype, x.device) for x in xs] for xs in (inputs, outputs))
    maps = partial(_on_host, pull, of_inputs), partial(_on_host, push, of_outputs)
    return given(outputs, *maps, *inputs)


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


def _on_host(
    apply: Callable[..., Any],
    like: Sequence[tuple[torch.dtype, torch.device]],
    *vectors: Tensor,
) -> list[Tensor]:
    """Return the images of vectors under a map of arrays, in given dtypes and on given devices."""
    if any(map(is_batched, vectors)):
        return over_batch(lambda rows: _on_host(apply, like, *rows), vectors)
    arrays = apply(*[on_host("backward", x) for x in vectors])
    if not isinstance(arrays, tuple):
        arrays = (arrays,)
    return [tensor_of(x, *kind) for x, kind in zip(arrays, like, strict=True)]


Linear: TypeAlias = Callable[..., list[Tensor]]
"""A linear function of tensors."""


def given(outputs: Sequence[Tensor], pull: Linear, push: Linear, *inputs: Tensor) -> list[Tensor]:
    """Return outputs with a given derivative in some inputs, to which `pull` maps gradients.

    `push` is its transpose. Such are marginals: the solution is piecewise affine, and within a
    face, the Jacobian is constant. Autograd does not look into the functions.
    """

    def backward(*gradients: Tensor) -> list[Tensor]:
        with torch.no_grad():
            products = pull(*gradients)
        return given(products, push, pull, *gradients) if torch.is_grad_enabled() else products

    return with_backward(outputs, backward, *inputs)


def symmetric(multiply: Callable[[Tensor], Tensor], vector: Tensor) -> Tensor:
    """Return ``multiply(vector)``, a symmetric linear function that autograd does not look into."""

    def pull(gradient: Tensor) -> list[Tensor]:
        return [multiply(gradient)]

    with torch.no_grad():
        product = multiply(vector)
    return given([product], pull, pull, vector)[0]


def with_slopes(
    values: Tensor, inputs: Sequence[Tensor], slopes: Sequence[Tensor], items: Sequence[Tensor]
) -> Tensor:
    """Return values whose derivatives in inputs are slopes, which may carry gradients themselves.

    The items say for each entry of the inputs, or each row, which value it affects; -1 for none.
    """
    wanted = [x.requires_grad for x in inputs]

    def backward(gradient: Tensor) -> list[Tensor | None]:
        padded = torch.cat([gradient, gradient.new_zeros(1)])  # index of item -1
        return [
            (padded[item] * slope).to(slope.dtype) if needed else None
            for slope, item, needed in zip(slopes, items, wanted, strict=True)
        ]

    return with_backward([values], backward, *inputs)[0]


def with_backward(
    outputs: Sequence[Tensor], backward: Callable[..., Sequence[Tensor | None]], *inputs: Tensor
) -> list[Tensor]:
    """Return outputs whose gradients a function maps to those of inputs, as autograd follows it."""
    found: tuple[Tensor, ...] = _WithBackward.apply(outputs, backward, *inputs)  # type: ignore[no-untyped-call]
    return list(found)


class _WithBackward(torch.autograd.Function):
    """Given outputs with a given backward pass."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Sequence[Tensor], backward: Callable[..., Any], *_: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.of_inputs = backward
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.of_inputs(*gradients)
