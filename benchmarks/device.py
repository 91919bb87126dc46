"""Solves where the scores are: the engine in tensor operations beside the compiled one.

``python benchmarks/device.py`` prints medians of synchronised times on a GPU, forward and backward,
for batches of three sizes: by the engine in tensor operations, as it is and as a CUDA graph, by
core's engine on the CPU, and by what users would take instead on the GPU: 50 Sinkhorn iterations,
or marginals of a linear chain by torch-struct, where it is installed.
With ``--cpu`` it prints what can be counted without one: iterations, operations, and how often the
CPU would wait; and times on CPU tensors.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lpsmap import Budget, DepTree, Sequence
from lpsmap_core import Options
from lpsmap_torch.layers import LatentTree, MatchingAttention, SparseMAP
from lpsmap_torch.tensor.engine import TensorEngine
from lpsmap_torch.tensor.solution import solve_on_tensors

BATCHES = (64, 1024, 8192)
REPEATS = 15
LONGEST = 4.0
"""Seconds after which a cell is timed no further, and above which it is skipped, judged by the
smaller batch: the table takes three minutes."""
FEW_THREADS = 2
WAITS = ("_local_scalar_dense", "nonzero")
WITHOUT_KERNEL = ("empty", "empty_like", "new_empty", "empty_strided", "scalar_tensor")
"""Operations that allocate, or make a number of the host a tensor."""


class Workload(NamedTuple):
    """Scores of a shape, and the layer that solves for them."""

    name: str
    shape: tuple[int, ...]
    make: Callable[..., torch.nn.Module]
    other: Callable[[Tensor], Tensor] | None = None
    """What users would take instead on the device."""
    by_active_sets: bool = False
    """Whether it is solved by active sets, which a CUDA graph cannot hold."""


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
    options
        Options of the layer.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = SparseMAP(Sequence, **options)

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
    ends = scores.new_zeros(scores.shape[-1])
    return torch.cat([ends, transitions_of(scores).flatten(), ends])


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
    Workload("matching 8x14", (8, 14), MatchingAttention, sinkhorn),
    Workload("matching 30x40", (30, 40), MatchingAttention, sinkhorn),
    Workload("budget 1 of 100", (100,), partial(SparseMAP, Budget, budget=1)),
    Workload(
        "projective tree 20", (20, 20), partial(SparseMAP, DepTree, projective=True), None, True
    ),
    Workload("tree 20", (20, 20), partial(SparseMAP, DepTree), None, True),
    Workload(
        "projective tree 20, budget 2",
        (20, 20),
        partial(LatentTree, 2, projective=True),
        None,
        True,
    ),
    Workload("sequence 50x20", (50, 20), Chain, torch_struct_chain(), True),
)


def on_tensors(workload: Workload, scores: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the solve by tensor operations."""
    return workload.make(engine="tensor").to(scores.device)


def as_graph(workload: Workload, scores: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the solve as a CUDA graph; None where it cannot be captured."""
    if not scores.is_cuda or workload.by_active_sets:
        return None
    layer = workload.make(engine="tensor-fixed").to(scores.device)
    layer(scores)  # lays out
    gc.collect()  # an older graph that is collected during the capture would spoil it
    captured: Callable[[Tensor], Tensor] = torch.cuda.make_graphed_callables(
        layer, (scores.clone().requires_grad_(),)
    )
    return captured


def compiled(
    threads: int | None, workload: Workload, scores: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """Return the solve by core's engine."""
    return workload.make(engine="compiled", threads=threads).to(scores.device)


def otherwise(workload: Workload, scores: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return what users would take instead."""
    return workload.other


WAYS: dict[str, Callable[[Workload, Tensor], Callable[[Tensor], Tensor] | None]] = {
    "tensor": on_tensors,
    "CUDA graph": as_graph,
    "Sinkhorn-50, or torch-struct": otherwise,
    "compiled": partial(compiled, None),
    f"compiled, {FEW_THREADS} threads": partial(compiled, FEW_THREADS),
}
"""The columns of the table."""


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


def timed(way: str, workload: Workload, sizes: tuple[int, ...], device: torch.device) -> list[str]:
    """Return the times of one way to solve, for all sizes of batches."""
    cells, last, before = [], 0.0, 1
    for batch in sizes:
        cell = ""
        if last * batch / before < 1e3 * LONGEST:
            scores = torch.randn(batch, *workload.shape, device=device)
            solve = WAYS[way](workload, scores)
            if solve is not None:
                times = milliseconds(solve, scores)
                last, before, cell = sum(times), batch, "{:.2f} + {:.2f}".format(*times)
                click.echo(f"{workload.name}, {batch:,}, {way}: {cell}", err=True)
        cells.append(cell)
    return cells


class Counts(TorchDispatchMode):
    """Counts the operations that launch a kernel on a GPU, and those that wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.waits = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count and call an operation."""
        name, returns = function.overloadpacket.__name__, function._schema.returns
        is_view = any(x.alias_info is not None and not x.alias_info.is_write for x in returns)
        self.waits += name in WAITS
        self.launches += not is_view and name not in (*WAITS, *WITHOUT_KERNEL)
        return function(*args, **(kwargs or {}))


def counted(workload: Workload, batch: int) -> list[str]:
    """Return a row of what is counted."""
    scores, layer = torch.randn(batch, *workload.shape), workload.make(engine="tensor")
    own = layer.layer if isinstance(layer, Chain) else layer
    given = (flat_transitions(scores),) if isinstance(layer, Chain) else ()
    part = own.build(scores, *given).graph._laid_out().part
    numbers = torch.cat([scores.flatten(), *(x.repeat(batch) for x in given)])
    nothing = np.zeros(part.n_components, dtype=bool)
    solve_on_tensors(part, numbers, nothing, Options(), TensorEngine())  # lays out
    with Counts() as counts:
        solved = solve_on_tensors(part, numbers, nothing, Options(), TensorEngine())
    iterations = torch.from_numpy(solved.iterations).double()
    median, most = iterations.quantile(0.5), iterations.quantile(0.99)
    per_instance = f"{median:.0f}, {most:.0f}"
    return [workload.name, f"{batch:,}", per_instance, f"{counts.launches:,}", f"{counts.waits}"]


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
    console = Console(width=130)
    if cpu:
        table = Table("workload", "batch", "iterations (median, 99 %)", "launches", "waits")
        for workload in WORKLOADS:
            for size in sizes:
                table.add_row(*counted(workload, size))
        console.print(table)
    where = "CPU" if cpu else torch.cuda.get_device_name()
    table = Table("workload", "batch", *WAYS)
    columns = [[x for w in WORKLOADS for x in timed(way, w, sizes, device)] for way in WAYS]
    rows = [(w.name, f"{size:,}") for w in WORKLOADS for size in sizes]
    for (name, size), *cells in zip(rows, *columns, strict=True):
        table.add_row(name, size, *cells)
    console.print(f"Milliseconds, forward + backward; scores on {where}.", table)


if __name__ == "__main__":
    main()
