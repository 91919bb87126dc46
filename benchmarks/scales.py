"""Measure the time of structured factors against the scale of their scores.

``python benchmarks/scales.py`` solves batches of lone factors, whose scores are standard normal
times a scale, and some among constraints. Nearly uniform scores, as an untrained network gives,
have solutions of very many structures. Machines are compared by what ``numpy.sort`` of a million
doubles takes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import AtMostOne, FactorGraph, Sequence, Solution

Declare = Callable[[np.random.Generator, float, int], FactorGraph]

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


def chain(length: int, states: int, constrained: bool = False) -> Declare:
    """Sequences with scores of all additionals, with AtMostOne for every state if asked for."""

    def declare(rng: np.random.Generator, scale: float, batch: int) -> FactorGraph:
        graph = FactorGraph()
        u = graph.variable_from(scale * rng.standard_normal((batch, length, states)))
        steps = scale * rng.standard_normal((batch, length - 1, states, states))
        ends = scale * rng.standard_normal((2, batch, states))
        graph.add(Sequence(u, steps, *ends))
        if constrained:
            graph.add(AtMostOne(u, axis=1))
        return graph

    return declare


CASES: dict[str, Declare] = {
    "Sequence 50x20": chain(50, 20),
    "Sequence 20x10": chain(20, 10),
    "Sequence 14x20 + AtMostOne": chain(14, 20, constrained=True),
}


@dataclass(frozen=True)
class Row:
    """What was measured of a case at a scale."""

    case: str
    scale: float
    milliseconds: float
    solved: float
    gap: float


def measure(case: str, scale: float, batch: int, threads: int, repeats: int) -> Row:
    """Return the median time an instance of several solves, the first one left out."""
    graph = CASES[case](np.random.default_rng(0), scale, batch)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        solution: Solution = graph.solve(threads=threads)
        seconds.append(time.perf_counter() - start)
    solved = np.mean([status.name == "SOLVED" for status in solution.status])
    gap = float(np.max(solution.gap))
    return Row(case, scale, 1e3 * float(np.median(seconds[1:])) / batch, float(solved), gap)


def sort_time() -> float:
    """Return the milliseconds that sorting a million doubles takes here."""
    numbers, best = np.random.default_rng(0).random(10**6), np.inf
    for _ in range(5):
        start = time.perf_counter()
        np.sort(numbers)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def draw(rows: list[Row], path: Path) -> None:
    """Draw time against scale, a line for each case."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(layout="constrained")
    for case in dict.fromkeys(row.case for row in rows):
        own = [row for row in rows if row.case == case]
        axes.loglog([r.scale for r in own], [r.milliseconds for r in own], "o-", label=case)
    axes.set_xlabel("scale of the scores")
    axes.set_ylabel("ms an instance")
    axes.legend()
    figure.savefig(path)


@click.command(context_settings={"show_default": True})
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), default=list(CASES))
@click.option("--scale", "scales", multiple=True, type=float, default=SCALES)
@click.option("--batch", type=int, default=16, help="Instances.")
@click.option("--threads", type=int, default=2, help="Threads.")
@click.option("--repeats", type=int, default=3, help="Solves, of which the median counts.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw a figure.")
def main(
    cases: tuple[str, ...],
    scales: tuple[float, ...],
    batch: int,
    threads: int,
    repeats: int,
    plot: Path | None,
) -> None:
    """Print the table of times."""
    warnings.simplefilter("ignore")
    asked = [(case, scale) for case in cases for scale in scales]
    rows = [measure(*one, batch, threads, repeats) for one in track(asked, transient=True)]
    table = Table("case", "scale", "ms", "solved", "gap")
    for row in rows:
        number = f"{row.milliseconds:.3g}"
        table.add_row(row.case, f"{row.scale:g}", number, f"{row.solved:.0%}", f"{row.gap:.0e}")
    Console().print(table)
    Console().print(f"numpy.sort of a million doubles: {sort_time():.1f} ms")
    if plot is not None:
        draw(rows, plot)


if __name__ == "__main__":
    main()
