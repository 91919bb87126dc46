"""Measure factors alone on scores of all scales, down to nearly uniform ones.

``python benchmarks/charts.py`` prints processor milliseconds an instance on one thread, the
structures of the solution and its status, with default options. With ``--budget`` every head has at
most three dependents, too.
"""

from __future__ import annotations

import time
import warnings

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from lpsmap import BinaryTree, Budget, ConvergenceWarning, DepTree, FactorGraph, Solution

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


def declare(kind: str, n: int, scale: float, budget: bool, seed: int) -> FactorGraph:
    """Return a graph of one tree over n words, with budgets if asked for."""
    graph = FactorGraph()
    u = graph.variable_from(scale * np.random.default_rng(seed).standard_normal((n, n)))
    graph.add(DepTree(u, projective=True) if kind == "projective" else BinaryTree(u))
    if budget:
        graph.add(Budget(u, 3, axis=-2))
    return graph


def measure(graph: FactorGraph, repetitions: int) -> tuple[float, Solution]:
    """Return the least milliseconds of some solves, and the last solution."""
    seconds = []
    for _ in range(repetitions):
        start = time.process_time()
        solution = graph.solve(threads=1)
        seconds.append(time.process_time() - start)
    return 1e3 * min(seconds), solution


@click.command(context_settings={"show_default": True})
@click.option("--words", type=int, multiple=True, default=(20, 30, 50, 75), help="Sizes.")
@click.option("--budget", is_flag=True, help="With budgets.")
@click.option("--repetitions", type=int, default=3, help="Solves, of which the fastest counts.")
def main(words: tuple[int, ...], budget: bool, repetitions: int) -> None:
    """Print the table of scales."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    table = Table("tree", "words", "scale", "ms", "structures", "status", "error bound")
    for kind in ("projective",) if budget else ("projective", "binary"):
        measure(declare(kind, 4, 1.0, budget, 0), 1)  # loads what is compiled
        for n in words:
            for scale in SCALES:
                took, solution = measure(declare(kind, n, scale, budget, 0), repetitions)
                found = len(solution.solved.structures(0, np.array([0])).owner)
                status, bound = solution.status[0].name, solution.error_bound[0]
                row = (kind, n, scale, f"{took:.1f}", found, status, f"{bound:.1e}")
                table.add_row(*map(str, row))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
