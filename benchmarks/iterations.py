"""Count the iterations of solves of random graphs.

``python benchmarks/iterations.py`` draws graphs of 2 to 40 factors of all kinds, in the way of the
tests, at score scales from 0.1 to 100, and prints the iterations to several tolerances: the median,
90 % and the worst over all graphs and by scale. The count of a graph is that of its slowest
component; graphs stopped by a limit are counted separately. ``--plain 5000`` adds plain ADMM with
this iteration limit: a fixed step size in proportion to the scores, without polish and
acceleration.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from random_graphs import random_graph

SCALES = (0.1, 1.0, 10.0, 100.0)


METHODS: dict[str, dict[str, Any]] = {
    "plain": {"adapt": False},
    "the engine": {},
}
"""Options of `FactorGraph.solve`; the first is plain ADMM with a fixed step size."""


class Count(NamedTuple):
    """One solve: its method, scale, and iterations of the slowest component."""

    method: str
    tol: float
    scale: float
    iterations: int
    solved: bool


def count(
    graphs: int, tolerances: tuple[float, ...], limits: dict[str, int], seed: int
) -> Iterator[Count]:
    """Solve random graphs by every method with a limit, to every tolerance."""
    for i in track(range(graphs), description="solving", console=Console(stderr=True)):
        rng, scale = np.random.default_rng(seed + i), SCALES[i % len(SCALES)]
        drawn = random_graph(rng, int(rng.integers(2, 41)), scale)
        for method, limit in limits.items():
            for tol in tolerances:
                graph, options = drawn.build()[0], METHODS[method]
                solution = graph.solve(tol=tol, max_iter=limit, threads=1, **options)
                most = int(solution.iterations.max())
                yield Count(method, tol, scale, most, bool(solution.ok))


@click.command(context_settings={"show_default": True})
@click.option("--graphs", type=int, default=1000, help="Number of graphs.")
@click.option(
    "--tol", "tolerances", type=float, multiple=True, default=(1e-6, 1e-9), help="Tolerances."
)
@click.option("--max-iter", type=int, default=20_000, help="Maximum number of iterations.")
@click.option(
    "--plain", type=int, default=0, help="Limit of plain ADMM, which is left out if this is 0."
)
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
def main(graphs: int, tolerances: tuple[float, ...], max_iter: int, plain: int, seed: int) -> None:
    """Print iterations by method, tolerance and scale."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    limits = {"plain": plain, "the engine": max_iter}
    limits = {method: limit for method, limit in limits.items() if limit > 0}
    counts = list(count(graphs, tolerances, limits, seed))
    table = Table(title=f"iterations of {graphs} random graphs")
    for column in ("method", "tol", "scale", "median", "90 %", "99 %", "worst", "not solved"):
        table.add_column(column, justify="right")
    for method, tol in itertools.product(limits, tolerances):
        for scale in (*SCALES, None):
            mine = [
                c for c in counts if (c.method, c.tol) == (method, tol) and scale in (c.scale, None)
            ]
            numbers = np.quantile([c.iterations for c in mine], [0.5, 0.9, 0.99, 1.0])
            table.add_row(
                method,
                f"{tol:g}",
                "all" if scale is None else f"{scale:g}",
                *(f"{x:.0f}" for x in numbers),
                str(sum(not c.solved for c in mine)),
                end_section=scale is None,
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
