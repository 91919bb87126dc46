"""Count the iterations of solves of random graphs.

``python benchmarks/iterations.py`` draws graphs of 2 to 40 factors of all kinds, in the way of the
tests, at score scales from 0.1 to 100, and prints the iterations to several tolerances: the
geometric mean, the median, 90 % and the worst over all graphs and by scale. The count of a graph is
that of its slowest component; graphs stopped by a limit are counted separately. ``--plain 5000``
adds plain ADMM with this iteration limit: a fixed step size in proportion to the scores, without
polish and acceleration. ``--linear`` solves LP-MAP. ``--large`` draws graphs of all types at 30 a
side, with bounds on the sums of columns, at scales up to 1,000.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import AtMostOne, Budget, ConvergenceWarning, FactorGraph, Potts

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from random_graphs import random_graph
from sweep_cases import KINDS

SCALES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Scales of the scores; those of random graphs are the first four."""

SIDE = 30
"""Size of large graphs."""

LARGE = [kind for kind in KINDS if kind != "DMVTree"]
"""Types of large graphs; a hypergraph of `DMVTree` takes long to build."""

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


def draw_random(seed: int) -> tuple[float, FactorGraph]:
    """Return the scale of a random graph, and the graph."""
    rng, scale = np.random.default_rng(seed), SCALES[seed % 4]
    return scale, random_graph(rng, int(rng.integers(2, 41)), scale).build()[0]


def draw_large(seed: int) -> tuple[float, FactorGraph]:
    """Return the scale of a large graph, and the graph."""
    rng, scale, graph = np.random.default_rng(seed), SCALES[seed % len(SCALES)], FactorGraph()
    kind = KINDS[name := LARGE[seed // len(SCALES) % len(LARGE)]]

    def draw(*shape: int) -> Any:
        return scale * rng.standard_normal(shape)

    u = graph.variable_from(draw(*kind.shape(SIDE)))
    graph.add(kind.make(u, draw))
    columns = u.reshape(len(u), -1)
    if name in ("Dense", "Potts"):  # a grid
        graph.add(Potts(u[:-1], u[1:], draw(len(u) - 1, u.shape[1])))
    elif kind.column == 1:
        graph.add(AtMostOne(columns, axis=0))
    else:
        graph.add(Budget(columns, len(u) // 2 + 1, axis=0))
    return scale, graph


def count(
    draw: Callable[[int], tuple[float, FactorGraph]],
    seeds: range,
    tolerances: tuple[float, ...],
    limits: dict[str, int],
    linear: bool,
) -> Iterator[Count]:
    """Solve graphs by every method with a limit, to every tolerance."""
    for seed in track(seeds, description="solving", console=Console(stderr=True)):
        for method, limit in limits.items():
            for tol in tolerances:
                scale, graph = draw(seed)
                solve = graph.solve_map if linear else graph.solve
                solution = solve(tol=tol, max_iter=limit, threads=1, **METHODS[method])
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
@click.option("--linear", is_flag=True, help="Solve LP-MAP.")
@click.option("--large", is_flag=True, help="Draw large graphs of each type.")
def main(
    graphs: int,
    tolerances: tuple[float, ...],
    max_iter: int,
    plain: int,
    seed: int,
    linear: bool,
    large: bool,
) -> None:
    """Print iterations by method, tolerance and scale."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    limits = {"plain": plain, "the engine": max_iter}
    limits = {method: limit for method, limit in limits.items() if limit > 0}
    draw, seeds = draw_large if large else draw_random, range(seed, seed + graphs)
    counts = list(count(draw, seeds, tolerances, limits, linear))
    table = Table(title=f"iterations of {graphs} {'large' if large else 'random'} graphs")
    columns = "method", "tol", "scale", "mean", "median", "90 %", "99 %", "worst", "not solved"
    for column in columns:
        table.add_column(column, justify="right")
    for method, tol in itertools.product(limits, tolerances):
        for scale in (*dict.fromkeys(sorted(c.scale for c in counts)), None):
            mine = [
                c for c in counts if (c.method, c.tol) == (method, tol) and scale in (c.scale, None)
            ]
            iterations = np.array([c.iterations for c in mine])
            numbers = np.quantile(iterations, [0.5, 0.9, 0.99, 1.0])
            table.add_row(
                method,
                f"{tol:g}",
                "all" if scale is None else f"{scale:g}",
                f"{np.exp(np.log(np.maximum(iterations, 1)).mean()):.1f}",
                *(f"{x:.0f}" for x in numbers),
                str(sum(not c.solved for c in mine)),
                end_section=scale is None,
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
