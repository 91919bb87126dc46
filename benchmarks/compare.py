"""Time two versions of the library against each other, in turns.

``python benchmarks/compare.py OTHER/.venv/bin/python`` starts a process in each environment, lets
them solve the same workloads one after the other, and prints the other's time over this one's:
above 1, this one is faster. Other load on the machine affects both equally.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from workloads import WORKLOADS

SHORTEST_TURN = 0.1
"""Minimum seconds of a turn."""


class Version:
    """A process with one version of the library."""

    def __init__(self, python: str, threads: int) -> None:
        command = [python, __file__, "--serve", "--threads", str(threads)]
        folder = Path(__file__).parent
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)

    def seconds(self, row: int, batch: int, repeats: int) -> float:
        """Return the time to build, solve and differentiate a workload's graph."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([row, batch, repeats]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException("a version ended; see above why")
        return float(answer)


def serve(threads: int) -> None:
    """Print the seconds of every requested solve."""
    makers: dict[tuple[int, int], Any] = {}
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        row, batch, repeats = json.loads(line)
        if (row, batch) not in makers:
            makers[row, batch] = WORKLOADS[row].build(batch, np.random.default_rng(0))
        make = makers[row, batch]
        begin = time.perf_counter()
        for _ in range(repeats):
            solution = make().solve(threads=threads)
            solution.vjp(2 * solution.values)
        print(time.perf_counter() - begin, flush=True)


@click.command(context_settings={"show_default": True})
@click.argument("other", required=False)
@click.option("--turns", type=click.IntRange(min=1), default=9, help="Turns of each version.")
@click.option("--threads", type=int, default=2, help="Threads that a solve may use.")
@click.option("--only", default="", help="Only workloads whose name contains this.")
@click.option("--serve", "serving", is_flag=True, hidden=True)
def main(other: str | None, turns: int, threads: int, only: str, serving: bool) -> None:
    """Compare this environment's version with that of OTHER, a Python interpreter."""
    if serving:
        serve(threads)
        return
    if other is None:
        raise click.UsageError("OTHER is missing: the interpreter of the other version.")
    here, there = Version(sys.executable, threads), Version(other, threads)
    table = Table(title=f"the other's time over ours, medians of {turns} turns")
    for column in ("workload", "batch", "ms a solve", "ratio", "quartiles"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    cases = [(i, w, b) for i, w in enumerate(WORKLOADS) if only in w.name for b in w.batches]
    for i, workload, batch in track(cases, "measuring", console=Console(stderr=True)):
        for version in (here, there):
            version.seconds(i, batch, 1)  # compiles or loads kernels
        repeats = max(1, round(SHORTEST_TURN / here.seconds(i, batch, 1)))
        pairs = [
            (here.seconds(i, batch, repeats), there.seconds(i, batch, repeats))
            for _ in range(turns)
        ]
        ratios = [theirs / ours for ours, theirs in pairs]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        solve = 1e3 * float(np.median([ours for ours, _ in pairs])) / repeats
        table.add_row(
            workload.name, str(batch), f"{solve:.2f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
