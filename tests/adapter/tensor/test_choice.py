"""The choice between the engine in tensor operations and core's engine."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import AtMostOne, Budget, DepTree, Pair, Sequence, Status, TorchFactorGraph, Xor
from lpsmap_core import CompiledEngine
from lpsmap_torch.layers import LatentTree, MatchingAttention
from lpsmap_torch.tensor import device_solution, host_share
from lpsmap_torch.tensor.device_solution import DeviceSolution
from lpsmap_torch.tensor.engine import AutomaticTensorEngine, FixedTensorEngine, TensorEngine


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.fixture
def cpu_like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat scores on the CPU as if they were on another device."""
    chosen = device_solution.engine_on

    def engine_on(device: str, name: str) -> TensorEngine | None:
        return chosen("cuda" if device == "cpu" else device, name)

    for module in ("tensor.device_solution", "graph", "layers.layer"):
        monkeypatch.setattr(f"lpsmap_torch.{module}.engine_on", engine_on)


@pytest.mark.parametrize(
    ("device", "name", "expected"),
    [
        ("cpu", "auto", None),
        ("cuda", "auto", AutomaticTensorEngine),
        ("xpu", "auto", AutomaticTensorEngine),
        ("mps", "auto", None),
        ("meta", "tensor", None),
        ("cpu", "tensor", TensorEngine),
        ("cuda", "tensor-fixed", FixedTensorEngine),
        ("cuda", "compiled", None),
        ("cuda", "of a plugin", None),
    ],
)
def test_the_engine_depends_on_the_device(device: str, name: str, expected: Any) -> None:
    assert type(device_solution.engine_on(device, name)) is (expected or type(None))


def mixed(scores: Tensor, trees: Tensor) -> tuple[TorchFactorGraph, Any, Any]:
    """Return a graph of components for the device, and of trees for the host."""
    graph = TorchFactorGraph()
    u, v = graph.variable_from(scores), graph.variable_from(trees)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    graph.add(DepTree(v))
    return graph, u, v


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_a_plan_says_what_runs_where_and_why() -> None:
    graph, *_ = mixed(normal(2, 3, 4), normal(2, 3, 3))
    plan = graph.plan()
    assert {row.solved_by: row.count for row in plan.components}["tensor"] == 2
    assert "was chosen for scores on" in plan.reason
    assert "DepTree" in plan.reason
    only_trees = TorchFactorGraph()
    only_trees.add(DepTree(only_trees.variable_from(normal(3, 3))))
    assert only_trees.plan().engine == "compiled"


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_only_components_that_need_it_are_copied_to_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[int] = []
    copy = host_share.numbers

    def counted(tensor: Tensor) -> Any:
        copied.append(tensor.numel())
        return copy(tensor)

    monkeypatch.setattr(host_share, "numbers", counted)
    graph, u, v = mixed(normal(2, 3, 4).requires_grad_(), normal(2, 3, 3).requires_grad_())
    graph.solve()
    assert copied == [18]  # once, the scores of the trees
    (u.value.square().sum() + v.value.square().sum()).backward()
    assert copied == [18, 18]


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_mixed_graphs_have_the_values_and_derivatives_of_cores_engine() -> None:
    def values(engine: str, scores: Tensor, trees: Tensor) -> Tensor:
        graph, u, v = mixed(scores, trees)
        assert graph.solve(engine=engine, tol=1e-11).ok
        return torch.cat([u.value.flatten(), v.value.flatten()])

    given = normal(2, 3, 4).requires_grad_(), normal(2, 3, 3, seed=1).requires_grad_()
    found, expected = (
        torch.autograd.functional.jacobian(lambda *x, name=name: values(name, *x), given)
        for name in ("auto", "compiled")
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)

    def loss(*scores: Tensor) -> Tensor:
        return values("auto", *scores).pow(3).sum()

    assert torch.autograd.gradcheck(loss, given)
    assert torch.autograd.gradgradcheck(loss, given)


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_failures_on_the_host_are_reported_by_component() -> None:
    trees = normal(3, 3, 3)
    trees[0, 0, 0], trees[1] = torch.nan, -torch.inf
    graph, _, v = mixed(normal(2, 3, 4), trees)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = graph.solve()
    assert list(solution.status[:2]) == [Status.SOLVED] * 2
    assert list(solution.status[2:]) == [Status.NON_FINITE, Status.INFEASIBLE, Status.SOLVED]
    assert v.value.flatten(1).isnan().all(1).tolist() == [True, False, False]
    assert np.isfinite(solution.error_bound[[0, 1, 4]]).all()


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_additionals_of_all_components_are_given_back() -> None:
    graph, u, _ = mixed(normal(2, 3, 4), normal(2, 3, 3))
    weights = normal(2, seed=3).requires_grad_()
    pairs = Pair(u[:, 0, 0], u[:, 1, 1], weights)
    graph.add(pairs)
    graph.solve(tol=1e-11)
    found = graph.additionals_of(pairs)
    (gradient,) = torch.autograd.grad(found.sum(), weights)
    graph.solve(engine="compiled", tol=1e-11)
    torch.testing.assert_close(found, graph.additionals_of(pairs), rtol=0, atol=1e-9)
    expected = torch.autograd.grad(graph.additionals_of(pairs).sum(), weights)[0]
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("cpu_like_a_gpu")
@pytest.mark.parametrize("layer", [MatchingAttention(tol=1e-11), LatentTree(tol=1e-11)])
def test_layers_choose_too(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    solves: list[int] = []
    solve = CompiledEngine.solve

    def counted(self: CompiledEngine, *given: Any) -> Any:
        solves.append(1)
        return solve(self, *given)

    monkeypatch.setattr(CompiledEngine, "solve", counted)
    found = layer(normal(2, 3, 3))
    assert bool(solves) == isinstance(layer, LatentTree)
    layer.engine = "compiled"
    torch.testing.assert_close(found, layer(normal(2, 3, 3)), rtol=0, atol=1e-9)


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_sequences_run_on_the_host_unless_the_engine_is_given() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 4, 3))
    graph.add(Sequence(u, normal(3, 3)))
    assert graph.plan().engine == "compiled"
    assert not isinstance(graph.solve(), DeviceSolution)
    assert isinstance(graph.solve(engine="tensor"), DeviceSolution)


@pytest.mark.usefixtures("cpu_like_a_gpu")
def test_what_the_engine_refuses_runs_on_the_host() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 4))
    graph.add(Budget(u, 2))
    assert graph.solve(max_time=10.0).ok
    assert graph.solve(trace=True).trace is not None
    assert graph.solve_map() is not None
