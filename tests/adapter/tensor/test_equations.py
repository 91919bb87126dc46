"""The equations of the interior point method: factorised, or by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import AtMostOne, Pair, TorchFactorGraph, Xor
from lpsmap_torch.tensor.equations import ConjugateGradients, Dense


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def matching(graph: TorchFactorGraph) -> list[Tensor]:
    scores = normal(3, 4, 6).requires_grad_()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return [scores]


def grid(graph: TorchFactorGraph) -> list[Tensor]:
    scores, weights = normal(2, 3, 4).requires_grad_(), normal(2, 3, 3, seed=1).requires_grad_()
    u = graph.variable_from(scores)
    graph.add(Pair(u[:, :, :-1], u[:, :, 1:], weights))
    graph.add(AtMostOne(u, axis=-2))
    return [scores, weights]


def results(engine: str, build: Callable[[TorchFactorGraph], list[Tensor]]) -> list[Tensor]:
    """Return marginals and gradients of a graph, which must be solved."""
    graph = TorchFactorGraph()
    inputs = build(graph)
    solution = graph.solve(engine=engine, tol=1e-8, max_iter=20_000)
    assert solution.ok
    assert (solution.primal_residual <= 1e-8).all()
    values = [graph._values, *(x for x in graph._nu if x is not None)]
    loss = sum((normal(*x.shape, seed=7) * x).sum() for x in values)
    return [*values, *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("build", [matching, grid])
def test_large_components_by_conjugate_gradients(
    build: Callable[[TorchFactorGraph], list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.batches.MAX_DENSE_ROWS", 4)
    found, expected = (results(engine, build) for engine in ("tensor", "compiled"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_second_derivatives_of_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.batches.MAX_DENSE_ROWS", 1)

    def loss(scores: Tensor) -> Tensor:
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=-2))
        graph.solve(engine="tensor")
        found: Tensor = u.value.pow(3).sum()
        return found

    scores = normal(2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(loss, scores)
    assert torch.autograd.gradgradcheck(loss, scores)


@pytest.mark.slow
def test_a_component_of_more_than_1024_rows() -> None:
    scores = normal(40, 40)
    values = []
    for engine in ("tensor", "compiled"):
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(Pair(u[:, :-1], u[:, 1:], 0.3 * normal(40, 39, seed=1)))
        graph.add(AtMostOne(u, axis=0))
        assert graph.solve(engine=engine, tol=1e-9, max_iter=20_000).ok
        values.append(u.value)
    torch.testing.assert_close(*values, rtol=0, atol=1e-8)


# -------------------------------------------------------------------- equations


def test_all_equations_have_the_solutions_of_dense_ones() -> None:
    half = normal(2, 15, 20)
    matrix, right = half @ half.mT, normal(2, 15, seed=3)
    expected = np.linalg.solve(matrix.numpy(), right.numpy()[..., None])[..., 0]

    def times(x: Tensor) -> Tensor:
        return (matrix @ x.unsqueeze(-1)).squeeze(-1)

    for equations in (
        Dense(matrix),
        ConjugateGradients(times, matrix.diagonal(dim1=-2, dim2=-1)),
    ):
        found = equations.solve(right).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_singular_equations_have_some_solution() -> None:
    half = normal(2, 6, 3)
    matrix, x = half @ half.mT, normal(2, 6, seed=1)
    right = (matrix @ x.unsqueeze(-1)).squeeze(-1)
    found = Dense(matrix).solve(right)
    image = (matrix @ found.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(image, right, rtol=0, atol=1e-11)
