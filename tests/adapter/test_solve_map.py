"""The best structure in tensors."""

from __future__ import annotations

import warnings

import pytest
import torch

from lpsmap import AtMostOne, ConvergenceWarning, Pair, Sequence, TorchFactorGraph, Xor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exact", [False, True])
def test_values_are_tensors_without_gradients(dtype: torch.dtype, exact: bool) -> None:
    scores = torch.tensor([[0.3, 0.1, -1.0]], dtype=dtype, requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    assert graph.solve_map(exact=exact).ok
    assert u.value.dtype is dtype
    assert not u.value.requires_grad
    torch.testing.assert_close(u.value, torch.tensor([[1.0, 0.0, 0.0]], dtype=dtype))
    graph.solve()
    assert u.value.requires_grad


def test_additionals_and_structures() -> None:
    transitions = torch.zeros(2, 2, requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.2, 0.0]]))
    sequence = graph.add(Sequence(u, transitions))
    pair = graph.add(Pair(u[0, 0], u[2, 1], torch.tensor(3.0)))
    assert graph.solve_map(exact=True).ok
    torch.testing.assert_close(pair.additionals_value, torch.tensor(1.0))
    assert graph.structures(sequence).probabilities.tolist() == [1.0]
    ((structure,),) = graph.structures(sequence)
    assert structure.decoded == {"tags": [0, 1, 1]}


def test_values_are_those_of_the_best_of_k() -> None:
    """They were those of the solve before, or had no size."""
    scores = torch.tensor([[0.3, 0.1, -1.0], [0.5, 2.0, 0.0]], requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.k_best(2)
    assert u.value.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    graph.solve()
    graph.rescore(u, -scores)
    best = graph.k_best(2)[0]
    assert graph.solution is best
    assert u.value.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert not u.value.requires_grad


def test_values_are_those_of_a_solution_whose_report_raises() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.zeros(6))
    graph.add(Xor(u[:4]))
    graph.add(AtMostOne(u[2:]))
    graph.add(Pair(u[[0, 1, 5]], u[[5, 4, 3]], [0.7, -0.9, 0.8]))
    graph.solve()
    graph.rescore(u, torch.tensor([0.3, 0.8, 0.9, 0.1, 0.4, 0.7]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            graph.solve(max_iter=1, tol=1e-12)
    assert graph.solution is not None
    torch.testing.assert_close(u.value.flatten(), torch.tensor(graph.solution.values))
