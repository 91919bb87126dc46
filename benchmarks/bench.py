"""Measure every workload against the earlier library's times.

``python benchmarks/bench.py`` prints, for every workload and batch size, milliseconds an instance
of building and solving the graph (forward), of the backward pass, and the ratio of the earlier
library's time to ours; then the ratio to ours at other tolerances, its time still to 1e-6. Times
on a shared machine mean little by themselves, so every measurement lies between two runs of the
calibration, a sort of a million numbers, and the reference is scaled by their mean.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import ConvergenceWarning
from workloads import REFERENCE_SORT, WORKLOADS, Workload

SHORTEST_RUN = 0.05
"""Minimum seconds of a run of repeated solves, as in training: the preceding calibration evicts the
caches."""


@dataclass(frozen=True)
class Measurement:
    """Medians over runs, in milliseconds per instance."""

    forward: float
    backward: float
    ratio: float
    iterations: int
    solved: bool


class Calibration:
    """The sort that every time is scaled by."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(0).standard_normal(1_000_000)

    def milliseconds(self) -> float:
        """Return the current time of one sort."""
        return 1e3 * seconds(lambda: np.sort(self.numbers))


def seconds(function: Callable[[], object]) -> float:
    """Return the duration of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(
    workload: Workload, batch: int, tol: float, threads: int, runs: int, sort: Calibration
) -> Measurement:
    """Run a workload repeatedly, each time between two calibrations, and return medians."""
    make = workload.build(batch, np.random.default_rng(0))
    repeats, forward, backward, ratios = 1, [], [], []
    for run in range(runs + 2):
        before, there, back = sort.milliseconds(), 0.0, 0.0
        for _ in range(repeats):
            start = time.perf_counter()
            solution = make().solve(tol=tol, threads=threads)
            middle = time.perf_counter()
            solution.vjp(2 * solution.values)
            there += middle - start
            back += time.perf_counter() - middle
        machine = 0.5 * (before + sort.milliseconds()) / REFERENCE_SORT
        if run < 2:  # the first run compiles or loads kernels
            repeats = max(1, round(SHORTEST_RUN * repeats / (there + back)))
            continue
        forward.append(1e3 * there / (repeats * batch))
        backward.append(1e3 * back / (repeats * batch))
        ratios.append(workload.reference * machine / (forward[-1] + backward[-1]))
    return Measurement(
        float(np.median(forward)),
        float(np.median(backward)),
        float(np.median(ratios)),
        int(solution.iterations.max()),
        solution.ok,
    )


@click.command(context_settings={"show_default": True})
@click.option(
    "--batch",
    "batches",
    type=int,
    multiple=True,
    help="Batch sizes, instead of those that the workloads are met with.",
)
@click.option(
    "--tol",
    "tols",
    type=float,
    multiple=True,
    default=(1e-6, 1e-9),
    help="Tolerances of the solves.",
)
@click.option("--threads", type=int, default=2, help="Threads that a solve may use.")
@click.option("--runs", type=int, default=5, help="Runs to take the medians of.")
@click.option("--only", default="", help="Only workloads whose name contains this.")
def main(
    batches: tuple[int, ...], tols: tuple[float, ...], threads: int, runs: int, only: str
) -> None:
    """Print the table of workloads."""
    sort = Calibration()
    chosen = [w for w in WORKLOADS if only in w.name]
    table = Table(title=f"to {tols[0]:g}, {threads} threads, medians of {runs} runs")
    others = [f"to {tol:g}" for tol in tols[1:]]
    for column in (
        "workload",
        "batch",
        "forward ms",
        "backward ms",
        "iterations",
        "ratio",
        *others,
    ):
        table.add_column(column, justify="left" if column == "workload" else "right")
    cases = [(w, batch) for w in chosen for batch in batches or w.batches]
    warnings.simplefilter("ignore", ConvergenceWarning)
    for workload, batch in track(cases, description="measuring", console=Console(stderr=True)):
        found = [measure(workload, batch, tol, threads, runs, sort) for tol in tols]
        m = found[0]
        table.add_row(
            workload.name,
            str(batch),
            f"{m.forward:.3f}",
            f"{m.backward:.3f}",
            str(m.iterations),
            *(f"{each.ratio:.1f}" if each.solved else "not solved" for each in found),
        )
    console = Console(width=100)
    console.print(table)
    now = float(np.median([sort.milliseconds() for _ in range(5)]))
    console.print(f"calibration: {now:.1f} ms here, {REFERENCE_SORT} ms on the reference machine")
    console.print("ratio: the earlier library's forward + backward, scaled, over ours")


if __name__ == "__main__":
    main()
