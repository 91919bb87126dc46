"""Solutions of layers: everything that belongs to one solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import judges
from judged_layers import Judged
from layer_cases import CASES, Case, every_layer, normal, trained
from lpsmap import Sequence, Xor
from lpsmap_torch.layers import (
    MatchingAttention,
    SparseMAP,
    TopK,
)
from lpsmap_torch.losses import SparseMAPLoss, sparsemap_loss

pytestmark = [
    pytest.mark.filterwarnings("ignore:lpsmap. Components were not solved"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

double = torch.float64


@every_layer
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_a_solution_has_everything_of_one_solve(case: Case, temperature: float) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    layer.tol, layer.temperature = 1e-10, temperature
    found = layer(scores, return_solution=True)
    expected = layer(scores)
    torch.testing.assert_close(found.marginals, expected, rtol=0, atol=1e-9)
    assert found.solved.all() and found.solved.shape == (3,)
    weights = list(layer.parameters())
    slopes = torch.autograd.grad(found.objective.sum(), (scores, *weights), retain_graph=True)
    torch.testing.assert_close(slopes[0], found.marginals, rtol=0, atol=1e-9)
    if weights:
        flat = torch.cat([x.reshape(-1) for x in slopes[1:]])
        order = layer._weights()
        (summed,) = torch.autograd.grad(
            (found.additionals.sum(0) * order).sum(), weights[:1], retain_graph=True
        )
        assert found.additionals.shape == (3, order.shape[-1])
        assert abs(found.additionals.sum() - flat.sum()) < 1e-9
        assert summed.shape == weights[0].shape
    for i in range(3):
        judged = Judged(layer, case, scores[i])
        scaled = [f._replace(eta_v=np.asarray(f.eta_v) / temperature) for f in judged.factors]
        mu, nus, _ = judges.solve_graph(judged.eta / temperature, scaled)
        worth = judged.eta @ mu - 0.5 * temperature * mu @ mu
        worth += sum(e @ n for e, n in zip(judged.eta_v, nus, strict=True))
        assert abs(found.objective[i].item() - worth) < 1e-6
    whole, alone = found.structures(), layer.structures(scores)
    torch.testing.assert_close(whole.probabilities, alone.probabilities, rtol=0, atol=1e-9)
    d = normal(*whole.probabilities.shape, seed=6).detach()
    torch.testing.assert_close(
        torch.autograd.grad(whole.probabilities, scores, d),
        torch.autograd.grad(alone.probabilities, scores, d),
        rtol=0,
        atol=1e-9,
    )


@every_layer
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_the_loss_of_a_solution_is_that_of_a_criterion(case: Case, temperature: float) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    layer.tol = 1e-10
    criterion = SparseMAPLoss(layer, temperature=temperature, reduction="none", tol=1e-10)
    target = layer.decode(normal(3, *case.shape, seed=8).detach())
    given = scores, *layer.parameters()
    expected = criterion(scores, target)
    slopes = torch.autograd.grad(expected.sum(), given)
    for each in (temperature, torch.full((3,), temperature, dtype=double)):
        layer.temperature = each
        solution = layer(scores, return_solution=True)
        solution.structures()
        found = sparsemap_loss(solution, target, reduction="none")
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
        found_slopes = torch.autograd.grad(found.sum(), given)
        torch.testing.assert_close(found_slopes, slopes, rtol=0, atol=1e-8)
        layer.temperature = 1.0


def test_the_loss_of_a_solution_needs_the_quadratic_term() -> None:
    found = TopK(2, estimator="map")(normal(2, 4), return_solution=True)
    with pytest.raises(RuntimeError, match='a layer with the estimator "sparsemap"'):
        sparsemap_loss(found, torch.eye(4)[:2] + torch.eye(4)[2])
    heads = MatchingAttention()(normal(2, 3, 3, 3), return_solution=True)
    losses = sparsemap_loss(heads, torch.eye(3).expand(2, 3, 3, 3), reduction="none")
    assert losses.shape == (2, 3)


def test_gradients_of_additionals_and_objectives() -> None:
    layer = SparseMAP(Sequence, tol=1e-12)
    scores, additionals = normal(2, 4, 3), normal(33, seed=1)

    def run(scores: Tensor, additionals: Tensor) -> Any:
        found = layer(scores, additionals, return_solution=True)
        return found.objective, found.additionals

    assert torch.autograd.gradcheck(run, (scores, additionals))
    assert torch.autograd.gradgradcheck(lambda *x: run(*x)[0], (scores, additionals))


def test_a_solution_of_a_function() -> None:
    def tags(u: Any, transitions: Any) -> Any:
        return [Sequence(u, transitions=transitions), Xor(u[..., 0])]

    scores, transitions = normal(2, 4, 3), normal(3, 3, seed=1)
    layer = SparseMAP(tags, temperature=0.5, tol=1e-10)
    found = layer(scores, transitions=transitions, return_solution=True)
    torch.testing.assert_close(found.marginals, layer(scores, transitions=transitions))
    assert [tuple(x.shape) for x in found.additionals] == [(2, 15)]
    slope, steps = torch.autograd.grad(found.objective.sum(), (scores, transitions))
    torch.testing.assert_close(slope, found.marginals, rtol=0, atol=1e-9)
    counts = found.additionals[0][:, 3:12].reshape(2, 3, 3).sum(0)
    torch.testing.assert_close(steps, counts, rtol=0, atol=1e-9)
    assert len(found.structures()) == 2


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ["sparsemap", "map", "marginals", "sample"])
def test_instances_without_a_structure_have_no_objective(estimator: str) -> None:
    scores = torch.tensor([[-torch.inf] * 4, [0.0, 1.0, 2.0, 3.0]], requires_grad=True)
    found = SparseMAP(Xor, estimator=estimator)(scores, return_solution=True)
    assert found.objective[0] == -torch.inf
    assert found.objective[1].isfinite()
    assert found.solved.tolist()[0] is False
    (gradient,) = torch.autograd.grad(found.objective.sum(), scores)
    assert not gradient[0].any()
    assert gradient[1].any()


def test_objectives_of_samples_have_the_slopes_of_log_partition_functions() -> None:
    layer, scores = trained(CASES["SequenceAttention"]), normal(2, 3, 4)
    found = []
    for estimator in ("sample", "marginals"):
        layer.estimator = estimator
        objective = layer(scores, return_solution=True).objective
        found.append([objective, *torch.autograd.grad(objective.sum(), (scores, layer.distances))])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
