"""Compare attention layers by time, by constraints, and by what a network learns through them.

``python benchmarks/alternatives.py`` maps scores of 6 rows and 8 columns to weights: no column for
two rows. The first columns are processor times of a batch on one thread, forward, and with the
gradient of the squares; how far sums of rows and columns are off; the share of weights that are
exactly 0; and the largest difference from the projection, which cvxpylayers computes too. The last
two are of training: a network reconstructs rows from the columns that it attends to. Rows are
columns under an unknown map, in an unknown order and with noise, and the network never sees the
order. The share of new rows whose largest weight is that of the right column is a mean over seeds.
All layers get the same network, learning rate and number of steps, and none is tuned.

``pip install entmax cvxpylayers`` brings the peers; missing ones are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from lpsmap_torch.estimators import PerturbAndMAP
from lpsmap_torch.layers import LPMatchingAttention, MatchingAttention
from measured import DOCS, markdown, origin
from peers import sinkhorn

ROWS, COLUMNS, SIZE, BATCH = 6, 8, 6, 16
NOISE, SHARPNESS, RATE = 0.5, 2.0, 0.02
ROUNDING = 1e-12

Layer = Callable[[Tensor], Tensor]


def sparsemax(scores: Tensor) -> Tensor:
    """Rows by entmax's sparsemax."""
    from entmax import sparsemax as theirs

    weights: Tensor = theirs(scores, dim=-1)
    return weights


def gumbel_sinkhorn(scores: Tensor) -> Tensor:
    """Sinkhorn's iterations on scores with Gumbel noise (Mena et al. 2018), at temperature 1."""
    noise = -torch.empty_like(scores).exponential_().log()
    return sinkhorn(scores + noise)


@cache
def _projection() -> Any:
    """Return the projection onto partial matchings as a layer of cvxpylayers."""
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    weights, scores = cp.Variable((ROWS, COLUMNS)), cp.Parameter((ROWS, COLUMNS))
    objective = cp.Minimize(0.5 * cp.sum_squares(weights) - cp.sum(cp.multiply(scores, weights)))
    constraints = [weights >= 0, cp.sum(weights, 1) == 1, cp.sum(weights, 0) <= 1]
    return CvxpyLayer(cp.Problem(objective, constraints), parameters=[scores], variables=[weights])


def convex_program(scores: Tensor) -> Tensor:
    """The same projection as `LPMatchingAttention`, by cvxpylayers."""
    (weights,) = _projection()(scores.double())
    found: Tensor = weights.to(scores.dtype)
    return found


LAYERS: dict[str, tuple[str, Callable[[], Layer]]] = {
    "softmax of rows": ("torch", lambda: nn.Softmax(dim=-1)),
    "sparsemax of rows (entmax)": ("entmax", lambda: sparsemax),
    "Sinkhorn, 50 iterations": ("torch", lambda: sinkhorn),
    "Gumbel-Sinkhorn": ("torch", lambda: gumbel_sinkhorn),
    "perturb-and-MAP": (
        "lpsmap_torch",
        lambda: MatchingAttention(estimator=PerturbAndMAP(), threads=1),
    ),
    "cvxpylayers": ("cvxpylayers", lambda: convex_program),
    "LPMatchingAttention": ("lpsmap_torch", lambda: LPMatchingAttention(threads=1)),
    "MatchingAttention": ("lpsmap_torch", lambda: MatchingAttention(threads=1)),
}
"""The package of each layer, and a function that makes it."""


def milliseconds(layer: Layer, turns: int) -> tuple[float, float]:
    """Return the median times of a forward pass, and of a forward and a backward pass."""
    times, draws = [], torch.Generator().manual_seed(0)
    for _ in range(turns + 2):  # the first calls compile or load kernels
        scores = torch.randn(BATCH, ROWS, COLUMNS, generator=draws, dtype=torch.float64)
        scores.requires_grad_()
        begin = time.process_time()
        weights = layer(scores)
        forward = time.process_time() - begin
        weights.square().sum().backward()
        times.append((forward, time.process_time() - begin))
    forward, both = 1e3 * np.median(times[2:], axis=0)
    return float(forward), float(both)


def quality(layer: Layer) -> dict[str, str]:
    """Return how far weights violate the constraints, are sparse, and are the projection."""
    scores = torch.randn(
        BATCH, ROWS, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    weights, projection = layer(scores), LPMatchingAttention()(scores)
    off = max((weights.sum(2) - 1).abs().max(), (weights.sum(1) - 1).max())
    return {
        "sums off by": f"{off:.0e}" if off > ROUNDING else "rounding",
        "exact zeros": f"{(weights == 0).double().mean():.0%}",
        "projection": f"{(weights - projection).abs().max():.0e}",
    }


class Reconstruction(nn.Module):
    """A network that reconstructs rows from the columns that it attends to."""

    def __init__(self, attention: Layer) -> None:
        super().__init__()
        self.match, self.read = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(2))
        self.attention = attention

    def forward(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reconstructed rows, and the weights."""
        weights = self.attention(SHARPNESS * self.match(rows) @ columns.mT)
        return self.read(weights @ columns), weights


def learned(make: Callable[[], Layer], steps: int, seed: int) -> tuple[float, float]:
    """Train; return the share of right columns in new batches, and the seconds of training."""
    torch.manual_seed(seed)
    unknown = torch.linalg.qr(torch.randn(SIZE, SIZE))[0]
    draws = torch.Generator().manual_seed(seed)  # separate, so that all layers see the same data

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        columns = torch.randn(BATCH, COLUMNS, SIZE, generator=draws)
        order = torch.rand(BATCH, COLUMNS, generator=draws).argsort(1)[:, :ROWS]
        rows = columns.gather(1, order[..., None].expand(-1, -1, SIZE)) @ unknown
        return rows + NOISE * torch.randn(rows.shape, generator=draws), columns, order

    model = Reconstruction(make())
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    begin = time.process_time()
    for _ in range(steps):
        rows, columns, _ = batch()
        optimizer.zero_grad()
        (model(rows, columns)[0] - rows).square().mean().backward()
        optimizer.step()
    seconds, right = time.process_time() - begin, []
    for _ in range(10):
        rows, columns, order = batch()
        with torch.no_grad():
            right.append((model(rows, columns)[1].argmax(-1) == order).double().mean().item())
    return float(np.mean(right)), seconds


def row_of(name: str, turns: int, steps: int, seeds: int) -> dict[str, str]:
    """Return the cells of a layer."""
    _, make = LAYERS[name]
    forward, both = milliseconds(make(), turns)
    trained = np.array([learned(make, steps, seed) for seed in range(seeds)])
    return {
        "layer": name,
        "forward ms": f"{forward:.2f}",
        "both ms": f"{both:.2f}",
        **quality(make()),
        "right columns": f"{trained[:, 0].mean():.1%}",
        "training s": f"{trained[:, 1].mean():.1f}",
    }


@click.command(context_settings={"show_default": True})
@click.option("--turns", type=click.IntRange(min=1), default=15, help="Timed calls of each layer.")
@click.option("--steps", type=click.IntRange(min=1), default=300, help="Steps of training.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, help="Networks of each layer.")
@click.option("--only", default="", help="Only layers whose name contains this.")
@click.option("--save", is_flag=True, help="Write the table that the documentation includes.")
def main(turns: int, steps: int, seeds: int, only: str, save: bool) -> None:
    """Print the table of layers."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in track([n for n in LAYERS if only in n], "layers", console=Console(stderr=True)):
        package = LAYERS[name][0]
        if importlib.util.find_spec(package) is None:
            click.echo(f"{name} is skipped: pip install {package}")
            continue
        rows.append(row_of(name, turns, steps, seeds))
    text = markdown([{k: v for k, v in row.items() if k != "training s"} for row in rows])
    click.echo(markdown(rows))
    if save:
        said = origin("torch", "entmax", "cvxpylayers")
        (DOCS / "layers.md").write_text(f"{text}\n{said}", encoding="utf-8")
        (DOCS / "layers.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
