"""Measure time and memory of one graph, a single component, of up to ten million links.

``python benchmarks/scale.py`` solves a table of numbers of which each row has exactly one on (Xor)
and each column few (Budget), to 1e-6. Each size runs in a separate process, whose peak resident
memory is compared with that before building the graph and its scores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import Budget, FactorGraph, Solution, Xor

COLUMNS = 100


def solve(links: int, threads: int) -> Solution:
    """Solve a table with about the given number of links, two for every entry."""
    rows = links // (2 * COLUMNS)
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((rows, COLUMNS)))
    graph.add(Xor(u))
    graph.add(Budget(u, 2 * rows // COLUMNS, axis=0))
    return graph.solve(threads=threads)


def memory(field: str) -> int:
    """Return a field of this process's memory in bytes: resident now, or at its peak (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def measure(links: int, threads: int) -> None:
    """Print links, seconds, iterations, bytes and whether it was solved."""
    solve(2 * COLUMNS * COLUMNS, threads)  # loads kernels
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that of now
    before, start = memory("VmRSS"), time.perf_counter()
    solution = solve(links, threads)
    seconds = time.perf_counter() - start
    print(links, seconds, solution.iterations.max(), memory("VmHWM") - before, int(solution.ok))


@click.command(context_settings={"show_default": True})
@click.option("--links", type=int, multiple=True, default=(10**5, 10**6, 10**7), help="Sizes.")
@click.option(
    "--threads", type=int, default=2, help="Threads; a single component has work for one."
)
@click.option("--alone", type=int, default=0, hidden=True)
def main(links: tuple[int, ...], threads: int, alone: int) -> None:
    """Print the table of sizes."""
    if alone:
        measure(alone, threads)
        return
    table = Table(title="one component, to 1e-6")
    for column in ("links", "seconds", "iterations", "ns a link and iteration", "bytes a link"):
        table.add_column(column, justify="right")
    for size in track(links, description="solving", console=Console(stderr=True)):
        command = [sys.executable, __file__, "--alone", str(size), "--threads", str(threads)]
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
