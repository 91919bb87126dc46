"""Time taggers with one matrix of transitions beside other libraries', and measure their memory.

``pip install --no-deps pytorch-crf torch-struct`` brings the peers, for this benchmark only. Rows
of missing peers are skipped. Each row is a batch of sequences of L positions and S states:

- the loss of a conditional random field and its gradient: `CRFLoss`, ``CRF`` of pytorch-crf, and
  ``LinearChainCRF`` of torch-struct, whose scores are those of all steps;
- log Z alone and its gradient, by `FactorGraph.gibbs`;
- the best sequences: `solve_map`, and ``CRF.decode``;
- SparseMAP and its gradient, of the sequences alone, and with a `Budget` on the visits to a state.

Each is measured in a process of its own. Times are the shortest of some calls, after one that loads
kernels; memory is the peak above the inputs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch

SIZES = "32x30x9 32x40x20 32x50x20 32x200x100 8x500x50 8x2000x50 1x20000x50"
PEERS = {"pytorch-crf": "torchcrf", "torch-struct": "torch_struct"}
MAX_STEP_SCORES = 2e6
"""Number of transition scores of all steps from which torch-struct is left out: it takes several
arrays of them."""

SECONDS = 1.0
"""Calls are repeated for so long."""

Call = Callable[[], object]


class Inputs:
    """Scores and labels of a batch of sequences."""

    def __init__(self, batch: int, length: int, n_states: int) -> None:
        torch.manual_seed(0)
        self.scores = torch.randn(batch, length, n_states, requires_grad=True)
        self.transitions = torch.randn(n_states, n_states, requires_grad=True)
        self.initial, self.final = (torch.randn(n_states, requires_grad=True) for _ in range(2))
        self.tags = torch.randint(n_states, (batch, length))


def ours(task: str, x: Inputs) -> Call:
    """Return a call of this library."""
    from lpsmap import Budget, Sequence, TorchFactorGraph
    from lpsmap_torch.losses import CRFLoss

    crf, scores = CRFLoss(Sequence), {"initial": x.initial, "final": x.final}

    def declared() -> tuple[TorchFactorGraph, object, Sequence]:
        graph = TorchFactorGraph()
        u = graph.variable_from(x.scores)
        return graph, u, graph.add(Sequence(u, x.transitions, **scores))

    def loss() -> None:
        crf(x.scores, x.tags, transitions=x.transitions, **scores).backward()

    def log_z() -> None:
        graph, _, factor = declared()
        graph.gibbs(factor).log_partition.sum().backward()

    def best() -> torch.Tensor:
        with torch.no_grad():
            graph, u, _ = declared()
            graph.solve_map()
            return u.value.argmax(-1)

    def sparsemap(with_budget: bool = False) -> None:
        graph, u, _ = declared()
        if with_budget:
            graph.add(Budget(u[:, :, 0], max(x.scores.shape[1] // 200, 1)))
        graph.solve()
        u.value.square().sum().backward()

    return {
        "loss": loss,
        "log Z": log_z,
        "best": best,
        "SparseMAP": sparsemap,
        "SparseMAP + Budget": lambda: sparsemap(with_budget=True),
    }[task]


def pytorch_crf(task: str, x: Inputs) -> Call:
    """Return a call of pytorch-crf."""
    from torchcrf import CRF

    crf = CRF(x.scores.shape[-1], batch_first=True)

    def best() -> object:
        with torch.no_grad():
            return crf.decode(x.scores)

    def loss() -> None:
        (-crf(x.scores, x.tags, reduction="mean")).backward()

    return {"loss": loss, "best": best}[task]


def torch_struct(task: str, x: Inputs) -> Call:
    """Return a call of torch-struct, whose scores are (later, earlier) state."""
    from torch_struct import LinearChainCRF

    def declared() -> LinearChainCRF:
        steps = x.transitions.T + x.scores[:, 1:, :, None]
        first = steps[:, :1] + (x.scores[:, :1] + x.initial)[:, :, None, :]
        return LinearChainCRF(torch.cat([first, steps[:, 1:]], 1))

    def best() -> object:
        with torch.no_grad():
            return declared().argmax

    def loss() -> None:
        declared().partition.sum().backward()

    return {"loss": loss, "best": best}[task]


LIBRARIES = {"lpsmap": ours, "pytorch-crf": pytorch_crf, "torch-struct": torch_struct}
TASKS = {
    "loss": ("lpsmap", "pytorch-crf", "torch-struct"),
    "log Z": ("lpsmap",),
    "best": ("lpsmap", "pytorch-crf", "torch-struct"),
    "SparseMAP": ("lpsmap",),
    "SparseMAP + Budget": ("lpsmap",),
}


def megabytes(field: str) -> float:
    """Return a field of the status of the process: the resident memory, or its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure(library: str, task: str, size: tuple[int, int, int]) -> tuple[float, float]:
    """Return the seconds of a call, and the megabytes of its peak above the inputs."""
    LIBRARIES[library](task, Inputs(1, 3, 2))()  # load kernels
    call = LIBRARIES[library](task, Inputs(*size))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    before = megabytes("VmRSS")
    call()
    peak = megabytes("VmHWM") - before
    shortest, end = np.inf, time.perf_counter() + SECONDS
    while shortest == np.inf or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, peak


def in_a_process(library: str, task: str, size: str) -> tuple[float, float]:
    """Return the result of `measure`, in a process of its own."""
    command = [sys.executable, __file__, "--measure", library, task, size]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def libraries_of(task: str, size: str) -> list[str]:
    """Return the libraries that are installed and measured for a task and a size."""
    batch, length, n_states = map(int, size.split("x"))
    fits = batch * length * n_states**2 <= MAX_STEP_SCORES
    return [
        name
        for name in TASKS[task]
        if (name not in PEERS or importlib.util.find_spec(PEERS[name]) is not None)
        and (fits or name != "torch-struct")
    ]


@click.command(context_settings={"show_default": True})
@click.option("--sizes", default=SIZES, help="Batch, positions and states.")
@click.option("--tasks", default=",".join(TASKS), help="Tasks of every size.")
@click.option("--measure", "one", nargs=3, type=str, default=None, hidden=True)
def main(sizes: str, tasks: str, one: tuple[str, str, str] | None) -> None:
    """Print milliseconds and peak megabytes above the inputs."""
    if one is not None:
        library, task, size = one
        batch, length, n_states = map(int, size.split("x"))
        click.echo(json.dumps(measure(library, task, (batch, length, n_states))))
        return
    click.echo(f"{'size':12}{'task':20}{'library':14}{'ms':>9}{'MB':>8}")
    for size in sizes.split():
        for task in tasks.split(","):
            for library in libraries_of(task, size):
                seconds, memory = in_a_process(library, task, size)
                click.echo(f"{size:12}{task:20}{library:14}{1e3 * seconds:9.1f}{memory:8.0f}")


if __name__ == "__main__":
    main()
