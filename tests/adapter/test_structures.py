"""Distributions over structures as differentiable tensors: sparse marginalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lpsmap import AtMostOne, Budget, DepTree, Pair, Sequence, TorchFactorGraph, Xor

Function = Callable[..., Tensor]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw a tensor that requires gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()


def xor(eta: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    factor = graph.add(Xor(~graph.variable_from(eta)))
    graph.solve(tol=1e-10)
    probabilities: Tensor = graph.structures(factor).probabilities
    return probabilities


def trees(eta: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    factor = graph.add(DepTree(u, lengths=[2, 3]))
    graph.add(Budget(u, 2, axis=-2))
    graph.solve(tol=1e-10)
    probabilities: Tensor = graph.structures(factor).probabilities
    return probabilities


def chains(eta: Tensor, transitions: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    factor = graph.add(Sequence(~u, transitions))
    graph.add(AtMostOne(u[..., 0]))
    graph.solve(tol=1e-10)
    probabilities: Tensor = graph.structures(factor).probabilities
    return probabilities


def pairs(eta: Tensor, w: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    factor = graph.add(Pair(u[[0, 1, 2]], ~u[[1, 2, 3]], w))
    graph.solve(tol=1e-10)
    probabilities: Tensor = graph.structures(factor).probabilities
    return probabilities


def drawn(*shape: int, scale: float = 0.5, offset: float = 0.0, seed: int) -> Tensor:
    """Draw a small tensor that requires gradients."""
    return (offset + scale * normal(*shape, seed=seed).detach()).requires_grad_()


FUNCTIONS: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "xor": (xor, (drawn(3, 4, seed=1),)),
    "trees": (trees, (drawn(2, 3, 3, seed=4),)),
    "chains": (chains, (drawn(2, 3, 2, seed=2), drawn(2, 2, scale=1.0, seed=3))),
    "pairs": (pairs, (drawn(4, scale=0.3, offset=0.5, seed=1), drawn(3, seed=2))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    assert function(*inputs).shape[-1] > 1, "nothing to check"
    assert torch.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradgradcheck(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, fast_mode=True)


def test_second_derivatives_of_a_loss_that_is_not_linear() -> None:
    """Where p is affine in the scores, of slope J, the gradient J^T p has the derivative J^T J."""
    eta = drawn(2, 3, 3, seed=4)
    [gradient] = torch.autograd.grad((trees(eta) ** 2).sum() / 2, eta, create_graph=True)
    d = torch.randn(2, 3, 3, dtype=torch.float64)
    [second] = torch.autograd.grad((gradient * d).sum(), eta)
    jacobian = torch.autograd.functional.jacobian(trees, eta.detach())
    along = torch.einsum("bkcij,cij->bk", jacobian, d)
    torch.testing.assert_close(
        second, torch.einsum("bkcij,bk->cij", jacobian, along), rtol=0, atol=1e-8
    )


def test_expected_structures_are_the_marginals_and_so_are_their_gradients() -> None:
    """Also through additionals: sum_s p_s n_s and the factor's own value have one gradient."""
    eta, w = normal(2, 4, 3, seed=8), normal(3, 3, seed=9)
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    factor = graph.add(Sequence(u, w))
    graph.add(AtMostOne(u[..., 0]))
    graph.solve(tol=1e-10)
    found = graph.structures(factor)
    p = found.probabilities
    pairs = [
        (torch.einsum("bk,bkls->bls", p, found.variables), u.value),
        (torch.einsum("bk,bka->ba", p, found.additionals), factor.additionals_value),
    ]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)
        d = torch.randn(one.shape, dtype=torch.float64)
        gradients = [
            torch.autograd.grad(x, (eta, w), grad_outputs=d, retain_graph=True)
            for x in (one, other)
        ]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def test_sparse_marginalisation_trains() -> None:
    """A loss that only whole structures have is brought down: the gold trees get likely."""
    eta = (0.1 * normal(4, 5, 5, seed=10).detach()).requires_grad_()
    gold = torch.tensor([[1, 2, -1, 2, 3], [-1, 0, 1, 2, 3], [3, 3, 3, -1, 3], [4, 0, 0, 0, -1]])
    arcs = torch.nn.functional.one_hot(torch.where(gold < 0, torch.arange(5), gold), 5).double()
    optimizer = torch.optim.SGD([eta], lr=2.0)
    for _ in range(25):
        graph = TorchFactorGraph()
        factor = graph.add(DepTree(graph.variable_from(eta), single_root=True))
        graph.solve()
        found = graph.structures(factor)
        wrong = (5.0 - torch.einsum("bkmh,bmh->bk", found.variables, arcs)) ** 1.5
        loss = (found.probabilities * wrong).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for distribution, heads in zip(graph.structures(factor), gold.tolist(), strict=True):
        assert distribution[0].decoded["heads"] == heads
        assert distribution[0].probability > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dtypes_and_no_grad(dtype: torch.dtype) -> None:
    eta = normal(3, 4).detach().to(dtype).requires_grad_()
    probabilities = xor(eta)
    assert probabilities.dtype == dtype
    probabilities[:, 0].sum().backward()
    assert eta.grad is not None
    assert eta.grad.dtype == dtype
    assert not xor(eta.detach()).requires_grad
    with torch.no_grad():
        assert not xor(eta).requires_grad


def test_what_a_distribution_holds_in_torch() -> None:
    eta = normal(2, 3, dtype=torch.float32)
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    factor = graph.add(Xor(u))
    with pytest.raises(RuntimeError, match="call graph"):
        graph.structures(factor)
    graph.solve()
    found = graph.structures(factor)
    for array in (found.probabilities, found.variables, found.additionals, found.scores):
        assert isinstance(array, Tensor)
        assert array.dtype == torch.float32
    one = found[1]
    assert one.probabilities.requires_grad
    torch.testing.assert_close(one.probabilities, found.probabilities[1, : len(one)])
    assert isinstance(one[0].probability, float)
    assert repr(one).startswith("Xor: ")


def test_additionals_value_is_a_tensor_with_gradients() -> None:
    w = normal(3, seed=6)
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64))
    factor = graph.add(Pair(u[[0, 1, 2]], u[[1, 2, 0]], w))
    graph.solve(tol=1e-10)
    value: Any = factor.additionals_value
    assert value.shape == w.shape
    value.sum().backward()
    assert w.grad is not None
    assert w.grad.abs().sum() > 0
