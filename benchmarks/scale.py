"""Measure time and memory of one graph, a single component, of up to ten million links.

``python benchmarks/scale.py`` solves a table of numbers of which each row has exactly one on (Xor)
and each column few (Budget), to 1e-6. ``--model potts --links 3184000`` solves a grid of 200 x 200
variables of 20 states with one strength for all edges, and ``--model dense`` one with a table; the
loop's own numbers, two local scores or solutions and a dual, take 24 bytes a link of it. Each size
runs in a separate process, whose peak resident memory is compared with that before building the
graph and its scores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import Budget, Dense, FactorGraph, Potts, Variables, Xor

COLUMNS, STATES = 100, 20


def rows_and_columns(links: int) -> FactorGraph:
    """Return a table with about the given number of links, two for every entry."""
    rows = links // (2 * COLUMNS)
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((rows, COLUMNS)))
    graph.add(Xor(u))
    graph.add(Budget(u, 2 * rows // COLUMNS, axis=0))
    return graph


def grid(links: int, edges: Callable[[Variables, Variables], Potts | Dense]) -> FactorGraph:
    """Return a square grid with about the given number of links, ``2 * STATES`` for every edge."""
    side = round((links / (4 * STATES)) ** 0.5 + 0.5)
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((side, side, STATES)))
    graph.add(edges(u[:, :-1], u[:, 1:]))
    graph.add(edges(u[:-1], u[1:]))
    return graph


SCORES = np.random.default_rng(1).standard_normal((STATES, STATES))
MODELS: dict[str, Callable[[int], FactorGraph]] = {
    "table": rows_and_columns,
    "potts": lambda links: grid(links, lambda x, y: Potts(x, y, 0.5)),
    "dense": lambda links: grid(links, lambda x, y: Dense([x, y], SCORES)),
}


def memory(field: str) -> int:
    """Return a field of this process's memory in bytes: resident now, or at its peak (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def measure(model: str, verb: str, links: int, threads: int, max_iter: int) -> None:
    """Print links, seconds, iterations, bytes and whether it was solved."""

    def solve(size: int) -> tuple[int, bool]:
        solution = getattr(MODELS[model](size), verb)(threads=threads, max_iter=max_iter)
        return solution.iterations.max(), solution.ok

    solve(2 * COLUMNS * COLUMNS)  # loads kernels
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that of now
    before, start = memory("VmRSS"), time.perf_counter()
    iterations, ok = solve(links)
    seconds = time.perf_counter() - start
    print(links, seconds, iterations, memory("VmHWM") - before, int(ok))


@click.command(context_settings={"show_default": True})
@click.option("--links", type=int, multiple=True, default=(10**5, 10**6, 10**7), help="Sizes.")
@click.option("--model", type=click.Choice(list(MODELS)), default="table", help="The graph.")
@click.option("--verb", type=click.Choice(["solve", "solve_map"]), default="solve", help="Verb.")
@click.option("--max-iter", type=int, default=1000, help="Maximum number of iterations.")
@click.option(
    "--threads", type=int, default=2, help="Threads; a single component has work for one."
)
@click.option("--alone", type=int, default=0, hidden=True)
def main(
    links: tuple[int, ...], model: str, verb: str, max_iter: int, threads: int, alone: int
) -> None:
    """Print the table of sizes."""
    if alone:
        measure(model, verb, alone, threads, max_iter)
        return
    table = Table(title=f"one component ({model}, {verb}), to 1e-6")
    for column in ("links", "seconds", "iterations", "ns a link and iteration", "bytes a link"):
        table.add_column(column, justify="right")
    given = f"--model {model} --verb {verb} --max-iter {max_iter} --threads {threads}".split()
    for size in track(links, description="solving", console=Console(stderr=True)):
        command = [sys.executable, __file__, *given, "--alone", str(size)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        n, seconds, iterations, peak, ok = map(float, printed.split())
        each = 1e9 * seconds / n / iterations
        cells = [
            f"{n:,.0f}",
            f"{seconds:.2f}",
            f"{iterations:.0f}",
            f"{each:.1f}",
            f"{peak / n:.0f}",
        ]
        table.add_row(*cells, style=None if ok else "red")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
