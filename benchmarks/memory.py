"""Measure the memory of solves and derivatives, and whether it grows when they are repeated.

``python benchmarks/memory.py --repeats 0`` solves one batch of 64 nearly uniform projective trees
of 75 words and takes its derivative, which is minutes of work; by default small batches are solved
again and again, trees and sequences in turns, each time with other scores.
"""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from lpsmap import Budget, DepTree, FactorGraph, Sequence

MEGABYTE = 2.0**20
SETTLED = 0.2
"""Share of the repetitions after which the allocator has the arenas that it needs."""


def resident() -> float:
    """Return the megabytes that the process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def peak() -> float:
    """Return the most megabytes that the process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def solve(rng: np.random.Generator, scale: float, batch: int, words: int, budget: bool) -> str:
    """Solve projective trees and take a derivative; return the names of the statuses."""
    graph = FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((batch, words, words)))
    graph.add(DepTree(u, projective=True))
    if budget:
        graph.add(Budget(u, 3, axis=-2))
    solution = graph.solve()
    solution.vjp(2 * solution.values)
    return ", ".join(sorted({status.name for status in solution.status}))


def solve_chains(rng: np.random.Generator, scale: float, batch: int, length: int) -> None:
    """Solve sequences of 10 states, which outgrow their active sets, and take a derivative."""
    graph = FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((batch, length, 10)))
    graph.add(Sequence(u, scale * rng.standard_normal((batch, length - 1, 10, 10))))
    solution = graph.solve()
    solution.vjp(2 * solution.values)


@click.command(context_settings={"show_default": True})
@click.option("--words", type=int, default=75, help="Words of the trees of the large batch.")
@click.option("--batch", type=int, default=64, help="Trees of the large batch.")
@click.option("--scale", type=float, default=0.01, help="Scale of the scores.")
@click.option("--repeats", type=int, default=1000, help="Small batches; 0 for the large one.")
def main(words: int, batch: int, scale: float, repeats: int) -> None:
    """Print resident megabytes."""
    rng, console = np.random.default_rng(0), Console()
    if repeats == 0:
        before, status = resident(), solve(rng, scale, batch, words, budget=False)
        line = f"{batch} trees of {words} words: {status}; {before:.0f} MB before"
        console.print(f"{line}, at most {peak():.0f} MB")
        return
    seen = []
    for repeat in track(range(repeats), transient=True):
        solve(rng, scale, 4, 10 + repeat % 6, budget=repeat % 2 == 1)
        solve_chains(rng, scale, 4, 8 + repeat % 5)
        gc.collect()
        seen.append(resident())
    late = seen[int(SETTLED * repeats) :]
    middle = len(late) // 2
    halves = np.median(late[:middle]), np.median(late[middle:])
    console.print(f"after {repeats}: {seen[0]:.0f} MB first, then medians of two halves")
    console.print(f"{halves[0]:.1f} and {halves[1]:.1f} MB, at most {peak():.0f} MB")


if __name__ == "__main__":
    main()
