"""NaN and infinite numbers come through layers, graphs and losses, as through a softmax."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import CASES, Case, every_layer, normal, trained
from loss_cases import ALL, PROBLEMS, SMOOTH, losses
from lpsmap import AtMostOne, ConvergenceWarning, DepTree, Pair, Sequence, TorchFactorGraph, Xor
from lpsmap_torch import layers

every_bad = pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
Values = Callable[[Tensor], Tensor]


def two_factors(scores: Tensor) -> Tensor:
    """Return the marginals of matchings with pairs, whose faces have zeros in their Jacobians."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    graph.add(Pair(u[:, 0, 0], u[:, 1, 1], torch.ones(len(scores), dtype=scores.dtype)))
    graph.solve()
    return u.value


def probabilities(scores: Tensor) -> Tensor:
    """Return the probabilities of the trees of a solution."""
    graph = TorchFactorGraph()
    trees = graph.add(DepTree(graph.variable_from(scores)))
    graph.solve()
    found: Tensor = graph.structures(trees).probabilities
    return found


def gibbs_marginals(scores: Tensor) -> Tensor:
    """Return the marginals of Gibbs distributions over sequences."""
    graph = TorchFactorGraph()
    tags = graph.add(Sequence(graph.variable_from(scores), np.ones((3, 3))))
    return graph.gibbs(tags).marginals


GRAPHS = {"graph": two_factors, "structures": probabilities, "gibbs": gibbs_marginals}


def check_cotangents(values: Values, scores: Tensor, bad: float) -> None:
    """At whatever place of an item a gradient is bad, it makes the gradient of that item NaN."""
    found = values(scores)
    good = torch.ones_like(found)
    (expected,) = torch.autograd.grad(found, scores, good, retain_graph=True)
    for place in {0, found[1].numel() // 2, found[1].numel() - 1}:
        cotangent = good.clone()
        cotangent[1].view(-1)[place] = bad
        (gradient,) = torch.autograd.grad(found, scores, cotangent, retain_graph=True)
        assert gradient[1].isnan().all(), place
        torch.testing.assert_close(gradient[[0, 2]], expected[[0, 2]], rtol=0, atol=1e-12)


@every_bad
@every_layer
def test_bad_gradients_come_through_layers(case: Case, bad: float) -> None:
    check_cotangents(trained(case), normal(3, *case.shape, seed=2), bad)


@every_bad
@pytest.mark.parametrize("name", GRAPHS)
def test_bad_gradients_come_through_graphs(name: str, bad: float) -> None:
    check_cotangents(GRAPHS[name], normal(3, 3, 3, seed=2), bad)


@pytest.mark.parametrize("name", ["SequenceAttention", "LPSequenceAttention", "Rationale"])
def test_parameters_get_bad_gradients(name: str) -> None:
    layer = trained(CASES[name])
    values, parameters = layer(normal(2, *CASES[name].shape)), list(layer.parameters())
    gradients = torch.autograd.grad(values, parameters, torch.full_like(values, torch.inf))
    assert all(gradient.isnan().any() for gradient in gradients)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's about its own prototypes
@every_layer
def test_bad_numbers_come_through_both_products(case: Case) -> None:
    """Forward derivatives, and the gradients of gradients."""
    layer, scores = trained(case), normal(3, *case.shape, seed=2)
    direction = torch.ones_like(scores)
    direction[1].view(-1)[0] = torch.nan
    _, moved = torch.func.jvp(layer, (scores,), (direction,))
    assert moved[1].isnan().all() and moved[[0, 2]].isfinite().all()
    cotangent = torch.ones_like(scores).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(scores), scores, cotangent, create_graph=True)
    (twice,) = torch.autograd.grad(gradient, cotangent, direction)
    assert twice[1].isnan().all() and twice[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_scaler_skips_a_step_whose_gradient_overflows(dtype: torch.dtype) -> None:
    """A gradient beyond half precision arrives as infinity; the scale then halves."""
    weight = torch.nn.Parameter(torch.tensor([[0.9, 0.2, 0.1, -0.5]]))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    values = layers.TopK(2)((weight * torch.ones(2, 1)).to(dtype))
    wanted = torch.tensor([[1.0, 1e30, 1.0, 1.0]]) if dtype is not torch.float16 else 1e5
    loss = (values.float() * wanted * 1e10).square().sum()
    scaler.scale(loss).backward()
    before = weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight, before)
    assert scaler.get_scale() == 2.0**14


# -------------------------------------------------------------------- scores


def check_scores(values: Values, scores: Tensor, bad: float, items: list[int]) -> None:
    """Items with a bad score have values and gradients of NaN, whatever the loss reads."""
    others = [i for i in range(len(scores)) if i not in items]
    expected = values(scores.detach())[others]
    wrong = scores.detach().clone()
    wrong.view(len(wrong), -1)[items, 1] = bad
    wrong.requires_grad_()
    with pytest.warns(ConvergenceWarning, match="NON_FINITE: A score is NaN"):
        found = values(wrong)
    assert found[items].isnan().all()
    torch.testing.assert_close(found[others], expected, rtol=0, atol=1e-12)
    found[others].square().sum().backward()
    assert wrong.grad is not None
    assert wrong.grad[items].isnan().all()
    assert wrong.grad[others].isfinite().all()


@pytest.mark.parametrize("items", [[1], [0, 1, 2]], ids=["one", "all"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@every_layer
def test_bad_scores_come_through_layers(case: Case, bad: float, items: list[int]) -> None:
    check_scores(trained(case), normal(3, *case.shape), bad, items)


@pytest.mark.parametrize("items", [[1], [0, 1, 2]], ids=["one", "all"])
def test_bad_scores_come_through_graphs(items: list[int]) -> None:
    check_scores(two_factors, normal(3, 3, 3), torch.nan, items)


def test_bad_scores_of_all_variables_do_not_stop_a_step() -> None:
    """The relaxation and the search, too: one item or all of them behave alike."""
    for n in (1, 3):
        graph = TorchFactorGraph()
        u = graph.variable_from(torch.full((n, 3), torch.nan))
        graph.add(Xor(u))
        for exact in (False, True):
            with pytest.warns(ConvergenceWarning, match="NaN"):
                graph.solve_map(exact=exact)
            assert u.value.isnan().all()


@pytest.mark.parametrize("items", [[1], [0, 1, 2]], ids=["one", "all"])
@pytest.mark.parametrize("loss", ALL)
def test_bad_scores_come_through_losses(loss: type, items: list[int]) -> None:
    problem = PROBLEMS["trees"]
    scores = problem.scores.detach().clone()
    scores[items, 0, 1] = torch.nan
    scores.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = losses(loss, problem, scores)
    assert found.isnan().nonzero()[:, 0].tolist() == items
    found.sum().backward()
    assert scores.grad is not None
    assert scores.grad.isnan().flatten(1).any(1).nonzero()[:, 0].tolist() == items


@every_bad
@pytest.mark.parametrize("loss", ALL)
def test_bad_gradients_come_through_losses(loss: type, bad: float) -> None:
    problem = PROBLEMS["taggings"]
    w = problem.arguments["w"].detach().clone().requires_grad_()
    scores = problem.scores.detach().clone().requires_grad_()
    found = losses(loss, problem._replace(arguments={"w": w}), scores)
    gradients = torch.autograd.grad(found, (scores, w), torch.tensor([bad, 1.0]).to(found))
    assert not gradients[0][0].isfinite().all() and not gradients[1].isfinite().all()
    assert gradients[0][1].isfinite().all()


@pytest.mark.parametrize("loss", SMOOTH)
def test_bad_numbers_come_through_second_derivatives(loss: type) -> None:
    problem = PROBLEMS["trees"]
    scores = problem.scores.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        losses(loss, problem, scores).sum(), scores, create_graph=True
    )
    direction = torch.ones_like(gradient)
    direction[1, 0, 0] = torch.nan
    (twice,) = torch.autograd.grad(gradient, scores, direction)
    assert twice[1].isnan().all() and twice[[0, 2]].isfinite().all()


def test_variables_in_no_factor_pass_on_what_is_read_of_them() -> None:
    scores = torch.tensor([0.3, 0.1, torch.nan, 0.5, 2.0, torch.nan], requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u[:2]))
    with pytest.warns(ConvergenceWarning, match="in no factor"):
        solution = graph.solve()
    d = torch.tensor([1.0, 0.0, 1.0, torch.nan, torch.inf, 0.0])
    (gradient,) = torch.autograd.grad(u.value, scores, d)
    expected: Any = [0.5, -0.5, np.nan, np.nan, np.nan, 0.0]
    np.testing.assert_array_equal(gradient.numpy(), expected)
    np.testing.assert_array_equal(solution.vjp(d.double().numpy())[0], expected)
