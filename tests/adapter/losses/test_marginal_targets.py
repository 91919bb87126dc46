"""Targets that are marginals, weights of items and tokens, and means over tokens."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from judges import EnumeratedFactor, linear_optimum, solve_graph
from layer_cases import normal
from loss_cases import ALL, FIELDS, MARGINS, PROBLEMS, losses, matching
from lpsmap import AtMostOne, Bits, DepTree, Sequence, TopK, TorchFactorGraph, Xor
from lpsmap_torch.losses import (
    CRFLoss,
    MarginCRFLoss,
    PerceptronLoss,
    SparseMAPLoss,
    sparsemap_loss,
)

double = torch.float64


def tagger(u: Any, transitions: Any) -> Sequence:
    return Sequence(u, transitions)


def taggings() -> tuple[Tensor, Tensor]:
    """Return all taggings of three words by two tags, and their additionals."""
    every = list(itertools.product(range(2), repeat=3))
    on = torch.stack([nn.functional.one_hot(torch.tensor(y), 2).double() for y in every])
    graph = TorchFactorGraph()
    u = graph.variable_from(1e3 * (on - 0.5))
    factor = graph.add(Sequence(u, torch.zeros(2, 2, dtype=double)))
    graph.solve()
    return on, graph.additionals_of(factor)


def mixed() -> tuple[Tensor, Tensor, Tensor]:
    """Return the probabilities of taggings for two items, and their marginals."""
    on, steps = taggings()
    p = torch.softmax(normal(2, 8, seed=4).detach(), 1)
    return p, torch.einsum("bs,sij->bij", p, on), torch.einsum("bs,s...->b...", p, steps)


def scored(scores: Tensor, w: Tensor) -> Tensor:
    """Return the scores of all taggings of an item."""
    every = itertools.product(range(2), repeat=3)
    return torch.stack(
        [sum(scores[i, t] for i, t in enumerate(y)) + w[y[0], y[1]] + w[y[1], y[2]] for y in every]
    )


@pytest.mark.parametrize("loss", [SparseMAPLoss, PerceptronLoss, CRFLoss])
def test_expected_scores_by_enumeration(loss: type) -> None:
    """The second term is the expectation under any distribution with these marginals."""
    p, mu, nu = mixed()
    scores, w = normal(2, 3, 2), normal(2, 2, seed=1)
    options = {"tol": 1e-10} if loss is SparseMAPLoss else {}
    found = loss(tagger, reduction="none", **options)(
        scores, mu, target_additionals=nu, transitions=w
    )
    inputs = scores, w
    gradients = torch.autograd.grad(found.sum(), inputs)
    on, steps = taggings()
    for b in range(2):
        worth = scored(scores[b], w)
        expected = (p[b] * worth).sum()
        if loss is CRFLoss:
            value = worth.logsumexp(0) - expected  # the expected negative log-likelihood
            torch.testing.assert_close(value, -(p[b] * worth.log_softmax(0)).sum())
        elif loss is PerceptronLoss:
            value = worth.max() - expected
        else:
            rows = on.reshape(8, 6).numpy()
            n = steps.reshape(8, -1).numpy()
            own = worth.detach() - (on * scores[b].detach()).sum((1, 2))
            eta_v = np.linalg.lstsq(n, own.numpy(), rcond=None)[0]
            factor = EnumeratedFactor(np.arange(6), [False] * 6, rows, n, eta_v)
            eta = scores[b].detach().numpy().reshape(-1)
            m, _, extra = solve_graph(eta, [factor])
            best = eta @ m + sum((n @ eta_v) @ x for x in extra) - 0.5 * m @ m
            value = torch.tensor(best) - expected.detach() + 0.5 * mu[b].square().sum()
        torch.testing.assert_close(found[b], value, rtol=0, atol=1e-7, check_dtype=False)
    again = loss(tagger, reduction="none", **options)
    assert all(g.isfinite().all() for g in gradients)

    def value_of(scores: Tensor, w: Tensor) -> Tensor:
        return again(scores, mu, target_additionals=nu, transitions=w)

    assert gradcheck(value_of, inputs, atol=1e-5)
    assert gradgradcheck(value_of, inputs, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("loss", [SparseMAPLoss, PerceptronLoss])
def test_relaxations_by_the_judge(loss: type) -> None:
    """Marginals of interacting factors: a mixture of two matchings."""
    problem = PROBLEMS["matchings"]
    one = nn.functional.one_hot(problem.target, 4).double()
    other = nn.functional.one_hot(problem.target.flip(1), 4).double()
    mu = 0.3 * one + 0.7 * other
    found = losses(
        loss, problem._replace(target=mu), **({"tol": 1e-10} if loss is SparseMAPLoss else {})
    )
    (gradient,) = torch.autograd.grad(found.sum(), problem.scores)
    places = np.arange(12).reshape(3, 4)
    none = np.zeros((1, 3))
    for b, eta in enumerate(problem.scores.detach().numpy().reshape(2, 12)):
        factors = [
            EnumeratedFactor(p, [False] * 4, np.eye(4), np.empty((4, 0)), []) for p in places
        ]
        columns = np.concatenate([np.eye(3), none])
        factors += [
            EnumeratedFactor(p, [False] * 3, columns, np.empty((4, 0)), []) for p in places.T
        ]
        u, _, _ = solve_graph(eta, factors)
        given = mu[b].numpy().reshape(-1)
        if loss is SparseMAPLoss:
            expected = eta @ (u - given) - 0.5 * (u @ u - given @ given)
            np.testing.assert_allclose(gradient[b].reshape(-1), u - given, atol=1e-7)
        else:
            expected = linear_optimum(eta, factors, u)[0] - eta @ given
        assert np.isclose(found[b].item(), expected, atol=1e-6)


def test_zero_at_the_marginals_of_the_solution() -> None:
    """As a student has them that equals its teacher; the gradient is zero, too."""
    scores, w = normal(2, 3, 2), normal(2, 2, seed=1)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores.detach())
    factor = graph.add(Sequence(u, w.detach()))
    graph.solve(tol=1e-11)
    given = {"target_additionals": graph.additionals_of(factor), "transitions": w}
    found = SparseMAPLoss(tagger, tol=1e-11)(scores, u.value, **given)
    assert abs(found.item()) < 1e-9
    for gradient in torch.autograd.grad(found, (scores, w)):
        assert gradient.abs().max() < 1e-6
    own = sparsemap_loss(u, u.value, target_additionals=graph.additionals_of(factor))
    assert abs(own.item()) < 1e-9
    gibbs = graph.gibbs(factor)
    field = CRFLoss(tagger)(
        scores, gibbs.marginals, target_additionals=gibbs.additionals, transitions=w
    )
    torch.testing.assert_close(field, gibbs.entropy.mean())
    assert max(g.abs().max() for g in torch.autograd.grad(field, (scores, w))) < 1e-12


def test_structures_are_marginals() -> None:
    """Zeros and ones with additionals give what they give without."""
    scores, w = normal(2, 3, 2), normal(2, 2, seed=1)
    on, steps = taggings()
    for loss in (SparseMAPLoss, PerceptronLoss, CRFLoss):
        plain = loss(tagger, reduction="none")(scores, on[:2], transitions=w)
        given = loss(tagger, reduction="none")(
            scores, on[:2], target_additionals=steps[:2], transitions=w
        )
        torch.testing.assert_close(plain, given)


def test_half_precision_and_negated_variables() -> None:
    scores = normal(3, 7).detach()
    mu = torch.softmax(normal(3, 7, seed=1).detach(), 1)
    exact = SparseMAPLoss(Xor, reduction="none")(scores, mu)
    for dtype in (torch.float16, torch.bfloat16):
        rough = SparseMAPLoss(Xor, reduction="none")(scores, mu.to(dtype))
        torch.testing.assert_close(rough, exact, rtol=0, atol=3e-2)
    turned = SparseMAPLoss(lambda u: Xor(~u), reduction="none")(-scores, 1.0 - mu)
    torch.testing.assert_close(turned, _negated(scores, mu))


def _negated(scores: Tensor, mu: Tensor) -> Tensor:
    """Return the loss of negated variables from its definition."""
    graph = TorchFactorGraph()
    u = graph.variable_from(-scores)
    graph.add(Xor(~u))
    graph.solve(tol=1e-11)
    m, given = u.value, 1.0 - mu
    return (-scores * (m - given)).sum(1) - 0.5 * (m.square() - given.square()).sum(1)


def test_bad_marginals_are_refused_in_words() -> None:
    scores, w = torch.zeros(2, 3, 2), torch.zeros(2, 2)
    _, mu, nu = mixed()
    mu, nu = mu.float(), nu.float()
    loss = SparseMAPLoss(tagger)
    for target, additionals, words in (
        (mu, None, "marginals do not determine the additionals of Sequence"),
        (mu, nu[:1], r"target_additionals has shape \(1, .*expected \(2,"),
        (mu, [nu, nu], "one array for every declaration with additionals"),
        (mu, nu * torch.nan, "target_additionals is not finite"),
        (mu * 0.9, nu, "item 0 is no mixture of structures of Sequence: a sum .* is 0.9"),
        (mu + 1.0, nu, "target holds 1..*; expected 0, 1, marginals between"),
        (mu.where(mu < mu.max(), torch.nan), nu, "marginals are given for some variables only"),
    ):
        with pytest.raises(ValueError, match=words):
            loss(scores, target, target_additionals=additionals, transitions=w)
    with pytest.raises(ValueError, match="no mixture of structures of AtMostOne"):
        SparseMAPLoss(lambda u: AtMostOne(u))(torch.zeros(1, 3), torch.full((1, 3), 0.5))
    with pytest.raises(ValueError, match="no mixture of structures of TopK"):
        SparseMAPLoss(lambda u: TopK(u, 1))(torch.zeros(1, 3), torch.full((1, 3), 0.5))
    with pytest.raises(ValueError, match="whose score is -inf"):
        SparseMAPLoss(Xor)(torch.tensor([[0.0, -torch.inf]]), torch.tensor([[0.5, 0.5]]))
    for loss in MARGINS:
        with pytest.raises(ValueError, match="a margin separates one structure"):
            loss(Bits)(torch.zeros(1, 2), torch.tensor([[0.5, 1.0]]))


def test_what_is_not_checked_shows_as_a_negative_loss() -> None:
    """A point whose rows sum to 1, of trees without a root."""
    cycle = torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.1, 0.9]]], dtype=double)
    scores = 20.0 * (cycle - 0.5)
    assert SparseMAPLoss(DepTree)(scores, cycle) < -1.0


# -------------------------------------------------------------------- weights


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.parametrize("loss", ALL)
def test_weights_of_items(loss: type, reduction: str) -> None:
    problem, weight = PROBLEMS["trees"], torch.tensor([2.0, 0.0, 0.5])
    criterion = loss(problem.factors, reduction=reduction)
    found = criterion(problem.scores, problem.target, root="self", weight=weight)
    each = losses(loss, problem) * weight
    expected = {
        "none": each,
        "sum": each.sum(),
        "mean": each.mean(),
        "token_mean": each.sum() / 9,
    }[reduction]
    torch.testing.assert_close(found, expected)
    one, other = (torch.autograd.grad(x.sum(), problem.scores)[0] for x in (found, expected))
    torch.testing.assert_close(one, other)


def test_weights_have_gradients() -> None:
    problem, weight = PROBLEMS["trees"], torch.rand(3, dtype=double).requires_grad_()
    found = SparseMAPLoss(DepTree)(problem.scores, problem.target, root="self", weight=weight)
    found.backward()
    torch.testing.assert_close(weight.grad, losses(SparseMAPLoss, problem).detach() / 3)


@pytest.mark.parametrize("loss", [SparseMAPLoss, PerceptronLoss])
def test_weights_of_tokens_and_classes(loss: type) -> None:
    """Rows without shared factors have losses of their own, here by class, as in torch's."""
    scores, target = normal(2, 4, 3), torch.tensor([[0, 2, -100, 1], [1, 1, 0, -100]])
    weight = torch.tensor([1.0, 0.5, 3.0])[target.clamp(min=0)]
    found = loss(Xor, reduction="none")(scores, target, weight=weight)
    rows = loss(Xor, reduction="none")(scores.reshape(8, 3), target.reshape(8)).reshape(2, 4)
    torch.testing.assert_close(found, (weight * rows).sum(1))
    mean = loss(Xor, reduction="token_mean")(scores, target)
    torch.testing.assert_close(mean, rows.sum() / 6)
    one_hot = nn.functional.one_hot(target.clamp(min=0), 3).double()
    one_hot[target < 0] = torch.nan
    assert loss(Xor, reduction="token_mean")(scores, one_hot) == mean
    assert loss(Xor, reduction="token_mean")(scores, torch.full((2, 4), -100)) == 0.0
    lengths = torch.tensor([[4, 2, 3, 1], [2, 2, 2, 2]])
    sequences = normal(2, 4, 4, 3, seed=3)
    tags = torch.zeros(2, 4, 4, dtype=torch.long)
    steps = torch.zeros(3, 3)
    weight = torch.rand(2, 4)
    for crf in FIELDS:
        given = {"lengths": lengths, "transitions": steps}
        found = crf(tagger_of_lengths, reduction="none")(sequences, tags, weight=weight, **given)
        flat = crf(tagger_of_lengths, reduction="none")(
            sequences.reshape(8, 4, 3),
            tags.reshape(8, 4),
            lengths=lengths.reshape(8),
            transitions=steps,
        )
        torch.testing.assert_close(found, (weight * flat.reshape(2, 4)).sum(1))
        mean = crf(tagger_of_lengths, reduction="token_mean")(sequences, tags, **given)
        torch.testing.assert_close(mean, flat.sum() / lengths.sum())


def tagger_of_lengths(u: Any, transitions: Any, lengths: Any) -> Sequence:
    return Sequence(u, transitions, lengths=lengths)


def test_bad_weights_are_refused_in_words() -> None:
    scores, target = torch.zeros(2, 3, 4), torch.tensor([[0, 3, 1], [2, 1, 0]])
    for weight, error, words in (
        (0.5, TypeError, "weight is a float; expected a tensor"),
        (torch.ones(3), ValueError, r"weight has shape \(3,\); expected \(2,\), .* \(2, 3, 4\)"),
        (torch.tensor(1.0), ValueError, r"weight has shape \(\)"),
        (torch.tensor([1.0, -1.0]), ValueError, "weight holds -1; expected finite"),
        (torch.tensor([1.0, torch.nan]), ValueError, "weight holds nan"),
        (torch.ones(2, 3), ValueError, "weight: factors connect the entries 0 and"),
    ):
        with pytest.raises(error, match=words):
            SparseMAPLoss(matching)(scores, target, weight=weight)
    with pytest.raises(ValueError, match="expected one of .*'token_mean'"):
        MarginCRFLoss(DepTree, reduction="tokens")
    empty = torch.zeros(0, 3, 4)
    assert SparseMAPLoss(Xor, reduction="token_mean")(empty, empty, weight=torch.zeros(0)) == 0.0
