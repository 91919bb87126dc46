"""Training steps leave no objects behind, neither those of a solve nor those of autograd."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from layer_cases import normal
from loss_cases import ALL
from lpsmap import DepTree, TorchFactorGraph, Xor
from lpsmap_torch.estimators import BY_NAME
from lpsmap_torch.layers import SparseMAP

STEPS = 10


def solved(scores: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    tree = graph.add(DepTree(u))
    graph.solve()
    found: Tensor = u.value.square().sum() + graph.structures(tree).probabilities.square().sum()
    return found


def summed(scores: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    gibbs = graph.gibbs(graph.add(DepTree(graph.variable_from(scores))))
    found: Tensor = gibbs.marginals.square().sum() + (gibbs.entropy + gibbs.log_partition).sum()
    return found


def summed_graph(scores: Tensor) -> Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    gibbs = graph.gibbs()
    found: Tensor = gibbs.value_of(u).square().sum() + (gibbs.entropy + gibbs.log_partition).sum()
    return found


def estimated(name: str, scores: Tensor) -> Tensor:
    found = SparseMAP(Xor, estimator=name)(scores, return_solution=True)
    loss: Tensor = found.marginals.square().sum() + found.objective.sum()
    return loss


def lost(kind: type, scores: Tensor) -> Tensor:
    loss: Tensor = kind(Xor)(scores, torch.arange(4).repeat(3, 1) % scores.shape[-1])
    return loss


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "solve": solved,
    "gibbs": summed,
    "gibbs of a graph": summed_graph,
    **{f"estimator {name}": partial(estimated, name) for name in BY_NAME},
    **{kind.__name__: partial(lost, kind) for kind in ALL},
}


@pytest.mark.parametrize("name", CASES)
def test_steps_leave_no_objects(name: str) -> None:
    scores = normal(3, 4, 4).requires_grad_()

    def run() -> int:
        for _ in range(STEPS):
            CASES[name](scores).backward()  # type: ignore[no-untyped-call]
        gc.collect()
        return len(gc.get_objects())

    before = run()
    assert run() - before < STEPS
