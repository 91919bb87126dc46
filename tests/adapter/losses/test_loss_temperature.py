"""Losses at a temperature T: T times the losses of scores divided by T, with the gradient in T."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from layer_cases import normal
from loss_cases import FIELDS, HELD, MARGINS, PROBLEMS, SMOOTH, Problem, losses
from lpsmap import AtMostOne, DepTree, Sequence, TorchFactorGraph, Xor
from lpsmap_torch.losses import (
    CRFLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
    sparsemap_loss,
)

double = torch.float64
TEMPERATURES = [1e-3, 0.3, 1.0, 5.0, 1e4]
smooth = pytest.mark.parametrize(
    ("loss", "name"),
    [(loss, name) for loss, name in HELD if loss in SMOOTH],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)


def rows(loss: type) -> Any:
    """Return factors for rows of scores: one of every row."""
    if loss not in FIELDS:
        return Xor
    return lambda u: Sequence(u, np.zeros((u.shape[-1], u.shape[-1])))


def at(problem: Problem, t: Any) -> Problem:
    """Return a problem whose scores and arguments are divided."""
    arguments = {name: value / t for name, value in problem.arguments.items()}
    return problem._replace(scores=problem.scores / t, arguments=arguments)


def unknown(problem: Problem) -> Problem:
    """Return a problem with the second row of every item unlabelled."""
    target = problem.target.clone()
    target[:, 1] = -100
    return problem._replace(target=target)


@smooth
@pytest.mark.parametrize("t", TEMPERATURES)
@pytest.mark.parametrize("partly", [False, True])
def test_losses_are_those_of_divided_scores(loss: type, name: str, t: float, partly: bool) -> None:
    problem = unknown(PROBLEMS[name]) if partly else PROBLEMS[name]
    margin = {"cost": 0.7} if loss in MARGINS else {}
    divided_margin = {"cost": 0.7 / t} if margin else {}
    options = {} if loss in FIELDS else {"tol": 1e-11}
    expected = t * losses(loss, at(problem, t), **divided_margin, **options)
    inputs = problem.scores, *problem.arguments.values()
    wanted = torch.autograd.grad(expected.sum(), inputs)
    for temperature in (
        t,
        torch.tensor(t, dtype=double),
        nn.Parameter(torch.tensor([t], dtype=double)),
    ):
        found = losses(loss, problem, temperature=temperature, **margin, **options)
        scale = max(1.0, float(expected.detach().abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * scale + 1e-9 * (t > 1))
        for one, other in zip(torch.autograd.grad(found.sum(), inputs), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


@smooth
@pytest.mark.parametrize("partly", [False, True])
def test_gradients_in_the_temperature(loss: type, name: str, partly: bool) -> None:
    problem = unknown(PROBLEMS[name]) if partly else PROBLEMS[name]
    options = {} if loss in FIELDS else {"tol": 1e-11}
    names = list(problem.arguments)

    def function(logarithm: Tensor, scores: Tensor, *arguments: Tensor) -> Tensor:
        given = problem._replace(arguments=dict(zip(names, arguments, strict=True)))
        return losses(loss, given, scores, temperature=logarithm.exp(), **options)

    logarithm = torch.tensor(-0.4, dtype=double, requires_grad=True)
    inputs = logarithm, problem.scores, *problem.arguments.values()
    assert torch.autograd.gradcheck(function, inputs, atol=1e-5)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("t", [1e-8, 1e-4, 0.5, 100.0, 1e8])
def test_extremes_are_the_enumeration(t: float) -> None:
    """The best structure near 0; the square of the distance of the mean far from it."""
    scores = normal(3, 2, 3)
    target = torch.tensor([[0, 1], [2, 0], [1, 2]])
    structures = [np.eye(3)[list(c)] for c in itertools.product(range(3), repeat=2) if c[0] != c[1]]

    def factors(u: Any) -> list[Any]:
        return [Xor(u), AtMostOne(u, axis=1)]

    temperature = torch.tensor(t, dtype=double, requires_grad=True)
    found = SparseMAPLoss(factors, reduction="none", temperature=temperature)(scores, target)
    found.sum().backward()
    assert torch.isfinite(temperature.grad)
    for loss, eta, y in zip(found.tolist(), scores.detach().numpy(), target, strict=True):
        own = np.eye(3)[y.tolist()]
        worth = [float((eta * s).sum()) for s in structures]
        hardest = max(worth) - float((eta * own).sum())
        if t <= 1e-4:
            assert hardest - 4 * t <= loss <= hardest + 4 * t
        if t >= 100.0:
            mean = np.mean(structures, axis=0)
            expected = (eta * (mean - own)).sum() - t / 2 * ((mean**2).sum() - 2.0)
            assert loss == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("t", [1e-3, 0.5, 1.0, 30.0])
def test_random_fields_are_the_enumeration(t: float) -> None:
    scores, w = normal(2, 3, 2), normal(2, 2, seed=1)
    target = torch.tensor([[0, 1, 1], [1, 0, 0]])
    temperature = torch.tensor(t, dtype=double, requires_grad=True)
    loss = CRFLoss(lambda u, w: Sequence(u, w), reduction="none", temperature=temperature)
    found = loss(scores, target, w=w)
    found.sum().backward()
    total = torch.tensor(0.0, dtype=double)
    again = torch.tensor(t, dtype=double, requires_grad=True)
    for i in range(2):

        def worth(tags: Any, i: int = i) -> Tensor:
            on = sum(scores[i, k, tag] for k, tag in enumerate(tags))
            return on + w[tags[0], tags[1]] + w[tags[1], tags[2]]

        every = torch.stack([worth(tags) for tags in itertools.product(range(2), repeat=3)])
        expected = again * torch.logsumexp(every / again, 0) - worth(target[i].tolist())
        torch.testing.assert_close(found[i], expected, rtol=1e-10, atol=1e-10)
        total = total + expected
    total.backward()
    torch.testing.assert_close(temperature.grad, again.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_precision_and_masks(loss: type, dtype: torch.dtype) -> None:
    for mask in (-torch.inf, torch.finfo(dtype).min):
        scores = torch.tensor([[[0.5, 0.25, mask], [mask, 0.5, 0.25]]], dtype=dtype)
        scores.requires_grad_()
        temperature = nn.Parameter(torch.tensor(0.5))
        found = loss(rows(loss), temperature=temperature)(scores, torch.tensor([[0, 1]]))
        assert found.dtype == torch.float32
        assert float(found.detach()) > 0.0
        found.backward()
        assert torch.isfinite(scores.grad).all()
        assert torch.isfinite(temperature.grad)


def test_of_a_solved_graph() -> None:
    """The loss has the temperature of the solve, also for unlabelled rows."""
    scores, t = normal(2, 3, 4), torch.tensor(0.6, dtype=double, requires_grad=True)
    for target in (torch.tensor([[0, 1, 2], [3, 2, 1]]), torch.tensor([[0, -100, 2], [3, 2, 1]])):
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        graph.solve(temperature=t, tol=1e-10)
        found = sparsemap_loss(u, target, reduction="none")
        loss = SparseMAPLoss(
            lambda u: [Xor(u), AtMostOne(u, axis=1)], reduction="none", temperature=t, tol=1e-10
        )
        expected = loss(scores, target)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
        for one, other in zip(
            torch.autograd.grad(found.sum(), (scores, t)),
            torch.autograd.grad(expected.sum(), (scores, t)),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-7)


@pytest.mark.parametrize("loss", [PerceptronLoss, StructuredHingeLoss])
def test_losses_without_a_quadratic_term_refuse_it(loss: type) -> None:
    with pytest.raises(TypeError, match=f"{loss.__name__}: temperature: .* no quadratic term"):
        loss(DepTree, temperature=0.5)


@pytest.mark.parametrize("loss", SMOOTH)
def test_bad_values(loss: type) -> None:
    name = loss.__name__
    scores, target = torch.zeros(1, 2, 3), torch.tensor([[0, 1]])
    for bad in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"{name}: temperature: got .*; expected a positive"):
            loss(Xor, temperature=bad)
        with pytest.raises(ValueError, match="temperature: got .*; expected a positive number"):
            loss(Xor, temperature=torch.tensor(bad, dtype=double))(scores, target)
    for other in (True, "1", None, torch.tensor(1), [1.0, 2.0]):
        with pytest.raises(TypeError, match=f"{name}: temperature: got .*; expected a positive"):
            loss(Xor, temperature=other)
    with pytest.raises(ValueError, match=r"temperature has shape \(2,\); expected one element"):
        loss(Xor, temperature=torch.ones(2))(scores, target)


@pytest.mark.parametrize("loss", SMOOTH)
def test_modules(loss: type) -> None:
    scores, target = normal(2, 3, 4), torch.tensor([[0, 1, 2], [3, 2, 1]])
    criterion = loss(rows(loss), temperature=nn.Parameter(torch.tensor(0.5, dtype=double)))
    assert [name for name, _ in criterion.named_parameters()] == ["temperature"]
    assert "temperature=<parameter" in repr(criterion)
    copies = [copy.deepcopy(criterion)]
    if loss not in FIELDS:  # a lambda cannot be pickled
        copies.append(pickle.loads(pickle.dumps(criterion)))
    for other in copies:
        assert torch.equal(other(scores, target), criterion(scores, target))
    number = loss(rows(loss), temperature=0.5)
    assert "temperature=0.5" in repr(number) and "temperature" not in repr(loss(rows(loss)))
    torch.testing.assert_close(number(scores, target), criterion(scores, target))
    number.temperature = 2.0
    assert not torch.equal(number(scores, target), criterion(scores, target))


def test_changes_between_forward_and_backward() -> None:
    scores, target = normal(2, 3, 4), torch.tensor([[0, 1, 2], [3, 2, 1]])
    for loss in SMOOTH:
        t = torch.tensor(0.5, dtype=double, requires_grad=True)
        criterion = loss(rows(loss), temperature=nn.Parameter(t.detach().clone()))
        value = criterion(scores, target)
        inputs = scores, criterion.temperature
        wanted = torch.autograd.grad(value, inputs, retain_graph=True)
        with torch.no_grad():
            criterion.temperature.fill_(4.0)
        try:
            found = torch.autograd.grad(value, inputs)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            continue
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_compiled() -> None:
    criterion = SparseMAPLoss(Xor, temperature=nn.Parameter(torch.tensor(0.5)))
    scores, target = torch.randn(2, 3, 4), torch.tensor([[0, 1, 2], [3, 2, 1]])
    compiled = torch.compile(lambda x: criterion(2.0 * x, target), backend="eager")
    torch.testing.assert_close(compiled(scores), criterion(2.0 * scores, target))
