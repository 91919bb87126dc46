"""Torch graphs in pickles."""

from __future__ import annotations

import pickle

import pytest
import torch

from lpsmap_factors_logic import Pair, Xor
from lpsmap_torch import TorchFactorGraph


@pytest.mark.parametrize("solved", [False, True])
def test_a_torch_graph_is_pickled_with_its_leaves(solved):
    scores = torch.tensor([0.3, 0.1, -1.0], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(Pair(u[0], u[1], weight * torch.ones((), dtype=torch.float64)))
    if solved:
        graph.solve()
    other, v = pickle.loads(pickle.dumps((graph, u)))
    graph.solve()
    other.solve()
    torch.testing.assert_close(u.value, v.value)
    (theirs,) = torch.autograd.grad(v.value[0], other._scores)
    (mine,) = torch.autograd.grad(u.value[0], scores)
    torch.testing.assert_close(theirs, mine)
