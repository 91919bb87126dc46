"""Measure the time of structured factors against the scale of their scores.

``python benchmarks/scales.py`` solves batches of lone factors, whose scores are standard normal
times a scale, and some among constraints. Nearly uniform scores, as of an untrained network, have
solutions with very many structures. Times are processor times, or wall times with several threads;
the time of ``numpy.sort`` of a million doubles calibrates machines. ``--save`` writes the rows, and
``--before`` compares two versions in one figure.
"""

from __future__ import annotations

import dataclasses
import json
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

from lpsmap import (
    Alignment,
    AtMostOne,
    BinaryTree,
    Budget,
    DepTree,
    FactorGraph,
    HeadAutomaton,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    Solution,
    Xor,
)

Draw = Callable[..., np.ndarray]
Declare = Callable[[Draw, FactorGraph, int], object]
"""Declares a batch of factors, whose scores are drawn by shape."""

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


def chain(length: int, states: int, constrained: bool = False) -> Declare:
    """Sequences with scores of all additionals, with AtMostOne for every state if requested."""

    def declare(draw: Draw, graph: FactorGraph, batch: int) -> None:
        u = graph.variable_from(draw(batch, length, states))
        steps = draw(batch, length - 1, states, states)
        graph.add(Sequence(u, steps, *draw(2, batch, states)))
        if constrained:
            graph.add(AtMostOne(u, axis=1))

    return declare


def projective(n: int, constrained: bool = False) -> Declare:
    """Projective trees, with at most three dependents of every head if requested."""

    def declare(draw: Draw, graph: FactorGraph, batch: int) -> None:
        u = graph.variable_from(draw(batch, n, n))
        graph.add(DepTree(u, projective=True))
        if constrained:
            graph.add(Budget(u, 3, axis=-2))

    return declare


def matching(rows: int, columns: int) -> Declare:
    """Matchings: one column for each row, and at most one row for each column."""

    def declare(draw: Draw, graph: FactorGraph, batch: int) -> None:
        u = graph.variable_from(draw(batch, rows, columns))
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))

    return declare


CASES: dict[str, Declare] = {
    "matching 30x40": matching(30, 40),
    "matching 200x250": matching(200, 250),
    "matching 400x500": matching(400, 500),
    "Sequence 50x20": chain(50, 20),
    "Sequence 20x10": chain(20, 10),
    "Sequence 14x20 + AtMostOne": chain(14, 20, constrained=True),
    "projective tree n=20": projective(20),
    "projective tree n=50": projective(50),
    "projective tree n=75": projective(75),
    "projective tree n=30 + Budget": projective(30, constrained=True),
    "BinaryTree n=30": lambda draw, graph, b: graph.add(
        BinaryTree(graph.variable_from(draw(b, 30, 30)))
    ),
    "Alignment 30x30": lambda draw, graph, b: graph.add(
        Alignment(graph.variable_from(draw(b, 30, 30)))
    ),
    "HeadAutomaton 30": lambda draw, graph, b: graph.add(
        HeadAutomaton(graph.variable_from(draw(b, 30)), draw(b, 31, 31))
    ),
    "SemiMarkov 30x5x5": lambda draw, graph, b: graph.add(
        SemiMarkov(graph.variable_from(draw(b, 30, 5, 5)), draw(b, 5, 5))
    ),
    "SequenceBudget 30x5": lambda draw, graph, b: graph.add(
        SequenceBudget(graph.variable_from(draw(b, 30, 5)), draw(b, 29, 5, 5), 8)
    ),
    "SequenceDistance 30x10": lambda draw, graph, b: graph.add(
        SequenceDistance(graph.variable_from(draw(b, 30, 10)), draw(b, 7))
    ),
}


@dataclass(frozen=True)
class Row:
    """The measurements of a case at a scale."""

    case: str
    scale: float
    milliseconds: float
    solved: float
    gap: float


def measure(
    case: str, scale: float, batch: int, threads: int, repeats: int, verb: str = "solve"
) -> Row:
    """Return the minimum time per instance of several solves, without the first."""
    clock = time.process_time if threads == 1 else time.perf_counter
    rng, graph = np.random.default_rng(0), FactorGraph()
    CASES[case](lambda *shape: scale * rng.standard_normal(shape), graph, batch)
    seconds = []
    for _ in range(repeats + 1):
        start = clock()
        solution: Solution = getattr(graph, verb)(threads=threads)
        seconds.append(clock() - start)
    solved = np.mean([status.name == "SOLVED" for status in solution.status])
    gap = float(np.max(solution.gap))
    return Row(case, scale, 1e3 * min(seconds[1:]) / batch, float(solved), gap)


def sort_time() -> float:
    """Return the milliseconds that sorting a million doubles takes here."""
    numbers, best = np.random.default_rng(0).random(10**6), np.inf
    for _ in range(5):
        start = time.process_time()
        np.sort(numbers)
        best = min(best, time.process_time() - start)
    return 1e3 * best


def draw_figure(rows: list[Row], before: list[Row], path: Path) -> None:
    """Draw time against scale, a panel for each case; hollow where not all are solved exactly."""
    import matplotlib.pyplot as plt

    cases = list(dict.fromkeys(row.case for row in rows))
    columns = min(4, len(cases))
    shape = -(-len(cases) // columns), columns
    size = 3.2 * columns, 2.6 * shape[0]
    figure, grid = plt.subplots(
        *shape, figsize=size, layout="constrained", sharex=True, squeeze=False
    )
    for axes, case in zip(grid.flat, cases, strict=False):
        for label, colour, some in (("before", "0.6", before), ("now", "C0", rows)):
            own = [row for row in some if row.case == case]
            x, y = [row.scale for row in own], [row.milliseconds for row in own]
            axes.loglog(x, y, color=colour, label=label if own else None)
            for row in own:
                face = colour if row.solved == 1.0 else "white"
                axes.plot(row.scale, row.milliseconds, "o", color=colour, mfc=face, ms=5)
        axes.set_title(case, fontsize=9)
        axes.tick_params(labelbottom=True, labelsize=8)
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    grid[0, 0].legend(fontsize=8)
    figure.supxlabel("scale of the scores", fontsize=9)
    figure.supylabel("ms an instance", fontsize=9)
    figure.savefig(path, dpi=110)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of an earlier run."""
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), default=list(CASES))
@click.option("--scale", "scales", multiple=True, type=float, default=SCALES)
@click.option("--batch", type=int, default=16, help="Instances.")
@click.option("--threads", type=int, default=1, help="Threads.")
@click.option("--repeats", type=int, default=3, help="Solves, of which the fastest counts.")
@click.option("--verb", type=click.Choice(["solve", "solve_map"]), default="solve")
@click.option("--save", type=FILE, help="Add the rows to this file, and measure none that it has.")
@click.option("--before", type=FILE, help="Rows that another version saved, for the figure.")
@click.option("--plot", type=FILE, help="Draw a figure.")
def main(
    cases: tuple[str, ...],
    scales: tuple[float, ...],
    batch: int,
    threads: int,
    repeats: int,
    verb: str,
    save: Path | None,
    before: Path | None,
    plot: Path | None,
) -> None:
    """Print the table of times."""
    warnings.simplefilter("ignore")
    rows = read_rows(save) if save is not None and save.exists() else []
    known = {(row.case, row.scale) for row in rows}
    asked = [(case, scale) for case in cases for scale in scales if (case, scale) not in known]
    for one in track(asked, transient=True):
        rows.append(measure(*one, batch, threads, repeats, verb))
        if save is not None:
            with save.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(rows[-1])) + "\n")
    table = Table("case", "scale", "ms", "solved", "gap")
    for row in rows:
        number = f"{row.milliseconds:.3g}"
        table.add_row(row.case, f"{row.scale:g}", number, f"{row.solved:.0%}", f"{row.gap:.0e}")
    Console().print(table)
    Console().print(f"numpy.sort of a million doubles: {sort_time():.1f} ms")
    if plot is not None:
        draw_figure(rows, read_rows(before) if before is not None else [], plot)


if __name__ == "__main__":
    main()
