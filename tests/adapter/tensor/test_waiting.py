"""What the engine in tensor operations reads from its device, and copies to the host."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpus import on_gpu
from lpsmap import DepTree, TorchFactorGraph
from lpsmap_torch import tensors
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    MatchingAttention,
    SparseMAP,
)
from lpsmap_torch.tensor import host_share

sys.path.append(str(Path(__file__).parents[3]))


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def reads(work: Callable[[], Any]) -> int:
    """Return how often work reads a number of the device."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    # as they were recorded: torch takes seconds to make a table of tens of thousands
    names = [event.name() for event in profile.profiler.kineto_results.events()]
    assert "aten::mul" in names
    # LAPACK's kernel checks twice whether pivots are in range; that of a GPU does not
    checks = 2 * names.count("aten::_linalg_solve_ex")
    return sum(map(names.count, ("aten::_local_scalar_dense", "aten::nonzero"))) - checks


def waits(layer: Any, scores: Tensor) -> int:
    """Return how often a solve and its gradient read a number of the device."""
    layer(scores)  # lays out
    given = scores.requires_grad_()
    return reads(lambda: layer(given).square().sum().backward())


def test_iterations_seldom_wait_for_the_device() -> None:
    # one in five iterations of up to 20, one in five of up to 20, and whether all are solved
    assert 1 <= waits(MatchingAttention(engine="tensor"), normal(32, 4, 6)) <= 9


def test_fixed_numbers_of_iterations_never_wait() -> None:
    assert waits(MatchingAttention(engine="tensor-fixed"), normal(4, 3, 4)) == 0


def test_active_sets_wait_once_in_five_iterations() -> None:
    graph, scores = TorchFactorGraph(), normal(4, 8, 8)
    graph.add(DepTree(graph.variable_from(scores), projective=True))
    most = int(graph.solve(engine="tensor").iterations.max())
    assert most > 10
    layer = SparseMAP(DepTree, projective=True, engine="tensor")
    # before every fifth iteration, also of those that complete faces; and whether all are solved
    assert 3 <= waits(layer, scores) <= most // 5 + 1 + 4


def chain(**options: Any) -> Any:
    """Return a layer of sequences."""
    from benchmarks.device import Chain

    return Chain(**options)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (partial(SparseMAP, DepTree, projective=True), 3_000),
        (partial(LatentTree, 2, projective=True), 10_000),
        (chain, 1_600),
    ],
)
def test_launches_do_not_depend_on_the_batch(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], most: int
) -> None:
    """Forward and backward."""
    from benchmarks.device import Counts

    # to count is a mode, in which a solve is one operator
    monkeypatch.setattr("lpsmap_torch.layers.layer.is_eager", lambda scores: True)
    layer, found = make(engine="tensor"), []
    for n in (2, 5):
        scores = normal(1, 8, 8).repeat(n, 1, 1).requires_grad_()
        layer(scores)  # lays out
        with Counts() as counts:
            layer(scores).square().sum().backward()
        found.append(counts.launches)
    assert found[0] == found[1] <= most


def training_step(device: str) -> Callable[[], Any]:
    """Return a training step of decomposable attention with matchings on a device."""
    from experiments.nli.data import Batch
    from experiments.nli.model import (
        Alignment,
        Architecture,
        Attention,
        Regime,
        Sizes,
        make_classifier,
    )

    attention = Attention(Alignment.MATCHING, Regime.SOLVED)
    attention.layers[0].engine = "tensor-fixed"
    model = make_classifier(
        20, Architecture.DECOMPOSABLE, Alignment.MATCHING, Regime.SOLVED, Sizes()
    )
    model.attention = attention
    model.to(device)
    premises, hypotheses = (torch.randint(1, 20, (4, n), device=device) for n in (5, 6))
    lengths = torch.tensor([[5, 6], [3, 6], [5, 2], [1, 1]])
    labels = torch.zeros(4, dtype=torch.int64, device=device)
    batch = Batch(premises, hypotheses, lengths, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).classes.square().sum().backward()
        optimizer.step()

    step()  # lays out
    return step


def test_a_training_step_copies_neither_scores_nor_marginals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = training_step("cpu")

    for module in (tensors, host_share):
        monkeypatch.setattr(module, "numbers", refuse)
    monkeypatch.setattr("lpsmap_torch.layers.layouts.numbers", refuse)
    monkeypatch.setattr("lpsmap_torch.tensor.device_solution.numbers", refuse)
    monkeypatch.setattr(torch, "from_numpy", refuse)
    assert reads(step) == 0


def refuse(*_: Any) -> Any:
    raise AssertionError("numbers were copied from or to the host")


RAGGED: list[Callable[..., Any]] = [MatchingAttention, LPMatchingAttention]


@pytest.mark.parametrize("make", RAGGED)
def test_constants_of_ragged_batches_are_copied_once(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]
) -> None:
    layer, scores = make(engine="tensor-fixed"), normal(3, 3, 4).requires_grad_()
    lengths = torch.tensor([[3, 4], [1, 2], [2, 4]])
    layer(scores, lengths=lengths).square().sum().backward()
    monkeypatch.setattr(torch, "from_numpy", refuse)
    layer(scores, lengths=lengths).square().sum().backward()


# -------------------------------------------------------------------- GPUs


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Raise an error where the host waits for a GPU."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_gpu
@pytest.mark.parametrize("shape", [(32, 4, 6), (8, 5, 3)])
def test_nothing_waits_for_a_gpu(shape: tuple[int, int, int]) -> None:
    for make in RAGGED:
        layer, scores = make(engine="tensor-fixed").cuda(), normal(*shape).cuda()
        lengths = torch.tensor(shape[1:]).repeat(shape[0], 1)
        lengths[0] = 1
        layer(scores, lengths=lengths)
        scores.requires_grad_()
        with waiting_forbidden():
            layer(scores, lengths=lengths).square().sum().backward()


@on_gpu
def test_a_training_step_never_waits_for_a_gpu() -> None:
    step = training_step("cuda")
    with waiting_forbidden():
        step()
    with waiting_forbidden(), pytest.raises(RuntimeError, match="synchronizing"):
        torch.ones(1, device="cuda").item()


@on_gpu
@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")
@pytest.mark.parametrize("layer", [LatentTree(), MatchingAttention(engine="compiled")])
def test_the_host_path_copies_by_pinned_memory(layer: Any) -> None:
    scores = normal(8, 5, 5).to(torch.float32).cuda().requires_grad_()
    layer(scores)  # lays out
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        layer(scores).square().sum().backward()
        torch.cuda.synchronize()
    names = [event.name() for event in profile.profiler.kineto_results.events()]
    copies = [name for name in names if "DtoH" in name or "HtoD" in name]
    assert len(copies) == 4  # scores, marginals, and their gradients
    assert all("Pinned" in name for name in copies)


@on_gpu
def test_scores_on_a_gpu_are_solved_there_by_default() -> None:
    scores = normal(32, 4, 6)
    found = MatchingAttention()(scores.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), MatchingAttention(tol=1e-11)(scores), rtol=0, atol=1e-9)


@on_gpu
def test_cuda_graphs_replay_a_solve() -> None:
    from lpsmap import Budget

    layer, scores = SparseMAP(Budget, budget=2, engine="tensor-fixed"), normal(16, 7).cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        layer(scores)  # lays out, and warms up
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = layer(scores)
    scores.copy_(normal(16, 7, seed=1))
    graph.replay()
    torch.testing.assert_close(found, layer(scores), rtol=0, atol=1e-12)
