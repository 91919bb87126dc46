"""Count the iterations that random graphs take.

``python benchmarks/iterations.py`` draws graphs of 2 to 40 factors of all kinds, in the way of the
tests, at score scales from 0.1 to 100, and prints the iterations to several tolerances: the median,
90 % and the worst over all graphs and by scale. A graph counts as its slowest component; graphs
that a limit stopped are counted beside.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from random_graphs import random_graph

SCALES = (0.1, 1.0, 10.0, 100.0)


@click.command(context_settings={"show_default": True})
@click.option("--graphs", type=int, default=1000, help="Number of graphs.")
@click.option(
    "--tol", "tolerances", type=float, multiple=True, default=(1e-6, 1e-9), help="Tolerances."
)
@click.option("--max-iter", type=int, default=20_000, help="Limit of the iterations.")
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
def main(graphs: int, tolerances: tuple[float, ...], max_iter: int, seed: int) -> None:
    """Print iterations by tolerance and scale."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    counts = np.empty((graphs, len(tolerances)), dtype=np.int64)
    solved = np.empty(counts.shape, dtype=bool)
    scales = np.array([SCALES[i % len(SCALES)] for i in range(graphs)])
    for i in track(range(graphs), description="solving", console=Console(stderr=True)):
        rng = np.random.default_rng(seed + i)
        drawn = random_graph(rng, int(rng.integers(2, 41)), float(scales[i]))
        for t, tol in enumerate(tolerances):
            solution = drawn.build()[0].solve(tol=tol, max_iter=max_iter)
            counts[i, t], solved[i, t] = solution.iterations.max(), solution.ok
    table = Table(title=f"iterations of {graphs} random graphs")
    for column in ("tol", "scale", "median", "90 %", "99 %", "worst", "not solved"):
        table.add_column(column, justify="right")
    for t, tol in enumerate(tolerances):
        for scale in (*SCALES, None):
            mine = np.full(graphs, True) if scale is None else scales == scale
            numbers = np.quantile(counts[mine, t], [0.5, 0.9, 0.99, 1.0])
            table.add_row(
                f"{tol:g}",
                "all" if scale is None else f"{scale:g}",
                *(f"{x:.0f}" for x in numbers),
                str(int((~solved[mine, t]).sum())),
                end_section=scale is None,
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
