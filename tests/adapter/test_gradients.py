"""Autograd through solutions: first and second derivatives, dtypes, layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lpsmap_torch
from layer_cases import normal
from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, OrOut, Pair, TorchFactorGraph, Xor
from lpsmap_core import ConvergenceWarning, Variables, stack
from random_graphs import random_graph


def matching(eta: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    graph.solve(tol=1e-10)
    value: Tensor = u.value
    return value


def pairs(eta: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    first, second = np.triu_indices(len(eta), k=1)
    factor = graph.add(Pair(u[first], ~u[second], w))
    graph.solve(tol=1e-10)
    return u.value, graph.additionals_of(factor)


def trees(eta: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    graph.add(DepTree(u, lengths=[2, 3]))
    graph.add(Budget(u, 2, axis=-2))
    graph.solve(tol=1e-10)
    value: Tensor = u.value
    return value


def negated(eta: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    graph.add(OrOut(stack([~u[:, 0], u[:, 1], ~u[:, 2]])))
    graph.add(Xor(stack([u[:, 0], u[:, 3]])))
    graph.solve(tol=1e-10)
    value: Tensor = (~u).value
    return value


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "matching": (matching, (normal(2, 3, 4),)),
    "pairs": (pairs, (normal(5), normal(10, seed=1))),
    "trees": (trees, (normal(2, 3, 3, seed=2),)),
    "negated": (negated, (normal(4, 4, seed=3),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradgradcheck(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradgradcheck(lambda *x: function(*(2 * y for y in x)), inputs, atol=1e-5)


def test_second_derivatives_of_a_loss_that_is_not_linear() -> None:
    """The gradient of ||mu||^2 is 2 P mu, whose own derivative is 2 P."""
    eta = normal(3, 4, seed=4)
    [gradient] = torch.autograd.grad((matching(eta) ** 2).sum(), eta, create_graph=True)
    d = torch.randn(3, 4, dtype=torch.float64)
    [second] = torch.autograd.grad((gradient * d).sum(), eta)
    [first] = torch.autograd.grad(matching(eta), eta, grad_outputs=d)
    torch.testing.assert_close(second, 2 * first, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    eta = normal(3, 4).detach().to(dtype).requires_grad_()
    value = matching(eta)
    assert value.dtype == dtype
    value[0, 0].backward()
    assert eta.grad is not None
    assert eta.grad.dtype == dtype
    double = eta.detach().double().requires_grad_()
    expected = matching(double)
    expected[0, 0].backward()
    accuracy = {"rtol": 0, "atol": 8 * torch.finfo(dtype).eps + 1e-9}
    torch.testing.assert_close(value.double(), expected, **accuracy)
    torch.testing.assert_close(eta.grad.double(), double.grad, **accuracy)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, 1:],
        lambda x: x[:3, None, 0].expand(3, 4),
        lambda x: x.as_strided((3, 4), (1, 1)),
        lambda x: x.flip(0),
    ],
)
def test_layouts(view: Callable[[Tensor], Tensor]) -> None:
    base = normal(6, 6, seed=5)
    strided = view(base)
    d = torch.arange(1.0, 1.0 + strided.numel(), dtype=torch.float64).reshape(strided.shape)
    [found] = torch.autograd.grad(matching(strided), base, grad_outputs=d)
    packed = view(base).clone(memory_format=torch.contiguous_format)
    [expected] = torch.autograd.grad(matching(packed), base, grad_outputs=d)
    torch.testing.assert_close(found, expected)


def test_blocks_of_different_dtypes() -> None:
    a, b = normal(3), normal(2, dtype=torch.float32)
    integers = torch.tensor([1, 0])
    graph = TorchFactorGraph()
    u, v, w = graph.variable_from(a), graph.variable_from(b), graph.variable_from(integers)
    zeros = graph.variable((2,))
    graph.add(Xor(stack([u[0], v[0], w[0], zeros[0]])))
    graph.add(Budget(stack([u[1], u[2], v[1], w[1], ~zeros[1]]), 2))
    graph.solve(tol=1e-10)
    assert u.value.dtype == torch.float64
    (u.value[0] + 2 * v.value[1] + w.value.sum() + zeros.value[0]).backward()
    assert a.grad is not None
    assert b.grad is not None
    assert (a.grad.dtype, b.grad.dtype) == (torch.float64, torch.float32)
    plain = FactorGraph()
    x = plain.variable_from(np.concatenate([y.detach().double().numpy() for y in (a, b, integers)]))
    y = plain.variable((2,))
    plain.add(Xor(stack([x[0], x[3], x[5], y[0]])))
    plain.add(Budget(stack([x[1], x[2], x[4], x[6], ~y[1]]), 2))
    solution = plain.solve(tol=1e-10)
    gradient, _ = solution.vjp(np.array([1, 0, 0, 0, 2, 1, 1, 1, 0.0]))
    np.testing.assert_allclose(np.concatenate([a.grad, b.grad]), gradient[:5], atol=1e-6)


def test_random_graphs_agree_with_the_numpy_front(draws: int) -> None:
    for seed in range(draws // 20):
        drawn = random_graph(np.random.default_rng(seed), 5)
        d = np.random.default_rng(seed).normal(size=len(drawn.eta))
        eta = torch.from_numpy(drawn.eta).requires_grad_()
        eta_v = [torch.from_numpy(e).requires_grad_() for e in drawn.eta_v]
        graph, u, factors = drawn.build(eta, eta_v, TorchFactorGraph())
        graph.solve(tol=1e-9, max_iter=5000)
        u.value.backward(torch.from_numpy(d))
        plain, v, plain_factors = drawn.build()
        solution = plain.solve(tol=1e-9, max_iter=5000)
        gradient, extra = solution.vjp(d)
        np.testing.assert_array_equal(u.value.detach(), v.value)
        np.testing.assert_array_equal(eta.grad, gradient)
        for tensor, factor, plain_factor, expected in zip(
            eta_v, factors, plain_factors, extra, strict=True
        ):
            if factor.n_additionals:
                np.testing.assert_array_equal(tensor.grad, expected.reshape(-1))
                np.testing.assert_array_equal(
                    graph.additionals_of(factor).detach(), plain.additionals_of(plain_factor)
                )


def test_gradients_to_additionals_alone() -> None:
    w = normal(3, seed=6)
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64))
    factor = graph.add(Pair(u[[0, 1, 2]], u[[1, 2, 0]], w))
    graph.solve(tol=1e-10)
    assert u.value.requires_grad
    both = graph.additionals_of(factor)
    assert both.shape == w.shape
    (both.sum() + u.value[0]).backward()
    assert w.grad is not None
    assert w.grad.abs().sum() > 0


def test_additionals_of_an_oracle_only_factor_learn() -> None:
    def solve(eta: Tensor, w: Tensor) -> Tensor:
        from random_graphs import Polytope

        graph = TorchFactorGraph()
        u = graph.variable_from(eta)
        m = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
        graph.add(Polytope(u, m, np.eye(3)[:, :2], w))
        graph.solve(tol=1e-10)
        value: Tensor = u.value
        return value

    assert torch.autograd.gradcheck(solve, (0.3 * normal(4, 3), 0.3 * normal(4, 2, seed=1)))


def test_no_grad_and_detached_scores() -> None:
    eta = normal(3, 4)
    with torch.no_grad():
        assert not matching(eta).requires_grad
    assert not matching(eta.detach()).requires_grad
    assert matching(eta).requires_grad


def test_values_may_be_used_twice_and_solved_again() -> None:
    eta = normal(3, 4)
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    graph.add(Xor(u))
    graph.solve()
    first = u.value
    first[0, 0].backward(retain_graph=True)
    u.value[0, 1].backward()
    graph.solve()
    u.value[1, 1].backward()
    assert eta.grad is not None
    assert torch.isfinite(eta.grad).all()
    first[2, 2].backward()


def test_a_step_of_an_optimiser_changes_no_solution() -> None:
    """It writes to the tensors of scores, which the graph holds."""
    weights = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 5, dtype=torch.float64))
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.linspace(1.0, -1.0, 6, dtype=torch.float64))
    pairs = graph.add(Pair(u[:-1], u[1:], weights))
    solution = graph.solve()
    objective, nu = solution.objective.copy(), graph.additionals_of(pairs)
    known, score = nu.detach().clone(), solution.decode().score
    with torch.no_grad():
        weights += 10.0
        graph.additionals_of(pairs).zero_()
    del solution.objective
    np.testing.assert_array_equal(solution.objective, objective)
    np.testing.assert_array_equal(solution.decode().score, score)
    torch.testing.assert_close(graph.additionals_of(pairs), known, rtol=0, atol=0)


def test_a_failed_instance_has_a_gradient_of_nan() -> None:
    """As in a softmax, whether the loss reads it or not; the others have theirs."""
    eta = normal(3, 4)
    scores = eta.clone()
    scores[1, 0] = torch.nan
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning, match="NaN"):
        graph.solve()
    assert torch.isnan(u.value[1]).all()
    u.value[[0, 2]].square().sum().backward()
    assert eta.grad is not None
    assert torch.isfinite(eta.grad[[0, 2]]).all()
    assert torch.isnan(eta.grad[1, 1:]).all()


def test_torch_scores_of_no_variables() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.empty(0, 3, requires_grad=True))
    graph.add(Xor(u))
    assert graph.solve().ok
    assert u.value.shape == (0, 3)
    assert TorchFactorGraph().solve().ok


def test_complex_scores_are_refused() -> None:
    with pytest.raises(TypeError, match="expected real numbers"):
        TorchFactorGraph().variable_from(torch.zeros(2, dtype=torch.complex64))


def test_the_package_names_its_graph() -> None:
    assert lpsmap_torch.TorchFactorGraph is TorchFactorGraph
    assert issubclass(TorchFactorGraph, FactorGraph)
    assert isinstance(TorchFactorGraph().variable(2), Variables)


def test_torch_gradients_after_rescoring_from_a_warm_start() -> None:
    rng = np.random.default_rng(5)
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor(rng.normal(size=(3, 4))))
    graph.add(Xor(u))
    pairs = graph.add(Pair(u[0], u[1], torch.tensor(rng.normal(size=4))))
    solution = graph.solve()
    scores = torch.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    extra = torch.tensor(rng.normal(size=4), requires_grad=True)
    graph.rescore(u, scores)
    graph.rescore(pairs, extra)
    graph.solve(tol=1e-10, warm_start=solution)
    (u.value**2).sum().backward()
    found = scores.grad.clone(), extra.grad.clone()
    scores.grad = extra.grad = None
    other = TorchFactorGraph()
    v = other.variable_from(scores)
    other.add(Xor(v))
    other.add(Pair(v[0], v[1], extra))
    other.solve(tol=1e-10)
    (v.value**2).sum().backward()
    torch.testing.assert_close(found, (scores.grad, extra.grad), rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
def test_masks_of_every_dtype(dtype: torch.dtype, padded: bool) -> None:
    """``masked_fill(mask, finfo(dtype).min)`` forbids; rows of nothing else are rows of equals."""
    rng = np.random.default_rng(0)
    scores = torch.as_tensor(rng.normal(size=(8, 6, 9)), dtype=dtype)
    masked = torch.as_tensor(rng.random((8, 6, 9)) < 0.2)
    masked[:, range(6), range(6)] = False
    results = []
    for value in (-torch.inf, torch.finfo(dtype).min):
        eta = scores.clone().requires_grad_()
        filled = eta.masked_fill(masked, value)
        if padded:
            equals = 0.0 if value == -torch.inf else value
            filled = torch.cat([filled, torch.full_like(filled[:, :2], equals)], 1)
        graph = TorchFactorGraph()
        u = graph.variable_from(filled)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        assert graph.solve().ok
        (u.value * torch.arange(u.size).reshape(u.shape).cos()).sum().backward()
        results.append((u.value.detach().double(), eta.grad.double()))
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
    assert (results[1][1][masked] == 0.0).all()
