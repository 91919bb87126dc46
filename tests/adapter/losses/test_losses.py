"""Losses: the facts that hold of them, and their definitions by enumeration."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from judges import EnumeratedFactor, linear_optimum, solve_graph
from layer_cases import normal
from loss_cases import FIELDS, MARGINS, PROBLEMS, SMOOTH, Problem, held, losses
from lpsmap import Pair, TorchFactorGraph, Xor
from lpsmap_core import Scores
from lpsmap_core.testing import check_factor
from lpsmap_dynamic import Beliefs
from lpsmap_torch.losses import (
    CRFLoss,
    MarginCRFLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
)

# -------------------------------------------------------------------- facts


@held
def test_gradients(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    given = tuple(x for x in problem.arguments.values() if isinstance(x, Tensor))

    def value(scores: Tensor, *given: Tensor) -> Tensor:
        arguments = dict(zip(problem.arguments, given, strict=True))
        return losses(loss, problem._replace(arguments=arguments), scores)

    assert gradcheck(value, (problem.scores, *given))
    assert gradgradcheck(value, (problem.scores, *given), fast_mode=True)


@held
def test_gradient_is_what_is_found_less_what_is_given(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    (gradient,) = torch.autograd.grad(losses(loss, problem).sum(), problem.scores)
    given = torch.nn.functional.one_hot(problem.target, problem.scores.shape[-1]).double()
    cost = 1.0 if loss in MARGINS else 0.0
    graph = TorchFactorGraph()
    u = graph.variable_from(problem.scores.detach() + cost * (1.0 - 2.0 * given))
    made = problem.factors(u, **problem.arguments)
    added = [graph.add(factor) for factor in (made if isinstance(made, list) else [made])]
    if loss in FIELDS:
        found = graph.gibbs(added[0]).marginals
    elif loss in SMOOTH:
        graph.solve()
        found = u.value
    else:
        graph.solve_map()
        found = u.value
    torch.testing.assert_close(gradient, found.detach() - given, rtol=0, atol=1e-12)


@held
def test_never_negative_and_convex(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    for seed in range(3):
        a, b = (10.0**k * normal(*problem.scores.shape, seed=seed + 7).detach() for k in (0, 1))
        ends = [losses(loss, problem, x) for x in (a, b)]
        for t in (0.25, 0.5, 0.9):
            between = losses(loss, problem, (1.0 - t) * a + t * b)
            assert (between >= 0.0).all()
            assert (between <= (1.0 - t) * ends[0] + t * ends[1] + 1e-5).all()


@held
def test_zero_if_and_only_if_the_margin_holds(loss: type, name: str) -> None:
    """The margin of a structure: by how much it scores better than others, by their distance.

    The scores are m for what is on and -m for what is not: another structure scores less by m for
    every wrong variable. SparseMAP asks for 1/2, costs for 1 more, the perceptron for nothing.
    """
    problem = PROBLEMS[name]
    arguments = {key: torch.zeros_like(x) for key, x in problem.arguments.items()}
    problem = problem._replace(arguments=arguments)
    given = torch.nn.functional.one_hot(problem.target, problem.scores.shape[-1]).double()
    if loss in FIELDS:
        assert (losses(loss, problem, 3.0 * (2.0 * given - 1.0)) > 0.0).all()
        assert (losses(loss, problem, 300.0 * (2.0 * given - 1.0)) < 1e-12).all()
        return
    asked = 0.5 * (loss in SMOOTH) + 1.0 * (loss in MARGINS)
    rounding = 1e-14 if problem.interacts else 0.0
    assert (losses(loss, problem, (asked + 1e-6) * (2.0 * given - 1.0)) <= rounding).all()
    assert (losses(loss, problem, (asked - 0.05) * (2.0 * given - 1.0)) > 0.0).all()


# -------------------------------------------------------------------- definitions


def all_trees(n: int) -> list[tuple[int, ...]]:
    """Return the heads of all trees of n words, a word's own number for the root."""

    def ends(heads: tuple[int, ...], word: int) -> bool:
        for _ in range(n):
            word = heads[word]
        return heads[word] == word

    every = itertools.product(range(n), repeat=n)
    return [heads for heads in every if all(ends(heads, word) for word in range(n))]


def listed(name: str, problem: Problem, b: int) -> list[tuple[Tensor, float]]:
    """Return all trees or taggings of an item: variables, and what else they score."""
    n, k = problem.scores.shape[1:]
    found = []
    for y in all_trees(n) if name == "trees" else itertools.product(range(k), repeat=n):
        extra = 0.0
        if name == "taggings":
            w = problem.arguments["w"].detach()
            extra = sum(float(w[a, c]) for a, c in itertools.pairwise(y))
        found.append((torch.nn.functional.one_hot(torch.tensor(y), k).double(), extra))
    return found


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
@pytest.mark.parametrize("name", ["trees", "taggings"])
@pytest.mark.parametrize("loss", [PerceptronLoss, StructuredHingeLoss, CRFLoss, MarginCRFLoss])
def test_definition_by_enumeration(loss: type, name: str, partly: bool) -> None:
    problem = PROBLEMS[name]
    target = problem.target.clone()
    if partly:
        target[0, 1] = target[1, 0] = -100
    found = losses(loss, problem._replace(target=target))
    for b in range(len(target)):
        gold = torch.nn.functional.one_hot(target[b].clamp(min=0), problem.scores.shape[-1])
        known = (target[b] >= 0)[:, None]
        cost = 1.0 if loss in MARGINS else 0.0
        worth, agrees = [], []
        for y, extra in listed(name, problem, b):
            wrong = (known & (y != gold)).sum()
            score = (y * problem.scores[b].detach()).sum() + extra
            worth.append(float(score + cost * wrong))
            agrees.append(wrong == 0)
        values = torch.tensor(worth, dtype=torch.float64)
        chosen = values[torch.tensor(agrees)]
        if loss in FIELDS:
            expected = values.logsumexp(0) - chosen.logsumexp(0)
        else:
            expected = values.max() - chosen.max()
        torch.testing.assert_close(found[b].detach(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
def test_relaxations_by_the_judge(partly: bool) -> None:
    """Interacting factors: quadratic and linear programs over the listed vertices."""
    problem = PROBLEMS["matchings"]
    target = problem.target.clone()
    if partly:
        target[:, 0] = -100
    found = losses(SparseMAPLoss, problem._replace(target=target), tol=1e-10)
    linear = losses(PerceptronLoss, problem._replace(target=target), tol=1e-10)
    one, none = np.eye(4), np.zeros((1, 3))
    places = np.arange(12).reshape(3, 4)
    for b, eta in enumerate(problem.scores.detach().numpy().reshape(2, 12)):
        worth, best = [], []
        known = [one[y : y + 1] if y >= 0 else one for y in target[b].tolist()]
        for rows in ([one] * 3, known):
            factors = [
                EnumeratedFactor(places[i], [False] * 4, rows[i], np.empty((len(rows[i]), 0)), [])
                for i in range(3)
            ]
            columns = np.concatenate([np.eye(3), none])
            factors += [
                EnumeratedFactor(places[:, j], [False] * 3, columns, np.empty((4, 0)), [])
                for j in range(4)
            ]
            mu, _, _ = solve_graph(eta, factors)
            worth.append(eta @ mu - 0.5 * mu @ mu)
            best.append(linear_optimum(eta, factors, mu)[0])
        assert np.isclose(found[b].item(), worth[0] - worth[1], atol=1e-8)
        assert np.isclose(linear[b].item(), best[0] - best[1], atol=1e-6)


def test_latent_variables_do_not_count_themselves() -> None:
    """A variable of the function's own is whatever suits the labels best: summed or maximised."""
    scores, own = normal(2, 3), normal(2, seed=3)

    def factors(u: Any) -> list[Any]:
        h = u.graph.variable_from(own)
        return [Pair(u[:, 0], h, 2.0 * torch.ones(2).double()), Xor(u)]

    target = torch.tensor([0, 2])
    found = SparseMAPLoss(factors, reduction="none")(scores, target)
    (gradient,) = torch.autograd.grad(found.sum(), own)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores.detach())
    h = graph.variable_from(own.detach())
    graph.add(Pair(u[:, 0], h, 2.0 * torch.ones(2).double()))
    graph.add(Xor(u))
    graph.solve()
    on = (target == 0).double()
    given = (own.detach() + 2.0 * on).clamp(0.0, 1.0)
    torch.testing.assert_close(gradient, h.value - given, rtol=0, atol=1e-6)


class Chosen(Xor):
    """A type that sums over its structures, as somebody else would write it."""

    def log_partition(self) -> Any:
        return Softmax(self.batch_shape[0])


class Softmax(NamedTuple):
    """Log-partition functions of one of several."""

    n: int

    def beliefs(self, rows: Any, scores: Scores) -> Beliefs:
        table = scores.eta_u.reshape(self.n, -1)
        log_z = np.logaddexp.reduce(table, axis=1)
        p = np.exp(table - log_z[:, None])
        logs = np.log(p, where=p > 0.0, out=np.zeros_like(p))
        return Beliefs(log_z, -(p * logs).sum(axis=1), p.reshape(-1), np.empty(0))

    def hessian_product(self, rows: Any, scores: Scores, direction: Scores) -> Scores:
        p = self.beliefs(rows, scores).m.reshape(self.n, -1)
        d = direction.eta_u.reshape(self.n, -1)
        return Scores((p * (d - (p * d).sum(axis=1, keepdims=True))).reshape(-1), np.empty(0))


def test_types_of_others_bring_log_partition_functions() -> None:
    """A random field of one variable of several is a softmax: its loss is the cross-entropy."""
    scores, target = normal(4, 3), torch.tensor([0, 2, 1, 1])
    check_factor(Chosen(TorchFactorGraph().variable((2, 3))), draws=4)
    expected = torch.nn.functional.cross_entropy(scores, target)
    torch.testing.assert_close(CRFLoss(Chosen)(scores, target), expected)
    assert gradcheck(lambda x: CRFLoss(Chosen)(x, target), (scores,))
    assert gradgradcheck(lambda x: CRFLoss(Chosen)(x, target), (scores,))
