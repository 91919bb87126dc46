"""Values with given derivatives, as the envelope theorem gives them for a maximum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lpsmap_core.api import FloatArray
from lpsmap_dynamic import Items
from lpsmap_torch.function import with_slopes
from lpsmap_torch.graph import TorchFactorGraph


def values_with_slopes(
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
    the slope in the temperature of the graph by variable; None if that is no tensor.
    """
    inputs, slopes = [torch.cat([block.reshape(-1) for block in graph._scores])], [variables]
    item = [items.of_variable]
    for factor, scores, slope in zip(graph.factors, graph._additionals, additionals, strict=True):
        if scores is not None and slope is not None and scores.numel():
            shape = factor.n_factors, factor.n_additionals
            inputs.append(scores.reshape(shape))
            slopes.append(slope.reshape(shape))
            item.append(items.of_factors(factor)[:, None])
    if squares is not None:
        inputs.append(torch.as_tensor(graph._temperature).to(squares).expand(len(squares)))
        slopes.append(squares)
        item.append(items.of_variable)
    dtype, device = torch.promote_types(variables.dtype, torch.float32), variables.device
    numbers = torch.from_numpy(values).to(dtype=dtype, device=device)
    return with_slopes(numbers, inputs, slopes, [torch.from_numpy(x).to(device) for x in item])


def difference_with_slopes(
    graph: TorchFactorGraph,
    values: FloatArray,
    best: tuple[Tensor, Sequence[Tensor]],
    given: tuple[Tensor, Sequence[Tensor]],
    items: Items,
) -> Tensor:
    """Return the differences of two maxima, with those of their marginals as derivatives.

    Both have marginals of all variables, and of the additionals of every declaration.
    """
    (mu, nu), (mu_given, nu_given) = best, given
    counted = torch.from_numpy(items.of_variable >= 0).to(mu.device)
    squares = None
    if isinstance(graph._temperature, Tensor):
        squares = torch.where(counted, 0.5 * (mu_given**2 - mu**2), 0.0)
    variables = torch.where(counted, mu - mu_given, 0.0)
    differences = [a - b for a, b in zip(nu, nu_given, strict=True)]
    return values_with_slopes(graph, values, variables, differences, items, squares)
