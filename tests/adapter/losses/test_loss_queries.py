"""Marginals and rankings of losses."""

from __future__ import annotations

import itertools

import pytest
import torch

from lpsmap import AtMostOne, DepTree, Sequence, Xor
from lpsmap_torch.distributions import Chain
from lpsmap_torch.layers import SparseMAP
from lpsmap_torch.losses import CRFLoss, PerceptronLoss, SparseMAPLoss, StructuredHingeLoss


@pytest.mark.parametrize("loss", [SparseMAPLoss, CRFLoss, PerceptronLoss])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_marginals_are_the_gradient_and_the_target(loss: type, temperature: float) -> None:
    if loss is PerceptronLoss and temperature != 1.0:
        pytest.skip("a perceptron has no temperature")
    criterion = loss(DepTree, **({} if temperature == 1.0 else {"temperature": temperature}))
    scores = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    heads, lengths = torch.tensor([[-1, 0, 0, -100]]), torch.tensor([3])
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(scores, heads, lengths=lengths), scores)
    target = torch.zeros(1, 4, 4).double()
    target[0, 0, 0] = target[0, 1, 0] = target[0, 2, 0] = 1.0
    marginals = criterion.marginals(scores, lengths=lengths)
    torch.testing.assert_close(marginals - target, gradient, rtol=0.0, atol=1e-7)
    assert marginals.requires_grad == (loss is not PerceptronLoss)


def test_rankings() -> None:
    scores = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0))
    steps, lengths = torch.eye(2), torch.tensor([3, 1])
    ranked = CRFLoss(Sequence).k_best(scores, 3, transitions=steps, lengths=lengths)
    expected = Chain(scores, steps, lengths=lengths).k_best(3).values
    assert torch.equal(ranked[:, 0].argmax(-1), expected[:, 0])
    assert ranked[:, 1].sum((-1, -2)).tolist() == [1.0, 1.0, 0.0]  # it has two structures


def test_rankings_of_factors_that_interact() -> None:
    def matchings(u):
        return [Xor(u), AtMostOne(u, axis=1)]

    scores = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(0))
    criterion = StructuredHingeLoss(SparseMAP(matchings), cost=0.5)
    ranked = criterion.k_best(scores, 6)
    pairs = list(itertools.permutations(range(3), 2))
    pairs.sort(key=lambda p: -float(scores[0, 0, p[0]] + scores[0, 1, p[1]]))
    assert ranked[:, 0].argmax(-1).tolist() == [list(p) for p in pairs]
    assert torch.equal(ranked[0], criterion.decode(scores))
