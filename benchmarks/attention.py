"""What structured attention costs in training: a step of a model with it, and with softmax.

The model is the decomposable attention of Parikh et al. (2016), as Niculae & Martins (2020, section
5.2) use it: sentences of 24 and 12 words, 128 pairs in a batch, vectors of 300 that stay as they
are, hidden layers of 100. The pairs have a label that can be learnt: how many words they share.
``python benchmarks/attention.py`` trains the models in turns, with one thread, and prints
processor times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from lpsmap_torch.layers import LPMatchingAttention, MatchingAttention
from lpsmap_torch.readable import numbers

SIZE, PREMISE, HYPOTHESIS, WORDS = 128, 24, 12, 2_000
EMBEDDING, HIDDEN, CLASSES = 300, 100, 3

Attention = Callable[[Tensor], tuple[Tensor, Tensor]]


def softmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention from the rows, and from the columns, each by itself."""
    return scores.softmax(-1), scores.softmax(-2)


class DecomposableAttention(nn.Module):
    """Attend, compare, aggregate."""

    def __init__(self, attention: nn.Module | None) -> None:
        super().__init__()
        self.attention = attention
        self.project = nn.Linear(EMBEDDING, HIDDEN, bias=False)
        self.attend = mlp(HIDDEN, HIDDEN)
        self.compare = mlp(2 * HIDDEN, HIDDEN)
        self.aggregate = nn.Sequential(mlp(2 * HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES))

    def scores(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the scores of all pairs of words."""
        return self.attend(one) @ self.attend(other).mT

    def forward(self, premise: Tensor, hypothesis: Tensor) -> Tensor:
        """Return the scores of the classes."""
        one, other = self.project(premise), self.project(hypothesis)
        scores = self.scores(one, other)
        if self.attention is None:
            rows, columns = softmax(scores)
        else:
            rows = columns = self.attention(scores)
        compared = [
            self.compare(torch.cat([one, rows @ other], -1)).sum(1),
            self.compare(torch.cat([other, columns.mT @ one], -1)).sum(1),
        ]
        found: Tensor = self.aggregate(torch.cat(compared, -1))
        return found


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Return two layers with ReLU."""
    return nn.Sequential(
        nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs), nn.ReLU()
    )


def batches(generator: torch.Generator) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
    """Return what draws pairs of sentences; the classes are of no, some or many common words."""
    vectors = torch.randn(WORDS, EMBEDDING, generator=generator)

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        premise = torch.randint(WORDS, (SIZE, PREMISE), generator=generator)
        other = torch.randint(WORDS, (SIZE, HYPOTHESIS), generator=generator)
        classes = torch.randint(CLASSES, (SIZE,), generator=generator)
        shared = torch.arange(HYPOTHESIS) < classes[:, None] * (HYPOTHESIS // CLASSES)
        order = torch.argsort(torch.rand(SIZE, PREMISE, generator=generator))
        hypothesis = torch.where(shared, premise.gather(1, order[:, :HYPOTHESIS]), other)
        return vectors[premise], vectors[hypothesis], classes

    return draw


class Trained:
    """A model in training, and what its steps cost."""

    def __init__(self, attention: nn.Module | None) -> None:
        torch.manual_seed(0)
        self.model = DecomposableAttention(attention)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.times: list[float] = []
        self.parts: dict[str, list[float]] = {}
        self.right: list[float] = []

    def step(self, premise: Tensor, hypothesis: Tensor, classes: Tensor) -> None:
        """Take a step."""
        begin = time.process_time()
        found = self.model(premise, hypothesis)
        loss = nn.functional.cross_entropy(found, classes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.times.append(time.process_time() - begin)
        self.right.append((found.argmax(-1) == classes).float().mean().item())

    def take_apart(self, premise: Tensor, hypothesis: Tensor) -> None:
        """Time the parts of the attention on the scores that the model gives by now."""
        layer = self.model.attention
        with torch.no_grad():
            scores = self.model.scores(*map(self.model.project, (premise, hypothesis)))
        scores.requires_grad_()
        array = numbers(scores)
        value = layer(scores)
        direction = torch.ones_like(value)
        solved = layer.solved(array, None, None, None)
        parts = {
            "forward": lambda: layer(scores),
            "  of it the solve": lambda: layer.solved(array, None, None, None),
            "backward": lambda: torch.autograd.grad(value, scores, direction, retain_graph=True),
            "  of it the product": lambda: solved.pull_back(numbers(direction)),
        }
        for name, call in parts.items():
            begin = time.process_time()
            call()
            self.parts.setdefault(name, []).append(time.process_time() - begin)


def milliseconds(times: list[float]) -> str:
    """Return the median of the latter half, when everything was compiled."""
    return f"{1e3 * np.median(times[len(times) // 2 :]):.1f}"


@click.command(context_settings={"show_default": True})
@click.option("--steps", type=click.IntRange(min=2), default=100, help="Steps of each model.")
@click.option("--tol", type=float, default=1e-6, help="Tolerance of the solves.")
@click.option("--max-iter", type=int, default=1000, help="Limit of their iterations.")
@click.option("--exact/--no-exact", default=False, help="Train with MatchingAttention, too.")
def main(steps: int, tol: float, max_iter: int, exact: bool) -> None:
    """Train with every attention in turns, and print what a step costs."""
    torch.set_num_threads(1)
    options = {"tol": tol, "max_iter": max_iter, "threads": 1}
    runs = {"softmax": Trained(None)}
    runs["LP-matching"] = Trained(LPMatchingAttention(rescale=True, **options))
    if exact:
        runs["matching"] = Trained(MatchingAttention(**options))
    draw = batches(torch.Generator().manual_seed(0))
    for _ in track(range(steps), "training", console=Console(stderr=True)):
        batch = draw()
        for run in runs.values():
            run.step(*batch)
            if run.model.attention is not None:
                run.take_apart(*batch[:2])
    table = Table(title=f"milliseconds of processor time, medians of {steps - steps // 2} steps")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    table.add_row("a step of training", *(milliseconds(run.times) for run in runs.values()))
    half = steps // 2
    first = np.median(runs["softmax"].times[half:])
    ratios = [np.median(run.times[half:]) / first for run in runs.values()]
    table.add_row("as a multiple of softmax's", *(f"{ratio:.2f}" for ratio in ratios))
    for part in runs["LP-matching"].parts:
        cells = [
            milliseconds(run.parts[part]) if part in run.parts else "" for run in runs.values()
        ]
        table.add_row(f"  {part}", *cells)
    shares = [f"{100 * np.mean(run.right[half:]):.0f} %" for run in runs.values()]
    table.add_row("right in training", *shares)
    Console().print(table)


if __name__ == "__main__":
    main()
