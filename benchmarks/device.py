"""Solves where the scores are: the engine in tensor operations beside the compiled one.

``python benchmarks/device.py`` prints medians of synchronised times on a GPU, forward and backward,
for batches of three sizes, beside core's engine on the CPU and 50 Sinkhorn iterations on the GPU.
With ``--cpu`` it prints what can be counted without one: iterations, operations, and how often the
CPU would wait; and times on CPU tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lpsmap import Budget
from lpsmap_torch.layers import MatchingAttention, SparseMAP
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.tensor.batches import batches_of
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, served_components
from lpsmap_torch.tensor.projection import Limits, project

BATCHES = (64, 1024, 8192)
REPEATS = 5
WAITS = ("aten::_local_scalar_dense", "aten::nonzero")


class Workload(NamedTuple):
    """Scores of a shape, and the layer that solves for them."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[str], Layer]


WORKLOADS = (
    Workload("matching 8x14", (8, 14), lambda engine: MatchingAttention(engine=engine)),
    Workload("matching 30x40", (30, 40), lambda engine: MatchingAttention(engine=engine)),
    Workload("budget 1 of 100", (100,), lambda engine: SparseMAP(Budget, budget=1, engine=engine)),
)


def sinkhorn(scores: Tensor) -> Tensor:
    """Return what 50 iterations of normalising rows and columns leave."""
    x = scores
    for _ in range(50):
        x = x - x.logsumexp(-1, keepdim=True)
        x = x - x.logsumexp(-2, keepdim=True)
    return x.exp()


def milliseconds(values: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[float, float]:
    """Return the median times of a forward and a backward pass."""
    times = []
    for _ in range(REPEATS + 1):  # the first lays out
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
    ways = [workload.make("tensor"), workload.make("compiled")]
    cells = ["{:.2f} + {:.2f}".format(*milliseconds(way, scores)) for way in ways]
    if len(workload.shape) == 2:
        cells.append("{:.2f} + {:.2f}".format(*milliseconds(sinkhorn, scores)))
    return [workload.name, f"{batch:,}", *cells]


def counted(workload: Workload, batch: int) -> list[str]:
    """Return a row of what is counted."""
    scores, layer = torch.randn(batch, *workload.shape), workload.make("tensor")
    layout, _ = layer.lay_out(tuple(scores.shape), None, None, 0)
    part = layout.laid_out.part
    eta = torch.cat([scores.double().reshape(-1), torch.tensor([-torch.inf], dtype=torch.float64)])
    found = [
        project(of, eta[of.variables], Limits()).iterations
        for of in batches_of(part, constraint_rows_of(part), served_components(part))
    ]
    iterations = torch.cat(found).double()
    layer(scores)
    with torch.profiler.profile() as profile:
        layer(scores)
    events = profile.key_averages()
    waits = sum(event.count for event in events if event.key in WAITS)
    operations = sum(event.count for event in events if event.key.startswith("aten::"))
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
    sizes = batch or (BATCHES[:1] if cpu else BATCHES)
    console = Console()
    if cpu:
        table = Table("workload", "batch", "iterations (median, 99 %)", "operations", "waits")
        for workload in WORKLOADS:
            for size in sizes:
                table.add_row(*counted(workload, size))
        console.print(table)
    where = "CPU" if cpu else torch.cuda.get_device_name()
    table = Table("workload", "batch", f"tensor ({where})", "compiled (CPU)", "Sinkhorn, 50")
    for workload in WORKLOADS:
        for size in sizes:
            table.add_row(*timed(workload, size, device))
    console.print("Milliseconds, forward + backward.", table)


if __name__ == "__main__":
    main()
