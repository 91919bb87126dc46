"""Measure the speed-up of a second thread: ``python benchmarks/threads.py``.

Each run solves a batch with one thread and with more, one right after the other, forward and
backward; the speed-up is the median of the runs' ratios, with the quartiles beside it. The
solutions must be bitwise equal.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import ConvergenceWarning, FactorGraph
from workloads import WORKLOADS


def seconds(make: Callable[[], FactorGraph], threads: int) -> tuple[float, bytes]:
    """Return the time of building, solving and differentiating, and the bytes of the results."""
    start = time.perf_counter()
    solution = make().solve(threads=threads)
    gradient, _ = solution.vjp(2 * solution.values)
    return time.perf_counter() - start, solution.values.tobytes() + gradient.tobytes()


@click.command(context_settings={"show_default": True})
@click.option("--batch", type=int, default=64, help="Instances of a batch.")
@click.option("--threads", type=int, default=2, help="Threads to compare one with.")
@click.option("--runs", type=int, default=15, help="Pairs of runs.")
@click.option("--only", default="", help="Only workloads whose name contains this.")
def main(batch: int, threads: int, runs: int, only: str) -> None:
    """Print the table of speed-ups."""
    table = Table(title=f"batch {batch}, 1 thread against {threads}, {runs} pairs of runs")
    for column in ("workload", "ms an instance", "speed-up", "quartiles", "same bits"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    warnings.simplefilter("ignore", ConvergenceWarning)
    chosen = [w for w in WORKLOADS if only in w.name]
    for workload in track(chosen, description="measuring", console=Console(stderr=True)):
        make = workload.build(batch, np.random.default_rng(0))
        same = seconds(make, 1)[1] == seconds(make, threads)[1]
        times = np.array([[seconds(make, n)[0] for n in (1, threads)] for _ in range(runs)])
        low, median, high = np.quantile(times[:, 0] / times[:, 1], [0.25, 0.5, 0.75])
        table.add_row(
            workload.name,
            f"{1e3 * np.median(times[:, 0]) / batch:.3f}",
            f"{median:.2f}",
            f"{low:.2f} to {high:.2f}",
            "yes" if same else "NO",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
