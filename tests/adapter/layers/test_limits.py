"""Sizes and budgets of every instance, as tensors: each instance is a layer of its own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from layer_cases import normal
from lpsmap import Budget, FactorGraph
from lpsmap_torch.layers import LatentTree, Rationale, SparseMAP, TopK
from lpsmap_torch.losses import SparseMAPLoss

LAYERS: dict[str, tuple[Any, str, tuple[int, ...]]] = {
    "TopK": (lambda: TopK(2, tol=1e-10), "k", (5,)),
    "smaller": (lambda: TopK(3, exact=False, tol=1e-10), "k", (5,)),
    "Rationale": (lambda: Rationale(2, transition=0.3, tol=1e-10).double(), "budget", (5,)),
    "LatentTree": (lambda: LatentTree(tol=1e-10), "budget", (4, 4)),
    "with root": (lambda: LatentTree(budget=1, budget_root=True, tol=1e-10), "budget", (4, 4)),
}
LIMITS = torch.tensor([1, 3, 2])
every = pytest.mark.parametrize(("make", "name", "event"), LAYERS.values(), ids=LAYERS)


def alone(layer: Any, name: str, limit: int) -> Any:
    """Return a layer with a limit for all instances."""
    other = copy.deepcopy(layer)
    setattr(other, name, limit)
    return other


@every
@pytest.mark.parametrize("ragged", [False, True])
def test_instances_are_solved_as_alone(make: Any, name: str, event: Any, ragged: bool) -> None:
    layer, scores = make(), normal(3, *event)
    lengths = torch.tensor([event[0], 3, 2]) if ragged else None
    for limits in (LIMITS, LIMITS.int(), LIMITS.to(torch.uint8)):
        found = layer(scores, lengths=lengths, **{name: limits})
    (gradient,) = torch.autograd.grad(found.square().sum(), scores)
    best = layer.decode(scores, lengths=lengths, **{name: LIMITS})
    parses = layer.structures(scores, lengths=lengths, **{name: LIMITS})
    for i, limit in enumerate(LIMITS.tolist()):
        own, x = alone(layer, name, limit), scores[i : i + 1].detach().requires_grad_()
        ends = None if lengths is None else lengths[i : i + 1]
        expected = own(x, lengths=ends)
        torch.testing.assert_close(found[i], expected[0], rtol=0, atol=1e-7)
        (other,) = torch.autograd.grad(expected.square().sum(), x)
        torch.testing.assert_close(gradient[i], other[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(best[i], own.decode(x, lengths=ends)[0])
        mean = own.structures(x, lengths=ends)
        torch.testing.assert_close(
            (parses.probabilities[i] ** 2).sum(),
            (mean.probabilities[0] ** 2).sum(),
            rtol=0,
            atol=1e-5,
        )


@every
def test_compiled_transformed_and_broadcast(make: Any, name: str, event: Any) -> None:
    layer, scores = make(), normal(3, *event).detach()
    expected = layer(scores, **{name: LIMITS})
    for size in (3, 2):  # the second compilation has a size that is a symbol
        step = torch.compile(
            lambda s, k: layer(s, **{name: k}), fullgraph=True, backend="aot_eager"
        )
        found = step(scores[:size], LIMITS[:size])
        torch.testing.assert_close(found, expected[:size], rtol=0, atol=1e-9)
    each = torch.vmap(lambda s, k: layer(s, **{name: k}))(scores, LIMITS)
    torch.testing.assert_close(each, expected, rtol=0, atol=1e-7)
    heads = scores[:, None].expand(3, 2, *event)
    for limits in (LIMITS, LIMITS[:, None], LIMITS[:, None].expand(3, 2)):
        found = layer(heads, **{name: limits})
        torch.testing.assert_close(found, torch.stack([expected] * 2, 1), rtol=0, atol=1e-7)
    torch._dynamo.reset()


def test_losses_take_limits_of_layers_and_types() -> None:
    scores, on = normal(3, 5), torch.tensor([[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1]])
    from lpsmap import TopK as Subsets

    expected = SparseMAPLoss(TopK(2))(scores, on, k=LIMITS)
    torch.testing.assert_close(SparseMAPLoss(Subsets)(scores, on, k=LIMITS), expected)
    layer = SparseMAP(lambda u, k: Subsets(u, k))
    torch.testing.assert_close(layer(scores, k=LIMITS), TopK(2)(scores, k=LIMITS))


class Elsewhere:
    """Numbers on another device: they have to be moved before NumPy can read them."""

    def __init__(self, numbers: Any) -> None:
        self.numbers, self.shape = np.asarray(numbers), np.shape(numbers)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert device type tensor to numpy")

    def cpu(self) -> Any:
        return self.numbers


def test_numbers_of_any_device_are_limits() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.ones((2, 3)))
    graph.add(Budget(u, Elsewhere([1, 2]), force_budget=True))
    graph.solve()
    np.testing.assert_allclose(u.value.sum(axis=1), [1.0, 2.0])


@every
def test_bad_limits_are_refused_in_words(make: Any, name: str, event: Any) -> None:
    layer, scores = make(), torch.zeros(3, *event)
    for limits, error, words in (
        (2, TypeError, f"{name} is an int; expected a tensor of integers"),
        (torch.ones(3), TypeError, f"{name} is torch.float32; expected a tensor of integers"),
        (torch.ones(2, dtype=torch.long), ValueError, r"has shape \(2,\); expected \(3,\)"),
        (torch.tensor([1, -1, 2]), ValueError, "-1"),
    ):
        with pytest.raises(error, match=words):
            layer(scores, **{name: limits})
    with pytest.raises(TypeError, match=f"unexpected argument 'other'; expected .* {name}"):
        layer(scores, other=LIMITS)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_limits_in_few_bits_leave_lengths_alone(dtype: torch.dtype) -> None:
    scores, lengths = normal(1, 300), torch.tensor([257])
    found = TopK(2)(scores, lengths=lengths, k=torch.tensor([2], dtype=dtype))
    torch.testing.assert_close(found, TopK(2)(scores, lengths=lengths))
