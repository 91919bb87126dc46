"""Options of a solve: in tensors, of layers, and of losses."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from layer_cases import normal
from lpsmap import ALGORITHM_1, AtMostOne, Factor, FactorGraph, TorchFactorGraph, Variables, Xor
from lpsmap_torch.layers import LatentTree, LPMatchingAttention, SparseMAP
from lpsmap_torch.layers.layer import OPTIONS, Layer
from lpsmap_torch.losses import SparseMAPLoss


def test_a_tensor_of_one_number_is_a_number() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([0.3, 0.1, -1.0]))
    graph.add(Xor(u))
    graph.solve(max_iter=torch.tensor(50), tol=torch.tensor(1e-6), adapt=torch.tensor(False))
    assert u.value.tolist() == pytest.approx([0.6, 0.4, 0.0])
    with pytest.raises(TypeError, match=r"^tol: got tensor\(\[.*\]\); expected a number"):
        graph.solve(tol=torch.tensor([1e-6]))


def matching(u: Variables) -> list[Factor]:
    return [Xor(u), AtMostOne(u, axis=1)]


@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")
def test_graphs_layers_and_losses_take_the_options_of_the_papers() -> None:
    scores = 3.0 * normal(2, 3, 4)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores.detach())
    for factor in matching(u):
        graph.add(factor)
    graph.solve(**ALGORITHM_1)
    assert (LPMatchingAttention()(scores) - u.value).abs().max() > 1e-3
    torch.testing.assert_close(LPMatchingAttention(**ALGORITHM_1)(scores), u.value)
    target = torch.eye(3, 4).expand(2, 3, 4)
    loss = SparseMAPLoss(matching, reduction="sum", **ALGORITHM_1)(scores, target)
    (gradient,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(gradient, u.value - target)


def test_layers_have_the_defaults_of_solves() -> None:
    offered = inspect.signature(FactorGraph.solve).parameters
    assert {name: offered[name].default for name in OPTIONS} == OPTIONS
    own = inspect.signature(Layer.__init__).parameters
    assert {name: own[name].default for name in OPTIONS} == OPTIONS


def test_layers_show_the_options_of_the_papers() -> None:
    expected = "max_iter=10, max_inner_iter=10, step_size=0.5, adapt=False, relaxation=1.0"
    assert repr(LatentTree(**ALGORITHM_1)) == f"LatentTree({expected})"
    assert repr(SparseMAP(Xor, **ALGORITHM_1)) == f"SparseMAP(factors=Xor, {expected})"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"relaxation": 2}, "relaxation: got 2"), ({"step_size": -1.0}, "step_size: got -1.0")],
)
def test_layers_refuse_bad_options(options: dict[str, Any], words: str) -> None:
    for make in (LPMatchingAttention, lambda **given: SparseMAP(Xor, **given)):
        with pytest.raises(ValueError, match=words):
            make(**options)
