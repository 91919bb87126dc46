"""What the papers claim about costs, measured: rate, backward pass, and unrolling.

    python benchmarks/claims.py

- Niculae & Martins (2020), Proposition 2: the dual suboptimality of Algorithm 1 after t iterations
  is O(1 / t). The table has its largest product with t over some matchings.
- Niculae et al. (2018), section 3.3: the backward pass of an active set I takes O(k |I|) for k
  variables. The table has the time of one product with the Jacobian of a projective tree.
- Niculae & Martins (2020), section 3.2: the implicit backward pass is cheaper than that of an
  unrolled Algorithm 1, which keeps all intermediate states. The unrolled one is written in PyTorch.

Times are processor times of one thread, the median of several runs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LPSMAP_THREADS", "1")

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lpsmap import ALGORITHM_1, AtMostOne, ConvergenceWarning, DepTree, FactorGraph, Xor
from lpsmap_torch import TorchFactorGraph

DELTA = np.sqrt(2.0)
"""The root of the degree of a variable of a matching, which is in a row and a column."""

STEP_SIZE = 0.5


def capped(x: Tensor, total: float, axis: int, *, exact: bool) -> Tensor:
    """Return the nearest nonnegative lines that sum to `total`, or to at most `total`."""
    ordered = x.sort(dim=axis, descending=True).values
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    rank = torch.arange(1, x.shape[axis] + 1, dtype=x.dtype).reshape(shape)
    excess = (ordered.cumsum(axis) - total) / rank
    last = (ordered > excess).sum(axis, keepdim=True) - 1
    threshold = excess.gather(axis, last)
    if not exact:
        threshold = threshold.where(x.clamp(min=0.0).sum(axis, keepdim=True) > total, 0.0)
    return (x - threshold).clamp(min=0.0)


def unrolled(eta: Tensor, n_iterations: int) -> tuple[Tensor, Tensor]:
    """Return the marginals and duals of Algorithm 1 for matchings by rows and columns."""
    mu, duals = torch.zeros_like(eta), torch.zeros((2, *eta.shape), dtype=eta.dtype)
    for _ in range(n_iterations):
        local = (eta / DELTA + duals + STEP_SIZE * mu / DELTA) / (STEP_SIZE + 1.0)
        rows = capped(local[0], 1.0 / DELTA, -1, exact=True)
        columns = capped(local[1], 1.0 / DELTA, -2, exact=False)
        copies = torch.stack([rows, columns])
        mu = copies.sum(dim=0) / DELTA
        duals = duals + STEP_SIZE * (mu / DELTA - copies)
    return mu, duals


def dual_value(eta: Tensor, duals: Tensor) -> Tensor:
    """Return the dual function of every matching."""
    scores = eta / DELTA + duals
    best = torch.stack(
        [
            capped(scores[0], 1.0 / DELTA, -1, exact=True),
            capped(scores[1], 1.0 / DELTA, -2, exact=False),
        ]
    )
    return (scores * best - 0.5 * best**2).sum(dim=(0, -1, -2))


def milliseconds(call: Callable[[], Any], n: int = 7) -> float:
    """Return the median processor time of a call."""
    found = []
    for _ in range(n):
        begin = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - begin))
    return statistics.median(found)


def rate(console: Console, seed: int) -> None:
    """Print the dual suboptimality of Algorithm 1."""
    rng = torch.Generator().manual_seed(seed)
    eta = 3.0 * torch.randn((50, 8, 14), generator=rng, dtype=torch.float64)
    best = dual_value(eta, unrolled(eta, 20_000)[1])
    table = Table(title="Algorithm 1 on 50 matchings 8x14, step size .5: dual suboptimality")
    for column in ("iterations t", "median", "worst", "worst times t"):
        table.add_column(column, justify="right")
    for t in (1, 3, 10, 30, 100, 300, 1000):
        above = dual_value(eta, unrolled(eta, t)[1]) - best
        worst = float(above.max())
        table.add_row(f"{t}", f"{float(above.median()):.2e}", f"{worst:.2e}", f"{t * worst:.2g}")
    console.print(table)


def backward_of_active_sets(console: Console, seed: int) -> None:
    """Print the time of products with the Jacobian of projective trees."""
    rng = np.random.default_rng(seed)
    table = Table(title="One product with the Jacobian of a projective tree")
    for column in ("words", "k", "|I|", "microseconds", "per 1,000 k |I|"):
        table.add_column(column, justify="right")
    for n in (10, 20, 40):
        eta = rng.standard_normal((n, n))
        for scale in (4.0, 1.0, 0.25):
            graph = FactorGraph()
            u = graph.variable_from(scale * eta)
            factor = graph.add(DepTree(u, projective=True))
            solution = graph.solve()
            size = len(graph.structures(factor)[0].probabilities)
            direction = rng.standard_normal((n, n))
            solution.vjp(direction)
            micro = 1e3 * milliseconds(lambda s=solution, d=direction: s.vjp(d), 31)
            work = n * n * size / 1000
            table.add_row(f"{n}", f"{n * n}", f"{size}", f"{micro:.0f}", f"{micro / work:.1f}")
    console.print(table)


def unrolling(console: Console, seed: int) -> None:
    """Print the times of implicit and unrolled backward passes after the same iterations."""
    rng = torch.Generator().manual_seed(seed)
    scores = 3.0 * torch.randn((64, 8, 14), generator=rng, dtype=torch.float64)
    table = Table(title="64 matchings 8x14, the same iterations: milliseconds of a pass")
    for column in ("iterations", "backward", "forward", "backward pass", "kept, MB"):
        table.add_column(column, justify="right")
    for t in (10, 30, 100):
        for name in ("implicit", "unrolled"):
            forward, backward, kept = measured(name, scores, t)
            table.add_row(f"{t}", name, f"{forward:.1f}", f"{backward:.1f}", f"{kept:.1f}")
    console.print(table)


def measured(name: str, scores: Tensor, n_iterations: int) -> tuple[float, float, float]:
    """Return milliseconds of both passes, and the megabytes that the forward pass keeps."""
    eta = scores.clone().requires_grad_()
    gradient = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1)).double()

    def forward() -> Tensor:
        if name == "unrolled":
            return unrolled(eta, n_iterations)[0]
        graph = TorchFactorGraph()
        u = graph.variable_from(eta)
        graph.add(Xor(u))
        graph.add(AtMostOne(u.transpose(0, 2, 1)))
        graph.solve(**{**ALGORITHM_1, "max_iter": n_iterations})
        return u.value

    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mu = forward()
    mu.backward(gradient)
    times = []
    for _ in range(7):
        mu = forward()
        begin = time.process_time()
        mu.backward(gradient)
        times.append(1e3 * (time.process_time() - begin))
    return milliseconds(forward), statistics.median(times), sum(kept.values()) / 1e6


@click.command(context_settings={"show_default": True})
@click.option("--seed", type=int, default=0)
def main(seed: int) -> None:
    """Print all tables."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    console = Console(width=100)
    for measure in (rate, backward_of_active_sets, unrolling):
        measure(console, seed)


if __name__ == "__main__":
    main()
