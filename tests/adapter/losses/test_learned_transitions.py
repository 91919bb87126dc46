"""Gradients of transitions that all steps of a sequence share, by finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lpsmap import AtMostOne, Sequence, TorchFactorGraph
from lpsmap_torch.layers import SparseMAP
from lpsmap_torch.losses import CRFLoss, MarginCRFLoss, SparseMAPLoss

BATCH, LENGTH, STATES = 3, 5, 3
LENGTHS = torch.tensor([5, 1, 3])
LOSSES = {
    "field": lambda: CRFLoss(Sequence),
    "margin field": lambda: MarginCRFLoss(Sequence, cost="positions"),
    "sparse": lambda: SparseMAPLoss(Sequence),
}


def drawn(*shape: int, seed: int) -> Tensor:
    """Return random numbers that need a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def shared(each: bool, seed: int = 1) -> Tensor:
    """Return transitions of all sequences, or of each."""
    return drawn(*((BATCH, 1) if each else ()), STATES, STATES, seed=seed)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, each: bool, masked: bool) -> None:
    loss, scores = LOSSES[name](), drawn(BATCH, LENGTH, STATES, seed=0)
    target = torch.randint(STATES - 1, (BATCH, LENGTH), generator=torch.Generator().manual_seed(2))
    target[torch.arange(LENGTH) >= LENGTHS[:, None]] = -100
    forbidden = torch.zeros(LENGTH, STATES, dtype=torch.bool)
    forbidden[1, -1] = masked

    def function(u: Tensor, transitions: Tensor, initial: Tensor) -> Any:
        u = u.masked_fill(forbidden, -torch.inf)
        return loss(u, target, transitions=transitions, initial=initial, lengths=LENGTHS)

    inputs = scores, shared(each), drawn(STATES, seed=3)
    assert torch.autograd.gradcheck(function, inputs, eps=1e-5, atol=1e-6)
    with torch.no_grad():
        steps = inputs[1].expand(BATCH, LENGTH - 1, STATES, STATES)
        every = function(scores, steps.clone(), inputs[2])
        torch.testing.assert_close(function(*inputs), every, rtol=0, atol=1e-12)


@pytest.mark.parametrize("each", [False, True])
def test_second_derivatives_of_sums(each: bool) -> None:
    def log_z(u: Tensor, transitions: Tensor) -> Tensor:
        graph = TorchFactorGraph()
        factor = graph.add(Sequence(graph.variable_from(u), transitions, lengths=LENGTHS))
        found: Tensor = graph.gibbs(factor).log_partition
        return found

    inputs = drawn(BATCH, LENGTH, STATES, seed=0), shared(each)
    assert torch.autograd.gradcheck(log_z, inputs)
    assert torch.autograd.gradgradcheck(log_z, inputs)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_layers(each: bool, coupled: bool) -> None:
    def factors(u: Any, transitions: Any) -> Any:
        sequence = Sequence(u, transitions)
        return [sequence, AtMostOne(u[..., 0])] if coupled else sequence

    layer = SparseMAP(factors, tol=1e-12)

    def function(u: Tensor, transitions: Tensor) -> Tensor:
        found: Tensor = layer(u, transitions=transitions)
        return found

    inputs = drawn(BATCH, LENGTH, STATES, seed=4), shared(each, seed=5)
    assert torch.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-5)


def test_layers_of_the_type_accept_shared_scores() -> None:
    """Flat scores: of first states, of the matrix, and of last states."""
    layer, u = SparseMAP(Sequence), drawn(BATCH, LENGTH, STATES, seed=6)
    matrix, ends = drawn(STATES, STATES, seed=7), torch.zeros(STATES, dtype=torch.float64)
    steps = matrix.expand(LENGTH - 1, STATES, STATES)
    one, every = (
        layer(u, torch.cat([ends, x.reshape(-1), ends]), lengths=LENGTHS) for x in (matrix, steps)
    )
    torch.testing.assert_close(one, every, rtol=0, atol=1e-12)
    weights = drawn(*u.shape, seed=8).detach()
    found = [torch.autograd.grad((x * weights).sum(), [u, matrix])[1] for x in (one, every)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-11)
