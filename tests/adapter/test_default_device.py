"""Tensors on the CPU while another device is the default, for which "meta" stands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lpsmap import DepTree, Sequence, TorchFactorGraph, Xor
from lpsmap_torch.distributions import Chain, Tree
from lpsmap_torch.layers import SequenceAttention, SparseMAP
from lpsmap_torch.losses import CRFLoss, StructuredHingeLoss

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def normal(*shape: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


@pytest.fixture(autouse=True)
def on_meta() -> Iterator[None]:
    """Make every tensor without a device one without numbers."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_losses_of_sequences() -> None:
    scores, tags = normal(2, 3, 4).requires_grad_(), normal(2, 3).sign().long().clamp(min=0)
    transitions = normal(4, 4).requires_grad_()
    for loss in (CRFLoss(Sequence), StructuredHingeLoss(Sequence)):
        loss(scores, tags, transitions=transitions).backward()
        assert scores.grad.isfinite().all()
        assert transitions.grad.abs().sum() > 0.0


def test_numbers_among_the_arguments_of_a_traced_loss() -> None:
    tags = normal(2, 3).sign().long().clamp(min=0)
    loss = CRFLoss(lambda u, scale: Sequence(u, scale * normal(4, 4)))
    gradient = torch.func.grad(lambda x: loss(x, tags, scale=2.0))(normal(2, 3, 4))
    assert gradient.isfinite().all()


def test_distributions() -> None:
    for distribution in (Chain(normal(2, 3, 4), normal(4, 4)), Tree(normal(2, 3, 3))):
        value = distribution.sample((2,))
        assert distribution.log_prob(value).isfinite().all()
        assert distribution.entropy().isfinite().all()
        assert distribution.marginals.isfinite().all()


def test_gibbs_distributions_of_graphs() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 4))
    shown = graph.add(Xor(u, mask=[[True] * 4, [True, False, True, True]]))
    assert graph.gibbs(shown).marginals.isfinite().all()
    assert graph.gibbs().kl(graph.gibbs()).abs().max() < 1e-12


@pytest.mark.parametrize("engine", ["auto", "tensor"])
def test_layers(engine: str) -> None:
    scores = normal(2, 17, 17).requires_grad_()
    layers = SparseMAP(DepTree, engine=engine), SequenceAttention(engine=engine, device="cpu")
    for layer in layers:
        layer(scores).square().sum().backward()
        assert scores.grad.isfinite().all()


def test_samples_of_layers() -> None:
    drawn = SparseMAP(Xor).sample(normal(2, 4), 3)
    assert drawn.log_probabilities.isfinite().all()
