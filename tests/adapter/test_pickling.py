"""Torch graphs in pickles."""

from __future__ import annotations

import pickle

import pytest
import torch

from lpsmap_factors_logic import Pair, Xor
from lpsmap_torch import TorchFactorGraph
from lpsmap_torch.distributions import (
    Alignment,
    BinaryTree,
    Chain,
    ProjectiveTree,
    SemiMarkov,
    Subset,
    Tree,
)


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


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    ("kind", "shape", "arguments"),
    [
        (Tree, (2, 4, 4), ()),
        (ProjectiveTree, (2, 4, 4), ()),
        (Alignment, (2, 4, 3), ()),
        (BinaryTree, (2, 4, 4), ()),
        (Subset, (2, 4), (2,)),
        (Chain, (2, 4, 3), (torch.eye(3),)),
        (SemiMarkov, (2, 4, 2, 3), (torch.eye(3),)),
    ],
)
def test_distributions_are_pickled(kind, shape, arguments, used):
    torch.manual_seed(0)
    distribution = kind(torch.randn(shape), *arguments)
    if used:
        assert distribution.entropy().isfinite().all()
    other = pickle.loads(pickle.dumps(distribution))
    torch.testing.assert_close(other.marginals, distribution.marginals, rtol=0, atol=0)
    torch.testing.assert_close(other.argmax, distribution.argmax, rtol=0, atol=0)
