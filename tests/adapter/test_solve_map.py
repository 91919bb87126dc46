"""The best structure in tensors."""

from __future__ import annotations

import pytest
import torch

from lpsmap import Pair, Sequence, TorchFactorGraph, Xor


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
