"""Options of a solve in tensors."""

from __future__ import annotations

import pytest
import torch

from lpsmap import TorchFactorGraph, Xor


def test_a_tensor_of_one_number_is_a_number() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([0.3, 0.1, -1.0]))
    graph.add(Xor(u))
    graph.solve(max_iter=torch.tensor(50), tol=torch.tensor(1e-6), adapt=torch.tensor(False))
    assert u.value.tolist() == pytest.approx([0.6, 0.4, 0.0])
    with pytest.raises(TypeError, match=r"^tol: got tensor\(\[.*\]\); expected a number"):
        graph.solve(tol=torch.tensor([1e-6]))
