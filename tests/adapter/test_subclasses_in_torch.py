"""Subclasses with other structures in layers and on tensors: they are not solved as their base."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lpsmap import DepTree, Knapsack, Sequence, TorchFactorGraph, Xor
from lpsmap_core import Variables
from lpsmap_torch.layers import SparseMAP
from other_structures import TYPES, Four, Plain, other, unchanged

pytestmark = pytest.mark.compiled

ARGUMENTS: dict[str, Any] = {
    "Budget": {"budget": 2},
    "Knapsack": {"costs": [1.0, 2.0, 1.0, 3.0], "budget": 2.5},
    "TopK": {"k": 2},
}
NEGATED = {"Nand": slice(None), "XorOut": slice(3, 4)}
"""Slots that types negate."""

ROWS = ["Xor", "XorOut", "AtMostOne", "Or", "Nand", "OrOut", "Budget", "Knapsack", "TopK"]


def answers(layer: SparseMAP, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return marginals and the gradient of a linear loss."""
    leaf = scores.clone().requires_grad_()
    out = layer(leaf)
    (out * torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape)).sum().backward()
    assert leaf.grad is not None
    return out.detach(), leaf.grad


@pytest.mark.parametrize("engine", [None, "tensor"])
@pytest.mark.parametrize("name", ROWS)
def test_layers_of_rows(name: str, engine: str | None) -> None:
    options = {"tol": 1e-10} | ({} if engine is None else {"engine": engine})
    scores = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4)))
    layer = SparseMAP(other(TYPES[name]), **ARGUMENTS.get(name, {}), **options)
    found = answers(layer, scores)

    def plain(u: Variables) -> Plain:
        flags = np.zeros(u.shape, dtype=bool)
        flags[:, NEGATED.get(name, slice(0, 0))] = True
        return Plain(u ^ flags)

    wanted = answers(SparseMAP(plain, event_ndim=1, **options), scores)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-7)
    base = SparseMAP(TYPES[name], **ARGUMENTS.get(name, {}), **options)(scores)
    assert (base - found[0]).abs().max() > 0.01


@pytest.mark.parametrize("name", ROWS)
def test_layers_of_unchanged_subclasses(name: str) -> None:
    scores = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4)))
    arguments = ARGUMENTS.get(name, {})
    found = answers(SparseMAP(unchanged(TYPES[name]), **arguments), scores)
    for one, two in zip(found, answers(SparseMAP(TYPES[name], **arguments), scores), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("engine", ["auto", "tensor"])
@pytest.mark.parametrize("base", [Sequence, DepTree, Xor, Knapsack])
def test_graphs_on_tensors(base: Any, engine: str) -> None:
    """The engine of tensors knows some types by their names; others may have the same."""
    shape = (4, 4)
    scores = np.random.default_rng(1).standard_normal(shape)
    arguments: dict[str, Any] = {
        Sequence: {"transitions": np.zeros((4, 4))},
        Knapsack: {"costs": np.ones(shape), "budget": 2.0},
    }.get(base, {})
    values = []
    for kind in (other(base), type(base.__name__, (Four, base), {})):
        graph = TorchFactorGraph()
        u = graph.variable_from(torch.from_numpy(scores))
        graph.add(kind(u, **arguments))
        graph.solve(engine=engine, tol=1e-10)
        values.append(u.value.numpy())
    host = TorchFactorGraph()
    v = host.variable_from(torch.from_numpy(scores))
    for row in range(4 if base in (Xor, Knapsack) else 1):
        view = v[row] if base in (Xor, Knapsack) else v.reshape(-1)
        extra = np.zeros(2 * 4 + 3 * 16) if base is Sequence else None
        host.add(Plain(view, extra))
    host.solve(engine="compiled", tol=1e-10)
    for found in values:
        np.testing.assert_allclose(found, v.value.numpy(), atol=1e-8)
