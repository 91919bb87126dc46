"""What the papers claim about costs, measured: rate, backward pass, unrolling, and certainty.

    python benchmarks/claims.py --save

writes the tables of the page on the papers.

- Niculae & Martins (2020), Proposition 2: the dual suboptimality of Algorithm 1 after t iterations
  is O(1 / t). The table has its largest product with t over some matchings.
- Niculae et al. (2018), section 3.3: the backward pass of an active set I takes O(k |I|) for k
  variables. The table has the time of one product with the Jacobian of a projective tree.
- Niculae & Martins (2020), section 3.2: the implicit backward pass is cheaper than that of an
  unrolled Algorithm 1, which keeps all intermediate states. The unrolled one is written in PyTorch.
- Niculae et al. (2018), section 5.2: structured layers become faster as the models grow certain. A
  network learns alignments, and the layer is timed at the scores of several steps of its training.

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
from torch import Tensor

from lpsmap import ALGORITHM_1, AtMostOne, ConvergenceWarning, DepTree, FactorGraph, Xor
from lpsmap_torch import TorchFactorGraph
from lpsmap_torch.layers import LPMatchingAttention, MatchingAttention
from measured import DOCS, markdown, origin

Rows = list[dict[str, str]]

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


def rate(seed: int) -> Rows:
    """Return the dual suboptimality of Algorithm 1."""
    rng = torch.Generator().manual_seed(seed)
    eta = 3.0 * torch.randn((50, 8, 14), generator=rng, dtype=torch.float64)
    best = dual_value(eta, unrolled(eta, 20_000)[1])
    rows = []
    for t in (1, 3, 10, 30, 100, 300, 1000):
        above = dual_value(eta, unrolled(eta, t)[1]) - best
        worst = float(above.max())
        median = float(above.median())
        row = {"iterations t": f"{t}", "median": f"{median:.3g}", "worst": f"{worst:.3g}"}
        rows.append(row | {"worst times t": f"{t * worst:.3g}"})
    return rows


def backward_of_active_sets(seed: int) -> Rows:
    """Return the time of products with the Jacobian of projective trees."""
    rng = np.random.default_rng(seed)
    rows = []
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
            work = n * n * size
            row = {"words": f"{n}", "trees in I": f"{size}", "k times size of I": f"{work:,}"}
            rows.append(row | {"microseconds": f"{micro:.0f}"})
    return rows


def unrolling(seed: int) -> Rows:
    """Return the times of implicit and unrolled backward passes after the same iterations."""
    rng = torch.Generator().manual_seed(seed)
    scores = 3.0 * torch.randn((64, 8, 14), generator=rng, dtype=torch.float64)
    rows = []
    for t in (10, 30, 100):
        for name in ("implicit", "unrolled"):
            forward, backward, kept = measured(name, scores, t)
            row = {"iterations": f"{t}", "pass": name, "forward, ms": f"{forward:.1f}"}
            row |= {"backward, ms": f"{backward:.1f}", "kept by autograd, MB": f"{kept:.1f}"}
            rows.append(row)
    return rows


LEARNED = 0, 10, 30, 100, 300
"""Steps of the training after which the scores are kept."""


def certainty(seed: int) -> Rows:
    """Return the times of structured layers at the scores of a network that learns alignments.

    Rows of 16 sources are noisy copies of the columns that they belong to. The network has a
    bilinear form, and its loss is the squared error of the layer's alignments. After the training
    all scores are timed in turns, so that other work on the machine disturbs them alike.
    """
    rng = torch.Generator().manual_seed(seed)
    columns = torch.randn((32, 20, 24), generator=rng)
    places = torch.stack([torch.randperm(20, generator=rng)[:16] for _ in range(32)])
    gold = torch.nn.functional.one_hot(places, 20).float()
    sources = gold @ columns + 0.5 * torch.randn((32, 16, 24), generator=rng)
    rows = []
    for layer in (MatchingAttention(), LPMatchingAttention()):
        weight = (0.05 * torch.randn((24, 24), generator=rng)).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.01)
        kept = {}
        for step in range(max(LEARNED) + 1):
            scores = sources @ weight @ columns.mT
            if step in LEARNED:
                kept[step] = scores.detach().requires_grad_()
            loss = (layer(scores) - gold).square().sum(dim=(1, 2)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        timed: dict[int, list[tuple[float, float]]] = {step: [] for step in LEARNED}
        for step in LEARNED * 9:
            timed[step].append(timed_layer(layer, kept[step], gold))
        for step in LEARNED:
            forward, backward = (statistics.median(some) for some in zip(*timed[step], strict=True))
            weights = float((layer(kept[step]) > 1e-9).sum() / (32 * 16))
            row = {
                "layer": type(layer).__name__,
                "step": f"{step}",
                "weights a row": f"{weights:.1f}",
            }
            rows.append(row | {"forward, ms": f"{forward:.1f}", "backward, ms": f"{backward:.1f}"})
    return rows


def timed_layer(layer: torch.nn.Module, scores: Tensor, gold: Tensor) -> tuple[float, float]:
    """Return milliseconds of processor time of both passes of a layer."""
    begin = time.process_time()
    values = layer(scores)
    middle = time.process_time()
    (values - gold).square().sum().backward()
    return 1e3 * (middle - begin), 1e3 * (time.process_time() - middle)


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


TABLES: dict[str, Callable[[int], Rows]] = {
    "**The rate of Algorithm 1** (LP-SparseMAP, Proposition 2: O(1 / t)). Dual suboptimality on 50 "
    "matchings 8x14, step size .5:": rate,
    "**The backward pass of an active set** (SparseMAP, section 3.3: O(k |I|) for k variables). "
    "One product with the Jacobian of a projective tree:": backward_of_active_sets,
    "**Unrolling** (LP-SparseMAP, section 3.2). 64 matchings 8x14 after the same iterations; the "
    "unrolled Algorithm 1 is written in PyTorch:": unrolling,
    "**Certainty** (SparseMAP, section 5.2: faster as models grow certain). Passes of a layer over "
    "32 alignments 16x20, at the scores of a network that learns them:": certainty,
}
"""The tables, by what they show."""


@click.command(context_settings={"show_default": True})
@click.option("--seed", type=int, default=0)
@click.option("--save", is_flag=True, help="Write the page's tables.")
def main(seed: int, save: bool) -> None:
    """Print all tables."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    text = "".join(f"{title}\n\n{markdown(table(seed))}\n" for title, table in TABLES.items())
    click.echo(text)
    if save:
        (DOCS / "claims.md").write_text(f"{text}{origin('torch')}", encoding="utf-8")


if __name__ == "__main__":
    main()
