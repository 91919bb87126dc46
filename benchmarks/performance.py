"""Measure time against batch, size and threads, and memory against size; write the page's table.

``python benchmarks/performance.py --save`` writes the JSON record, the tables and the figure of
the page on performance. A solve builds the graph, solves to 1e-6, and multiplies a vector by the
Jacobian, as a step of training does. Times are milliseconds an instance: medians of processor times
with one thread, and for the gain of more threads the shortest times by the wall, taken in turns.
Scores are standard normal. The memory is that of one component; see ``benchmarks/scale.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track

import scale
from measured import DOCS, markdown, origin
from workloads import Build, matching, sequence, tree

SIZES: dict[str, tuple[Callable[[int], Build], tuple[int, ...], int]] = {
    "matching n x n": (lambda n: matching(n, n), (5, 10, 20, 40), 10),
    "tree of n words": (lambda n: tree(n, None), (10, 20, 40, 80), 20),
    "tree with budgets": (lambda n: tree(n, 5), (10, 20, 40, 80), 20),
    "sequence of n, 20 tags": (lambda n: sequence(n, 20, False), (10, 20, 40, 80), 40),
}
"""Workloads by size, their sizes, and the size for batches and threads."""

BATCHES = (1, 4, 16, 64, 256)
BATCH, MANY = 16, 256
LINKS = (10**5, 10**6, 10**7)
SHORTEST, TURNS = 0.2, 15
"""Minimum seconds of all timed solves of a cell, and number of turns of threads."""

Record = dict[str, Any]


def solver(build: Build, batch: int, threads: int) -> Callable[[], None]:
    """Return a function that solves a batch and multiplies by its Jacobian, called once already."""
    make = build(batch, np.random.default_rng(0))

    def solve() -> None:
        solution = make().solve(threads=threads)
        solution.vjp(2 * solution.values)

    solve()  # compiles or loads kernels
    return solve


def seconds(solve: Callable[[], None], clock: Callable[[], float]) -> float:
    """Return the seconds of a call."""
    begin = clock()
    solve()
    return clock() - begin


def milliseconds(build: Build, batch: int) -> float:
    """Return the median processor time of an instance with one thread."""
    solve, times = solver(build, batch, 1), []
    while len(times) < 3 or sum(times) < SHORTEST:
        times.append(seconds(solve, time.process_time))
    return 1e3 * float(np.median(times)) / batch


def gains(build: Build, threads: int) -> list[float]:
    """Return how many times faster a batch is with 2, 3 and more threads."""
    solvers = [solver(build, MANY, n) for n in range(1, threads + 1)]
    times = [[seconds(solve, time.perf_counter) for solve in solvers] for _ in range(TURNS)]
    first, *others = np.min(times, axis=0).tolist()
    return [first / other for other in others]


def memory(links: int) -> Record:
    """Return seconds and bytes a link of one component, solved in a separate process."""
    command = [sys.executable, scale.__file__, "--alone", str(links), "--threads", "1"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    n, seconds, iterations, peak, ok = map(float, printed.split())
    return {
        "links": int(n),
        "seconds": seconds,
        "iterations": int(iterations),
        "bytes": peak / n,
        "solved": bool(ok),
    }


def measure(threads: int) -> Record:
    """Return all measurements."""
    console = Console(stderr=True)
    record: Record = {"batch": {}, "size": {}, "threads": {}, "memory": []}
    for name, (make, sizes, middle) in track(SIZES.items(), "workloads", console=console):
        record["batch"][name] = [milliseconds(make(middle), b) for b in BATCHES]
        record["size"][name] = [milliseconds(make(n), BATCH) for n in sizes]
        record["threads"][name] = gains(make(middle), threads)
    record["memory"] = [memory(links) for links in track(LINKS, "memory", console=console)]
    return record


def tables(record: Record) -> str:
    """Return the tables of a record as Markdown."""
    batches, sizes, threads = [], [], []
    for name, (_, tried, middle) in SIZES.items():
        cells = zip(BATCHES, record["batch"][name], strict=True)
        workload = {"workload": f"{name}, n = {middle}"}
        batches.append(workload | {str(batch): f"{x:.3g}" for batch, x in cells})
        gained = enumerate(record["threads"][name], 2)
        threads.append(workload | {f"{n} threads": f"{gain:.2f}" for n, gain in gained})
        cells = zip(tried, record["size"][name], strict=True)
        sizes.append({"workload": name} | {f"n = {n}": f"{x:.3g}" for n, x in cells})
    large = [
        {
            "links": f"{row['links']:,}",
            "seconds": f"{row['seconds']:.2f}",
            "iterations": str(row["iterations"]),
            "bytes a link": f"{row['bytes']:.0f}",
        }
        for row in record["memory"]
    ]
    return (
        "Milliseconds an instance against the size of the batch, one thread:\n\n"
        f"{markdown(batches)}\nAgainst the size of the problem, batches of {BATCH}, one thread:\n\n"
        f"{markdown(sizes)}\nTimes faster with more threads, batches of {MANY}:\n\n"
        f"{markdown(threads)}\nOne component, a table with `Xor` rows and `Budget` columns:\n\n"
        f"{markdown(large)}"
    )


def draw(record: Record, path: Path) -> None:
    """Draw time against batch and against size."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
    for (name, (_, sizes, _)), colour in zip(SIZES.items(), colours, strict=True):
        axes[0].loglog(BATCHES, record["batch"][name], "o-", color=colour)
        axes[1].loglog(sizes, record["size"][name], "o-", color=colour, label=name)
    axes[0].set(
        xlabel="batch",
        ylabel="ms an instance",
        title="the table's sizes",
        xticks=BATCHES,
        xticklabels=BATCHES,
    )
    ticks = (5, 10, 20, 40, 80)
    axes[1].set(xlabel="n", title=f"batches of {BATCH}", xticks=ticks, xticklabels=ticks)
    for ax in axes:
        ax.minorticks_off()
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--threads", type=click.IntRange(1), default=2, help="Most threads.")
@click.option("--save", is_flag=True, help="Write what the documentation includes.")
def main(threads: int, save: bool) -> None:
    """Print the tables of times and memory."""
    warnings.simplefilter("ignore")
    record = measure(threads)
    text = tables(record)
    click.echo(text)
    if save:
        (DOCS / "performance.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        (DOCS / "performance.md").write_text(f"{text}\n{origin('numba')}", "utf-8")
        draw(record, DOCS.parent / "images" / "performance.png")


if __name__ == "__main__":
    main()
