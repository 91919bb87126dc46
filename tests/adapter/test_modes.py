"""Calls under ``torch.inference_mode`` and ``no_grad`` that later calls with gradients follow."""

from __future__ import annotations

import pytest
import torch

from lpsmap_factors_logic import Xor
from lpsmap_factors_struct import Sequence
from lpsmap_torch import TorchFactorGraph
from lpsmap_torch.distributions import Chain
from lpsmap_torch.layers import LatentTree, LPMatchingAttention, Rationale, SequenceAttention

MODES = [torch.no_grad, torch.inference_mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [lambda: Rationale(2), SequenceAttention, lambda: LatentTree(1)])
@pytest.mark.parametrize("engine", ["auto", "tensor"])
def test_layers_train_after_an_evaluation(make, mode, engine) -> None:
    """What a layer keeps on the device is no inference tensor, also with padding."""
    layer, scores = make(), torch.randn(3, 4, 4)
    layer.engine = engine
    mask = torch.ones(3, 4, 4, dtype=torch.bool)
    mask[0, 3] = False
    if isinstance(layer, LatentTree):
        mask = mask[..., 0]
    with mode():
        layer(scores, mask=mask)
    scores.requires_grad_()
    layer(scores, mask=mask).square().sum().backward()
    fresh, expected = make(), scores.detach().clone().requires_grad_()
    fresh(expected, mask=mask).square().sum().backward()
    torch.testing.assert_close(scores.grad, expected.grad)
    assert scores.grad.abs().sum() > 0.0


def test_graphs_train_after_an_evaluation_on_tensors() -> None:
    """A part of the variables has places, which the layout keeps."""
    graph, scores = TorchFactorGraph(), torch.randn(2, 3, 3, requires_grad=True)
    u = graph.variable_from(scores.detach())
    graph.add(Xor(u[:, :2]))
    with torch.inference_mode():
        graph.solve(engine="tensor")
    graph.rescore(u, scores)
    graph.solve(engine="tensor")
    u.value.square().sum().backward()
    assert scores.grad.abs().sum() > 0.0
    layer = LPMatchingAttention(engine="tensor")
    with torch.inference_mode():
        layer(scores, lengths=torch.tensor([[3, 2], [2, 3]]))
    layer(scores, lengths=torch.tensor([[3, 2], [2, 3]])).sum().backward()


@pytest.mark.parametrize("mode", MODES)
def test_distributions_have_gradients_after_a_query_without(mode) -> None:
    scores = torch.randn(2, 4, 3, requires_grad=True)
    chain = Chain(scores, torch.zeros(3, 3))
    with mode():
        chain.sample((2,))
        assert chain.marginals.shape == scores.shape
    chain.entropy().sum().backward()
    twin = scores.detach().clone().requires_grad_()
    Chain(twin, torch.zeros(3, 3)).entropy().sum().backward()
    torch.testing.assert_close(scores.grad, twin.grad)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    sequence = graph.add(Sequence(u, torch.zeros(3, 3)))
    for gibbs in (graph.gibbs(), graph.gibbs(sequence)):
        with mode():
            gibbs.sample(2)
            gibbs.log_partition  # noqa: B018 - a cached query
        assert gibbs.log_partition.requires_grad
        assert gibbs.entropy.requires_grad


def test_distributions_of_inference_tensors() -> None:
    """Scores of a network in inference mode, beside parameters that have gradients elsewhere."""
    transitions = torch.nn.Parameter(torch.zeros(3, 3))
    with torch.inference_mode():
        chain = Chain(2.0 * torch.randn(2, 4, 3), transitions)
        assert chain.sample((5,)).shape == (5, 2, 4)
        torch.testing.assert_close(chain.marginals.sum(-1), torch.ones(2, 4))
        assert chain.entropy().isfinite().all()
