"""Measure whether memory grows when solves and derivatives are repeated.

``python benchmarks/memory.py`` solves small batches of nearly uniform projective trees, every
second batch with budgets, and sequences, a thousand times with different scores and sizes, and
prints the resident memory.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from lpsmap import Budget, DepTree, FactorGraph, Sequence

MEGABYTE = 2.0**20
BATCH = 4
SETTLED = 0.2
"""Share of the repetitions after which the allocator has reached its steady state."""


def resident() -> float:
    """Return the resident memory of the process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def solve_trees(rng: np.random.Generator, scale: float, words: int, budget: bool) -> None:
    """Solve projective trees, and take a derivative."""
    graph = FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((BATCH, words, words)))
    graph.add(DepTree(u, projective=True))
    if budget:
        graph.add(Budget(u, 3, axis=-2))
    solution = graph.solve()
    solution.vjp(2 * solution.values)


def solve_chains(rng: np.random.Generator, scale: float, length: int) -> None:
    """Solve sequences of 10 states, which outgrow their active sets, and take a derivative."""
    graph = FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((BATCH, length, 10)))
    graph.add(Sequence(u, scale * rng.standard_normal((BATCH, length - 1, 10, 10))))
    solution = graph.solve()
    solution.vjp(2 * solution.values)


@click.command(context_settings={"show_default": True})
@click.option("--scale", type=float, default=0.01, help="Scale of the scores.")
@click.option("--repeats", type=int, default=1000, help="Batches of each kind.")
def main(scale: float, repeats: int) -> None:
    """Print resident megabytes."""
    rng, console, seen = np.random.default_rng(0), Console(), []
    for repeat in track(range(repeats), transient=True):
        solve_trees(rng, scale, 10 + repeat % 6, budget=repeat % 2 == 1)
        solve_chains(rng, scale, 8 + repeat % 5)
        gc.collect()
        seen.append(resident())
    late = seen[int(SETTLED * repeats) :]
    middle = len(late) // 2
    halves = np.median(late[:middle]), np.median(late[middle:])
    console.print(f"{repeats} times: {seen[0]:.0f} MB after the first one, medians of two halves")
    console.print(f"{halves[0]:.1f} and {halves[1]:.1f} MB, at most {max(seen):.0f} MB")


if __name__ == "__main__":
    main()
