"""Graphs with tensors solved at a temperature, with its gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from layer_cases import normal
from lpsmap import AtMostOne, Pair, TorchFactorGraph, Xor

double = torch.float64


def solved(
    temperature: Any, scores: Tensor, alone: Tensor, pairs: Tensor | None = None, **options: Any
) -> tuple[Tensor, ...]:
    graph = TorchFactorGraph()
    u, free = graph.variable_from(scores), graph.variable_from(alone)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    given: tuple[Tensor, ...] = ()
    if pairs is not None:
        pair = graph.add(Pair(u[:2, 0], u[:2, 1], pairs))
    graph.solve(temperature=temperature, **{"tol": 1e-11, **options})
    if pairs is not None:
        given = (graph.additionals_of(pair),)
    return (u.value, free.value, *given)


INPUTS = normal(3, 4), normal(3, seed=1), normal(2, seed=2)


@pytest.mark.parametrize("t", [1e-3, 0.4, 1.0, 6.0])
def test_values_and_gradients(t: float) -> None:
    scores, alone, pairs = INPUTS
    expected = solved(1.0, scores / t, alone / t, pairs / t)
    for temperature in (t, torch.tensor(t, dtype=double), torch.tensor([[t]], dtype=double)):
        found = solved(temperature, scores, alone, pairs)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
        d = [torch.randn(x.shape, dtype=double) for x in found]
        for one, other in zip(
            torch.autograd.grad(found, INPUTS, d),
            torch.autograd.grad(expected, INPUTS, d, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_derivatives_in_the_temperature() -> None:
    def function(logarithm: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        return solved(logarithm.exp(), *inputs)

    logarithm = torch.tensor(-0.5, dtype=double, requires_grad=True)
    assert torch.autograd.gradcheck(function, (logarithm, *INPUTS), atol=1e-5)
    assert torch.autograd.gradgradcheck(function, (logarithm, *INPUTS), atol=1e-5, fast_mode=True)


def test_on_the_device() -> None:
    t = torch.tensor(0.6, dtype=double, requires_grad=True)
    scores, alone, _ = INPUTS
    core = solved(t, scores, alone)
    tensor = solved(t, scores, alone, engine="tensor")
    for number in (core, tensor, solved(0.6, scores, alone, engine="tensor")):
        for one, other in zip(number, core, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-7)
    d = [torch.randn(x.shape, dtype=double) for x in core]
    for one, other in zip(
        torch.autograd.grad(core, (t, scores, alone), d),
        torch.autograd.grad(tensor, (t, scores, alone), d),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_solutions_on_the_device_are_in_the_units_of_the_scores() -> None:
    found = []
    for engine in ("auto", "tensor"):
        graph = TorchFactorGraph()
        u = graph.variable_from(INPUTS[0].detach())
        graph.variable_from(INPUTS[1].detach())
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        found.append(graph.solve(temperature=0.4, engine=engine))
    core, tensor = found
    torch.testing.assert_close(torch.tensor(tensor.objective), torch.tensor(core.objective))
    torch.testing.assert_close(
        torch.tensor(tensor.vjp(core.scores)[0]), torch.tensor(core.vjp(core.scores)[0])
    )
    assert (tensor.gap < 1e-6).all()
    assert core.solved.quadratic == tensor.solved.quadratic == 0.4
    for solution in found:
        rows = solution.structures(solution.factors[0])
        mean = torch.einsum("bk,bkj->bj", *map(torch.tensor, (rows.probabilities, rows.variables)))
        torch.testing.assert_close(
            mean.reshape(-1), torch.tensor(core.values[:12]), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("mask", [-torch.inf, -1e9])
def test_masks_have_finite_gradients(mask: float) -> None:
    t = torch.tensor(0.5, dtype=double, requires_grad=True)
    for engine in ("auto", "tensor"):
        graph = TorchFactorGraph()
        u = graph.variable_from(torch.tensor([0.3, mask, 0.1], dtype=double))
        free = graph.variable_from(torch.tensor([0.2, mask], dtype=double))
        graph.add(Xor(u))
        graph.solve(temperature=t, engine=engine)
        (slope,) = torch.autograd.grad(u.value[0] + free.value.sum(), t)
        torch.testing.assert_close(slope.item(), -0.1 / 0.25 - 0.2 / 0.25)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precision(dtype: torch.dtype) -> None:
    t = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    value, _ = solved(t, INPUTS[0].to(dtype), INPUTS[1].to(dtype))
    assert value.dtype == dtype
    value.square().sum().backward()
    assert t.grad.dtype == dtype


def test_bad_temperatures() -> None:
    scores, alone, _ = (x.detach() for x in INPUTS)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        for each in (bad, torch.tensor(bad)):
            with pytest.raises(ValueError, match="temperature: got .*; expected a positive number"):
                solved(each, scores, alone)
    for other in (True, "1", None, torch.tensor(2), [1.0, 2.0]):
        with pytest.raises(TypeError, match="temperature: got .*; expected a positive number"):
            solved(other, scores, alone)
    with pytest.raises(ValueError, match=r"temperature has shape \(2,\); expected one element"):
        solved(torch.ones(2), scores, alone)
    with pytest.raises(TypeError, match="temperature: got a meta tensor"):
        solved(torch.ones((), device="meta"), scores, alone)


def test_a_refused_solve_keeps_the_temperature_of_the_solution() -> None:
    graph = TorchFactorGraph()
    graph.add(Xor(graph.variable_from(torch.zeros(3))))
    graph.solve(temperature=0.5)
    with pytest.raises(ValueError, match="max_iter"):
        graph.solve(temperature=2.0, max_iter=0)
    assert graph._temperature == graph.solution.solved.quadratic == 0.5
    assert copy.deepcopy(graph)._temperature == 1.0


def test_a_change_after_the_solve() -> None:
    t = torch.tensor(0.5, dtype=double, requires_grad=True)
    value, _ = solved(t, *INPUTS[:2])
    (wanted,) = torch.autograd.grad(value.square().sum(), t, retain_graph=True)
    with torch.no_grad():
        t.fill_(3.0)
    try:
        (found,) = torch.autograd.grad(value.square().sum(), t)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        torch.testing.assert_close(found, wanted)
