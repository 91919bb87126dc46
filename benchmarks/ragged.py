"""Time training steps of layers on batches of different lengths, and the share of Python in them.

``python benchmarks/ragged.py`` times each layer in turns: on full batches; on ragged batches with
other lengths in every step, whose graphs are declared and laid out anew; and on a ragged batch with
the lengths of the step before. A step is the marginals and their gradient. *python* is the share of
a full step's process time outside compiled kernels, on one thread, in batches of 128.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from lpsmap import Budget
from lpsmap_jit.compile import Kernel
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    SparseMAP,
)

BATCH = 128
"""Instances of the batches in which the share of Python is measured."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """A layer, the shape of its scores, and the shortest lengths."""

    name: str
    make: Callable[..., torch.nn.Module]
    shape: tuple[int, ...]
    shortest: tuple[int, ...]

    def lengths(self, rng: np.random.Generator | None, batch: int) -> Tensor:
        """Return lengths of a batch, full without a generator."""
        longest = self.shape[1 : 1 + len(self.shortest)]
        drawn = [
            np.full(batch, high) if rng is None else rng.integers(low, high + 1, size=batch)
            for low, high in zip(self.shortest, longest, strict=True)
        ]
        return torch.from_numpy(np.stack(drawn, -1) if len(drawn) > 1 else drawn[0])

    def step(self, layer: torch.nn.Module, lengths: Tensor, clock: Clock) -> float:
        """Return the seconds of the marginals and their gradient."""
        scores = torch.randn(len(lengths), *self.shape[1:]).requires_grad_()
        direction = torch.randn(scores.shape)
        begin = clock()
        layer(scores, lengths=lengths).backward(direction)
        return clock() - begin


ROWS = (
    Row("MatchingAttention 24x12", MatchingAttention, (128, 24, 12), (4, 3)),
    Row("LPMatchingAttention 24x12", LPMatchingAttention, (128, 24, 12), (4, 3)),
    Row("LPSequenceAttention 24x12", LPSequenceAttention, (128, 24, 12), (4, 3)),
    Row("LatentTree 40", LatentTree, (32, 40, 40), (5,)),
    Row("LatentTree 20, budget 2", lambda **k: LatentTree(budget=2, **k), (32, 20, 20), (5,)),
    Row("Budget 64", lambda **k: SparseMAP(Budget, budget=5, **k), (128, 64), (6,)),
)


def in_turns(row: Row, turns: int, threads: int) -> dict[str, list[float]]:
    """Return the seconds of steps on full, ragged and repeated batches."""
    rng, layer = np.random.default_rng(0), row.make(threads=threads)
    times: dict[str, list[float]] = {"full": [], "ragged": [], "again": []}
    full, n = row.lengths(None, row.shape[0]), row.shape[0]
    for turn in range(turns + 2):  # the first turns compile or load kernels
        ragged = row.lengths(rng, n)
        for name, lengths in (("full", full), ("ragged", ragged), ("again", ragged)):
            seconds = row.step(layer, lengths, time.perf_counter)
            if turn > 1:
                times[name].append(seconds)
    return times


@contextmanager
def timed_kernels() -> Iterator[list[float]]:
    """Collect the process times of the calls of compiled kernels from Python."""
    call, seconds = Kernel.__call__, []

    def timed(self: Kernel, *arguments: Any) -> Any:
        begin = time.process_time()
        try:
            return call(self, *arguments)
        finally:
            seconds.append(time.process_time() - begin)

    Kernel.__call__ = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        del Kernel.__call__


def share_of_python(row: Row, turns: int) -> float:
    """Return the median share of a step's process time outside compiled kernels."""
    lengths, layer, shares = row.lengths(None, BATCH), row.make(threads=1), []
    for _ in range(turns + 2):
        with timed_kernels() as seconds:
            whole = row.step(layer, lengths, time.process_time)
        shares.append(1.0 - sum(seconds) / whole)
    return float(np.median(shares[2:]))


@click.command(context_settings={"show_default": True})
@click.option("--turns", type=click.IntRange(min=1), default=25, help="Turns of each batch.")
@click.option("--threads", type=click.IntRange(min=1), default=2, help="Threads of a solve.")
@click.option("--only", default="", help="Only rows whose name contains this.")
def main(turns: int, threads: int, only: str) -> None:
    """Print the times of ragged batches beside full ones, and the share of Python."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = Table(title=f"milliseconds on the wall, {threads} threads, medians of {turns} turns")
    columns = ["batch", "full", "ragged", "over full", "again", "over full", "python"]
    for column in ("layer", *columns):
        table.add_column(column, justify="left" if column == "layer" else "right")
    chosen = [row for row in ROWS if only in row.name]
    for row in track(chosen, "measuring", console=Console(stderr=True)):
        medians = {k: 1e3 * float(np.median(v)) for k, v in in_turns(row, turns, threads).items()}
        full, cells = medians["full"], [f"{medians['full']:.2f}"]
        for name in ("ragged", "again"):
            cells += [f"{medians[name]:.2f}", f"{medians[name] / full:.2f}"]
        share = share_of_python(row, turns)
        table.add_row(row.name, str(row.shape[0]), *cells, f"{100 * share:.0f} %")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
