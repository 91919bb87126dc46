"""Solves where the scores are: the engine in tensor operations beside the compiled one.

``python benchmarks/device.py`` prints medians of synchronised times on a GPU, forward and backward,
for batches of three sizes, beside core's engine on the CPU and what users would take instead on the
GPU: 50 Sinkhorn iterations, or marginals of a linear chain by torch-struct, where it is installed.
With ``--cpu`` it prints what can be counted without one: iterations, operations, and how often the
CPU would wait; and times on CPU tensors.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lpsmap import Budget, Sequence
from lpsmap_core import Options
from lpsmap_torch.layers import MatchingAttention, SparseMAP
from lpsmap_torch.tensor.engine import TensorEngine
from lpsmap_torch.tensor.solution import solve_on_tensors

BATCHES = (64, 1024, 8192)
REPEATS = 5
OTHERS = "Sinkhorn-50, or torch-struct"
LONGEST = 8.0
"""Seconds after which a cell is timed no further, so that the table takes less than ten minutes."""
WAITS = ("aten::_local_scalar_dense", "aten::nonzero")


class Workload(NamedTuple):
    """Scores of a shape, and the layer that solves for them."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[str], torch.nn.Module]
    other: Callable[[Tensor], Tensor] | None = None
    """What users would take instead on the device."""


def sinkhorn(scores: Tensor) -> Tensor:
    """Return what 50 iterations of normalising rows and columns leave."""
    x = scores
    for _ in range(50):
        x = x - x.logsumexp(-1, keepdim=True)
        x = x - x.logsumexp(-2, keepdim=True)
    return x.exp()


class Chain(torch.nn.Module):
    """Sequences with scores of their transitions, shared by all steps.

    Parameters
    ----------
    engine
        The name of the engine.
    """

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.layer = SparseMAP(Sequence, engine=engine)

    def forward(self, scores: Tensor) -> Tensor:
        """Return the marginals of the states."""
        found: Tensor = self.layer(scores, flat_transitions(scores))
        return found


def transitions_of(scores: Tensor) -> Tensor:
    """Return (s, s) scores of steps between states."""
    places = torch.arange(scores.shape[-1], device=scores.device, dtype=scores.dtype)
    return (places[:, None] - 1.7 * places).sin()


def flat_transitions(scores: Tensor) -> Tensor:
    """Return the scores of all additionals of `Sequence`: without those of the ends."""
    steps = transitions_of(scores).flatten().repeat(scores.shape[-2] - 1)
    ends = scores.new_zeros(scores.shape[-1])
    return torch.cat([ends, steps, ends])


def torch_struct_chain() -> Callable[[Tensor], Tensor] | None:
    """Return the marginals of a linear chain by torch-struct, or None if it is not installed."""
    if importlib.util.find_spec("torch_struct") is None:
        return None
    from torch_struct import LinearChainCRF

    def marginals(scores: Tensor) -> Tensor:
        steps = transitions_of(scores).mT + scores[:, 1:, :, None]
        first = scores[:, :1, None, :].expand(-1, 1, scores.shape[-1], -1)
        potentials = torch.cat([steps[:, :1] + first, steps[:, 1:]], dim=1)
        found: Tensor = LinearChainCRF(potentials).marginals
        return found

    return marginals


WORKLOADS = (
    Workload("matching 8x14", (8, 14), lambda name: MatchingAttention(engine=name), sinkhorn),
    Workload("matching 30x40", (30, 40), lambda name: MatchingAttention(engine=name), sinkhorn),
    Workload("budget 1 of 100", (100,), lambda name: SparseMAP(Budget, budget=1, engine=name)),
    Workload("sequence 50x20", (50, 20), lambda name: Chain(name), torch_struct_chain()),
)


def milliseconds(values: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[float, float]:
    """Return the median times of a forward and a backward pass."""
    times = []
    begin = time.perf_counter()
    for i in range(REPEATS + 1):  # the first lays out
        if i > 1 and time.perf_counter() - begin > LONGEST:
            break
        given = scores.clone().requires_grad_()
        marks = [_now(scores)]
        found = values(given)
        marks.append(_now(scores))
        found.square().sum().backward()
        marks.append(_now(scores))
        times.append(np.diff(marks))
    forward, backward = 1e3 * np.median(times[1:], axis=0)
    return float(forward), float(backward)


def _now(scores: Tensor) -> float:
    if scores.is_cuda:
        torch.cuda.synchronize(scores.device)
    return time.perf_counter()


def timed(workload: Workload, batch: int, device: torch.device) -> list[str]:
    """Return a row of times."""
    scores = torch.randn(batch, *workload.shape, device=device)
    ways = [workload.make("tensor").to(device), workload.make("compiled").to(device)]
    cells = ["{:.2f} + {:.2f}".format(*milliseconds(way, scores)) for way in ways]
    if workload.other is not None:
        cells.append("{:.2f} + {:.2f}".format(*milliseconds(workload.other, scores)))
    return [workload.name, f"{batch:,}", *cells]


def counted(workload: Workload, batch: int) -> list[str]:
    """Return a row of what is counted."""
    scores, layer = torch.randn(batch, *workload.shape), workload.make("tensor")
    own = layer.layer if isinstance(layer, Chain) else layer
    given = (flat_transitions(scores),) if isinstance(layer, Chain) else ()
    part = own.build(scores, *given).graph._laid_out().part
    numbers = torch.cat([scores.flatten(), *(x.repeat(batch) for x in given)])
    solved = solve_on_tensors(part, numbers, None, Options(), TensorEngine())
    iterations = torch.from_numpy(solved.iterations).double()
    layer(scores)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        layer(scores)
    # as they were recorded: torch takes minutes to make a table of hundreds of thousands
    names = [event.name() for event in profile.profiler.kineto_results.events()]
    waits = sum(map(names.count, WAITS))
    operations = sum(name.startswith("aten::") for name in names)
    median, most = iterations.quantile(0.5), iterations.quantile(0.99)
    return [workload.name, f"{batch:,}", f"{median:.0f}, {most:.0f}", f"{operations:,}", f"{waits}"]


@click.command(help=__doc__)
@click.option("--cpu", is_flag=True, help="Count, and time on CPU tensors.")
@click.option("--batch", type=int, multiple=True, help="Instances of a batch; may be repeated.")
def main(cpu: bool, batch: tuple[int, ...]) -> None:
    """Print the tables."""
    if not cpu and not torch.cuda.is_available():
        raise click.ClickException("there is no GPU; --cpu counts what can be counted without.")
    torch.manual_seed(0)
    device = torch.device("cpu" if cpu else "cuda")
    sizes = batch or ((16,) if cpu else BATCHES)
    console = Console()
    if cpu:
        table = Table("workload", "batch", "iterations (median, 99 %)", "operations", "waits")
        for workload in WORKLOADS:
            for size in sizes:
                table.add_row(*counted(workload, size))
        console.print(table)
    where = "CPU" if cpu else torch.cuda.get_device_name()
    table = Table("workload", "batch", f"tensor ({where})", "compiled (CPU)", OTHERS)
    for workload in WORKLOADS:
        for size in sizes:
            table.add_row(*timed(workload, size, device))
    console.print("Milliseconds, forward + backward.", table)


if __name__ == "__main__":
    main()
