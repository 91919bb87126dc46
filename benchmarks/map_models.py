"""LP-MAP and exact search on models of inference competitions and of AD3's users.

``python benchmarks/map_models.py FOLDER`` reads every ``.uai`` and ``.fg`` model below a folder,
with any evidence, and prints the results of the relaxation and the search: scores, bounds,
processor times on one thread, nodes; and the times of HiGHS, CP-SAT, toulbar2 and AD3, where they
are installed, on the same programs and networks. Compare them with the folder's notes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap_decode import FileFormatError
from lpsmap_decode.formats.files import read_evidence, read_graph
from map_peers import PEERS

SUFFIXES = (".uai", ".uai.gz", ".fg", ".fg.gz")

LONG, ENOUGH = 3.0, 0.1
"""Seconds above which a call is made only twice, and minimum seconds of all calls together."""


def graph_of(path: Path) -> Any:
    """Return the graph of a model, given its evidence."""
    named = read_graph(path)
    evidence = path.with_name(path.name.removesuffix(".gz") + ".evid")
    if not evidence.exists():
        return named.graph
    return named.graph.condition(read_evidence(evidence, named, path)).graph


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its processor time in milliseconds.

    The first call may compile or load kernels and is not counted. Short calls are repeated to allow
    for the resolution of the clock.
    """
    for _ in range(2):
        begin = time.process_time()
        found = call()
        seconds = time.process_time() - begin
        if seconds < LONG:
            break
    else:
        return found, 1e3 * seconds
    begin, n, seconds = time.process_time(), 0, 0.0
    while seconds < ENOUGH:
        call()
        n, seconds = n + 1, time.process_time() - begin
    return found, 1e3 * seconds / n


def row_of(path: Path, max_time: float) -> list[str]:
    """Return the cells of a model."""
    graph = graph_of(path)
    relaxed, milliseconds = timed(lambda: graph.solve_map(threads=1))
    _, rough = timed(lambda: graph.solve_map(threads=1, tol=1e-4))
    alone = np.maximum(graph.flat_scores()[relaxed.layout.component < 0], 0.0).sum()
    score = relaxed.objective.sum() + alone
    found, exact = timed(lambda: graph.solve_map(exact=True, max_time=max_time, threads=1))
    return [
        path.name.split(".")[0],
        f"{score:.6f}",
        f"{score + relaxed.gap.sum():.6f}",
        f"{rough:.2f}",
        f"{milliseconds:.2f}",
        f"{found.total:.6f}",
        "proved" if found.ok else f"{found.bound.sum() + alone:.6g}",
        f"{exact:.1f}",
        f"{found.n_nodes.sum()}",
        *(peer(graph, max_time) for peer in PEERS.values()),
    ]


def sort_time() -> float:
    """Return the milliseconds that a sort of a million numbers takes."""
    numbers = np.random.default_rng(0).random(1_000_000)
    return timed(lambda: np.sort(numbers))[1]


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--max-time", type=float, default=20.0, help="Seconds for the search of each model.")
def main(folder: Path, max_time: float) -> None:
    """Print a table of the models below FOLDER."""
    warnings.simplefilter("ignore")
    table = Table(
        title=f"processor time in ms on one thread, on which a sort of 10^6 numbers takes "
        f"{sort_time():.0f}; at most {max_time:g} s for each search"
    )
    headings = ("model", "LP-MAP", "bound", "tol 1e-4", "1e-6", "best", "bound", "exact", "nodes")
    for heading in (*headings, *PEERS):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    paths = sorted(p for p in folder.rglob("*") if p.name.endswith(SUFFIXES))
    for path in track(paths, "solving", console=Console(stderr=True)):
        try:
            table.add_row(*row_of(path, max_time))
        except FileFormatError as error:
            Console(stderr=True).print(f"left out: {error}")
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
