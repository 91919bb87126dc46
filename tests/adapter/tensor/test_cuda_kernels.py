"""The kernels for small components on a GPU, here compiled for the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from gpus import on_gpu
from lpsmap import (
    AtMostOne,
    Bits,
    Budget,
    ConvergenceWarning,
    Knapsack,
    Nand,
    Or,
    OrOut,
    Status,
    TorchFactorGraph,
    Xor,
)
from lpsmap_torch.layers import MatchingAttention
from lpsmap_torch.tensor import cuda_kernels, projection
from tensor_batches import check_batch

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.fixture(scope="module")
def kernel_on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """The kernels as functions that are called like kernels of a GPU."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernel")
    declared = "extern __shared__ real memory[];"
    libraries = dict[str, Any]()
    for name, entry in cuda_kernels.ENTRIES.items():
        assert declared in cuda_kernels.source(name)
        parts = (HERE / "warp.h").read_text(), cuda_kernels.source(name).replace(declared, "")
        source, library = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text("\n".join([*parts, (HERE / "warp.cpp").read_text()]))
        options = ["-std=c++17", "-O1", f"-DKERNEL={entry}", "-fPIC", "-shared", "-o", library]
        done = subprocess.run(
            [COMPILER, *options, source], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        libraries[name] = ctypes.CDLL(str(library))

    def launch(name: str, grid: Any, block: Any, shared_mem: int, args: list[Tensor | int]) -> None:
        assert block == (32, 1, 1)
        tensors = [x for x in args if isinstance(x, Tensor)]
        sizes = [x for x in args if isinstance(x, int)]
        assert all(x.is_contiguous() for x in tensors)
        addresses = (ctypes.c_void_p * len(tensors))(*(x.data_ptr() for x in tensors))
        numbers = (ctypes.c_int * len(sizes))(*sizes)
        runs = list[list[bytes]]()
        for is_reversed in True, False:
            libraries[name].run(grid[0], -(-shared_mem // 8), addresses, numbers, is_reversed)
            runs.append([x.numpy().tobytes() for x in tensors])
        assert runs[0] == runs[1]  # otherwise lanes race

    return launch


@pytest.fixture
def found(
    monkeypatch: pytest.MonkeyPatch, kernel_on_cpu: Callable[..., None]
) -> list[cuda_kernels.Solved]:
    """Let the kernels solve batches on the CPU, and return what they found."""
    kept = list[cuda_kernels.Solved]()

    def solve_and_keep(*given: Any) -> cuda_kernels.Solved:
        kept.append(cuda_kernels.solve(*given))
        return kept[-1]

    monkeypatch.setattr(cuda_kernels, "_kernel", lambda name, device: partial(kernel_on_cpu, name))
    monkeypatch.setattr(projection, "solve", solve_and_keep)
    monkeypatch.setattr(
        projection,
        "serves",
        lambda batch, scores: batch.linear is None,
    )
    return kept


def matching(graph: TorchFactorGraph, scores: Tensor) -> Any:
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return u


def logic(graph: TorchFactorGraph, scores: Tensor) -> Any:
    u = graph.variable_from(scores)
    graph.add(Or([u[..., 0], ~u[..., 1]]))
    graph.add(Knapsack(u, np.linspace(0.5, 1.5, u.shape[-1]), 2.0, axis=-1))
    graph.add(OrOut([u[:, 0, 0], u[:, 1, 0], u[:, 0, 1]]))
    graph.add(Nand([u[:, 0, 2], ~u[:, 1, 2]]))
    return u


def budgets(graph: TorchFactorGraph, scores: Tensor) -> Any:
    u = graph.variable_from(scores)
    graph.add(Budget(u, 2, axis=-1))
    return u


GRAPHS = [matching, logic, budgets]


def solve(build: Any, scores: Tensor, engine: str) -> tuple[Tensor, Tensor, list[Status]]:
    """Return marginals, a gradient, and statuses."""
    given = scores.clone().requires_grad_()
    graph = TorchFactorGraph()
    u = build(graph, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = graph.solve(engine=engine, tol=1e-11)
    weights = normal(*scores.shape, seed=9).to(scores.device)
    ok = ~u.value.isnan()
    (gradient,) = torch.autograd.grad((u.value[ok] * weights[ok]).sum(), given)
    return u.value.detach(), gradient, list(solution.status)


@pytest.mark.parametrize("build", GRAPHS)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0, 1e6])
def test_it_solves_what_cores_engine_solves(
    found: list[cuda_kernels.Solved], build: Any, scale: float
) -> None:
    scores = scale * normal(3, 2, 4)
    values, expected = (solve(build, scores, engine) for engine in ("tensor-fixed", "compiled"))
    assert len(found) == 1  # and the fixed number of iterations leaves nothing to operations
    torch.testing.assert_close(values[:2], expected[:2], rtol=0, atol=1e-9)
    assert values[2] == expected[2]


@pytest.mark.parametrize("shape", [(5, 1, 1), (5, 1, 40), (5, 40, 1), (40, 8, 14), (3, 20, 30)])
def test_it_solves_all_sizes(found: list[cuda_kernels.Solved], shape: tuple[int, int, int]) -> None:
    build = budgets if shape[2] == 1 else matching
    scores = 3.0 * normal(*shape)
    values, expected = (solve(build, scores, engine) for engine in ("tensor-fixed", "compiled"))
    torch.testing.assert_close(values[:2], expected[:2], rtol=0, atol=1e-9)
    assert values[2] == expected[2]
    assert len(found) == 1


def test_masks_ties_and_infeasible_instances(found: list[cuda_kernels.Solved]) -> None:
    scores = 3.0 * normal(6, 3, 5)
    scores[0, 1] = -torch.inf  # infeasible
    scores[1, :, 2:] = -1e9  # a forbidden number is needed
    scores[2, :, 3] = -torch.inf
    scores[3] = 0.0
    scores[4, :, 2:] = -torch.inf  # infeasible
    scores[5] = scores[5].round()
    values, expected = (solve(matching, scores, name) for name in ("tensor", "compiled"))
    fixed = solve(matching, scores, "tensor-fixed")
    feasible = [1, 2, 3, 5]
    for given in values[0], fixed[0]:
        torch.testing.assert_close(given[feasible], expected[0][feasible], rtol=0, atol=1e-9)
    assert values[2] == fixed[2] == expected[2]
    assert values[2].count(Status.INFEASIBLE) == 2


def test_what_it_leaves_is_solved_by_operations(
    found: list[cuda_kernels.Solved], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = projection.solve

    def spoilt(*given: Any) -> cuda_kernels.Solved:
        solved = taken(*given)
        solved.exact[::2], solved.values[::2], solved.ease[::2] = False, 0.5, 0.0
        return solved

    monkeypatch.setattr(projection, "solve", spoilt)
    scores = normal(5, 3, 4)
    values, expected = (solve(matching, scores, engine) for engine in ("tensor", "compiled"))
    torch.testing.assert_close(values[:2], expected[:2], rtol=0, atol=1e-9)
    assert values[2] == expected[2]
    assert found


def test_it_has_first_and_second_derivatives(found: list[cuda_kernels.Solved]) -> None:
    def loss(scores: Tensor) -> Tensor:
        graph = TorchFactorGraph()
        u = matching(graph, scores)
        graph.solve(engine="tensor-fixed")
        return u.value.pow(3).sum()

    given = normal(1, 2, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(loss, given)
    assert torch.autograd.gradgradcheck(loss, given)
    assert found


def test_a_start_beyond_a_bound_finds_the_solution(found: list[cuda_kernels.Solved]) -> None:
    """The largest numbers of a row nearly fill it: its multiplier at the start had a wrong sign."""

    def build(graph: TorchFactorGraph, scores: Tensor) -> Any:
        u = graph.variable_from(scores)
        graph.add(Bits(u))  # one component
        graph.add(Xor([u[0], ~u[1]]))
        graph.add(AtMostOne(u[2:]))
        return u

    scores = torch.tensor([0.9, 0.3, 0.5, 0.5 + 1e-11, *[-0.05] * 40], dtype=torch.float64)
    values, expected = (solve(build, scores, engine) for engine in ("tensor-fixed", "compiled"))
    torch.testing.assert_close(values[:2], expected[:2], rtol=0, atol=1e-9)
    assert found[0].y.isfinite().all()


# in 229 constraints are redundant, and the inverse of a matrix lost the digits of gradients
@pytest.mark.parametrize("seed", [0, 1, 229])
def test_random_graphs(found: list[cuda_kernels.Solved], seed: int) -> None:
    check_batch(seed)
    assert found


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_products_within_transforms_are_operations(found: list[cuda_kernels.Solved]) -> None:
    scores = normal(1, 3, 4).requires_grad_()
    layer = MatchingAttention(engine="tensor")
    values = layer(scores)
    weights = normal(12, 1, 3, 4, seed=1)
    (batched,) = torch.autograd.grad(
        values, scores, weights, is_grads_batched=True, retain_graph=True
    )
    each = [torch.autograd.grad(values, scores, w, retain_graph=True)[0] for w in weights]
    torch.testing.assert_close(batched, torch.stack(each), rtol=0, atol=1e-12)
    weight, along = weights[0].requires_grad_(), weights[1]
    (product,) = torch.autograd.grad(values, scores, weight, create_graph=True)
    with forward_ad.dual_level():
        vector = forward_ad.make_dual(weights[2].detach(), along.detach())
        (dual,) = torch.autograd.grad(product, weight, vector)
        tangent = forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(tangent, each[1], rtol=0, atol=1e-12)
    assert found


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_each_method_keeps_to_the_limit_of_iterations(
    found: list[cuda_kernels.Solved], most: int
) -> None:
    graph = TorchFactorGraph()
    matching(graph, 100.0 * normal(5, 4, 5))
    graph.solve(engine="tensor-fixed", max_iter=most)
    assert found[0].iterations.max() <= min(2 * most, 92)


# -------------------------------------------------------------------- GPUs


@on_gpu
@pytest.mark.parametrize("shape", [(1000, 8, 14), (200, 1, 3), (40, 20, 30)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 1e8])
def test_on_a_gpu_it_agrees_with_operations(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], scale: float
) -> None:
    scores = scale * normal(*shape).cuda()
    scores[::7, :, 1], scores[::5, 0, 2:] = -torch.inf, -1e9
    values = solve(matching, scores, "tensor")
    monkeypatch.setattr(projection, "serves", lambda *_: False)
    expected = solve(matching, scores, "tensor")
    torch.testing.assert_close(values[:2], expected[:2], rtol=0, atol=1e-9)
    assert values[2] == expected[2]
