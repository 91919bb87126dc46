"""Find best assignments of generated graphs, with a proof, beside other solvers.

``python benchmarks/solvers.py`` prints processor times of the search on one thread, in
milliseconds, medians over instances; ``>`` where one was not proved in time, and ``-`` where a
solver does not take the graph. ``pip install highspy pytoulbar2 ortools`` brings the others, and
``examples/plugins/lpsmap-cpsat`` the programs of CP-SAT. `map_models` reads models from files.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from lpsmap import AtMostOne, FactorGraph, Knapsack, Pair, Potts, Sequence, Xor
from map_peers import ENOUGH, PEERS
from measured import DOCS, markdown, origin

Draw = np.random.Generator


def spin_glass(rng: Draw) -> FactorGraph:
    """Return a grid of 8 x 8 binary variables with pairs of either sign."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((8, 8)))
    graph.add(Pair(u[:, :-1], u[:, 1:], 2.0 * rng.standard_normal((8, 7))))
    graph.add(Pair(u[:-1], u[1:], 2.0 * rng.standard_normal((7, 8))))
    return graph


def image(rng: Draw) -> FactorGraph:
    """Return a grid of 12 x 12 variables of three states that are alike."""
    graph = FactorGraph()
    x = graph.variable_from(rng.standard_normal((12, 12, 3)))
    graph.add(Potts(x[:, :-1], x[:, 1:], 0.5))
    graph.add(Potts(x[:-1], x[1:], 0.5))
    return graph


def matching(rng: Draw) -> FactorGraph:
    """Return a matching of 20 rows and 30 columns."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((20, 30)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    return graph


def capacities(rng: Draw) -> FactorGraph:
    """Return an assignment of 20 tasks to 4 workers, of limited hours."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((20, 4)))
    hours = rng.integers(1, 10, 20)
    graph.add(Xor(u))
    for worker in range(4):
        graph.add(Knapsack(u[:, worker], hours, 0.3 * float(hours.sum())))
    return graph


def tagging(rng: Draw) -> FactorGraph:
    """Return a sequence of 20 words and 8 tags, of which four tags occur at most once."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((20, 8)))
    graph.add(Sequence(u, rng.standard_normal((8, 8))))
    graph.add(AtMostOne(u[:, :4], axis=0))
    return graph


GRAPHS: dict[str, Callable[[Draw], FactorGraph]] = {
    "spin glass, 8 x 8": spin_glass,
    "image of 12 x 12, 3 labels": image,
    "matching, 20 x 30": matching,
    "20 tasks, 4 workers, capacities": capacities,
    "20 words, 8 tags, 4 at most once": tagging,
}


def own_time(graph: FactorGraph, max_time: float) -> str:
    """Return the milliseconds of this library's own search."""
    begin, solved, n = time.process_time(), True, 0
    while n == 0 or time.process_time() - begin < ENOUGH:
        found = graph.solve_map(exact=True, solver="lpsmap", threads=1, max_time=max_time)
        solved, n = solved and found.ok, n + 1
    return f"{'' if solved else '>'}{1e3 * (time.process_time() - begin) / n:.2f}"


def median(cells: list[str]) -> str:
    """Return the median of the times in cells."""
    if "-" in cells:
        return "-"
    late = ">" if any(cell.startswith(">") for cell in cells) else ""
    return f"{late}{np.median([float(cell.lstrip('>')) for cell in cells]):.3g}"


@click.command(context_settings={"show_default": True})
@click.option("--instances", type=click.IntRange(min=1), default=5, help="Graphs of each kind.")
@click.option("--max-time", type=float, default=10.0, help="Seconds for each search.")
@click.option("--save", is_flag=True, help="Write the table that the documentation includes.")
def main(instances: int, max_time: float, save: bool) -> None:
    """Print the table of searches."""
    warnings.simplefilter("ignore")
    solvers = {"lpsmap": own_time} | {n: p for n, p in PEERS.items() if n.split()[-1] != "LP"}
    rows = []
    for name, make in track(GRAPHS.items(), "graphs", console=Console(stderr=True)):
        own_time(make(np.random.default_rng(instances)), max_time)  # compiles or loads kernels
        graphs = [make(np.random.default_rng(seed)) for seed in range(instances)]
        times = {s: median([solve(g, max_time) for g in graphs]) for s, solve in solvers.items()}
        rows.append({"milliseconds of": name} | times)
    text = markdown(rows)
    click.echo(text)
    if save:
        said = origin("highspy", "pytoulbar2", "ortools")
        (DOCS / "solvers.md").write_text(f"{text}\n{said}", encoding="utf-8")
        (DOCS / "solvers.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
