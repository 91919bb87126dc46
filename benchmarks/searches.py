"""Exact searches of varied graphs at limits of 1, 30 and 300 nodes.

``python benchmarks/searches.py`` prints, for each kind of graph and each limit, milliseconds by the
thread's own time, nodes, how many graphs are proved, and the sum of the scores of those with an
assignment. Half of the scores are small integers, so that many assignments tie.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from lpsmap import (
    Budget,
    Dense,
    DepTree,
    FactorGraph,
    HeadAutomaton,
    Knapsack,
    Matching,
    Pair,
    Sequence,
    Xor,
)
from lpsmap_core import Variables

LIMITS = (1, 30, 300)
SECONDS = 15.0
"""The limit of time, which no graph should reach on an idle machine."""

Draw = Callable[[np.random.Generator, FactorGraph], None]


def variables(rng: np.random.Generator, graph: FactorGraph, *shape: int) -> Variables:
    """Add variables with normal scores, half of the time rounded to integers."""
    scores = 2.0 * rng.normal(size=shape)
    return graph.variable_from(scores.round() if rng.random() < 0.5 else scores)


def pairs(rng: np.random.Generator, n: int, m: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the ends of up to `m` random pairs of `n` variables."""
    ends = np.unique(np.sort(rng.integers(0, n, (m, 2)), axis=1), axis=0)
    first, second = ends[ends[:, 0] < ends[:, 1]].T
    return first, second


def spins(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a grid of pairs of strength 1 or -1."""
    u, n = graph.variable_from(rng.integers(-1, 2, (26, 26)).astype(np.float64)), 26 * 25
    for first, second in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):
        strengths = 2.0 * rng.integers(0, 2, n) - 1.0
        graph.add(Pair(first.reshape(-1), second.reshape(-1), strengths))


def colours(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a graph whose neighbours must have different colours; some have none."""
    u, ends = variables(rng, graph, 60, 4), pairs(rng, 60, 220)
    graph.add(Xor(u))
    graph.add(Dense([u[i] for i in ends], np.where(np.eye(4) > 0.0, -np.inf, 0.0)))


def knapsack(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a knapsack with pairs."""
    u, costs = variables(rng, graph, 60), rng.integers(1, 9, 60).astype(np.float64)
    graph.add(Knapsack(u, costs, costs.sum() / 3.0))
    first, second = pairs(rng, 60, 120)
    graph.add(Pair(u[first], u[second], 2.0 * rng.normal(size=len(first))))


def permutation(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a permutation with pairs."""
    u = variables(rng, graph, 7, 7)
    graph.add(Xor(u))
    graph.add(Xor(u.T))
    first, second = pairs(rng, 49, 150)
    entries = u.reshape(-1)
    graph.add(Pair(entries[first], entries[second], rng.integers(-3, 4, len(first)).astype(float)))


def matching(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a matching with budgets."""
    u = variables(rng, graph, 12, 12)
    graph.add(Matching(u))
    for _ in range(4):
        graph.add(Budget(u[rng.random((12, 12)) < 0.4], 3))


def masked(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a tree or a matching with a budget and a knapsack; a third of the arcs is forbidden."""
    scores = (2.0 * rng.normal(size=(12, 12))).round()
    u = graph.variable_from(np.where(rng.random(scores.shape) < 0.3, -np.inf, scores))
    graph.add(DepTree(u) if rng.random() < 0.5 else Matching(u))
    graph.add(Budget(u, 3, axis=0))
    graph.add(Knapsack(u.reshape(-1), rng.random(144), 3.0))


def infeasible(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw twelve rows that need different columns out of eleven, beside a knapsack."""
    u = variables(rng, graph, 12, 11)
    graph.add(Xor(u))
    graph.add(Budget(u, 1, axis=0))
    graph.add(Knapsack(u.reshape(-1), rng.random(132), 6.0))


def sequences(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a sequence of the rows of a square, and one of its columns."""
    u = variables(rng, graph, 10, 10)
    for view in (u, u.T):
        graph.add(Sequence(view, rng.normal(size=(10, 10))))


def automata(rng: np.random.Generator, graph: FactorGraph) -> None:
    """Draw a knapsack over the modifiers of automata."""
    u, costs = variables(rng, graph, 16, 8), rng.random(128)
    graph.add(Knapsack(u.reshape(-1), costs, costs.sum() / 5.0))
    graph.add(HeadAutomaton(u, rng.normal(size=(16, 9, 9)).round(1)))


KINDS: tuple[Draw, ...] = (
    spins,
    colours,
    knapsack,
    permutation,
    matching,
    masked,
    infeasible,
    sequences,
    automata,
)


def drawn(draw: Draw, seed: int) -> FactorGraph:
    """Return a graph."""
    graph = FactorGraph()
    draw(np.random.default_rng(seed), graph)
    return graph


def row(draw: Draw, max_nodes: int, n_graphs: int) -> list[str]:
    """Return the cells of graphs of a kind at a limit of nodes."""
    seconds, nodes, proved, score = 0.0, 0, 0, 0.0
    for seed in range(n_graphs):
        graph, begin = drawn(draw, seed), time.thread_time()
        options: dict[str, Any] = {"max_nodes": max_nodes, "max_time": SECONDS, "threads": 1}
        found: Any = graph.solve_map(exact=True, solver="lpsmap", **options)
        seconds += time.thread_time() - begin
        nodes, proved = nodes + int(found.n_nodes.sum()), proved + int(found.proved.all())
        score += found.total if found.found.all() else 0.0
    return [f"{1e3 * seconds / n_graphs:.1f}", f"{nodes / n_graphs:.1f}", str(proved), f"{score:g}"]


@click.command()
@click.option("--only", default="", help="Only the kinds whose names contain this.")
@click.option("--graphs", default=8, help="Graphs of each kind.")
def main(only: str, graphs: int) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    table = Table("graphs", "limit of nodes", "ms", "nodes", f"proved of {graphs}", "score")
    for draw in KINDS:
        if only in draw.__name__:
            row(draw, LIMITS[-1], 1)  # loads kernels
            for limit in LIMITS:
                table.add_row(draw.__name__, str(limit), *row(draw, limit, graphs))
    Console().print(table)


if __name__ == "__main__":
    main()
