"""Measure calls on a small graph in microseconds: building, solving again, and the gradient.

The graph is a matching of 8x14 at batch size 1, where Python overhead matters most. ``python
benchmarks/calls.py [OTHER]`` prints processor times of every way to solve it; with OTHER, the
Python interpreter of another version's environment, both versions run in turns, and the table has
the other's times, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

CALLS = 100
"""Calls in one turn."""

SHAPE = (1, 8, 14)


def ways() -> dict[str, Callable[[], object]]:
    """Return the calls that solve the matching, by name."""
    from lpsmap import AtMostOne, FactorGraph, Xor

    scores = np.random.default_rng(0).standard_normal(SHAPE)

    def build() -> FactorGraph:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        return graph

    kept = build()
    solution = kept.solve(threads=1)
    return {
        "build": build,
        "build and solve": lambda: build().solve(threads=1),
        "solve again": lambda: kept.solve(threads=1),
        "gradient again": lambda: solution.vjp(2.0 * solution.values),
        **ways_in_torch(scores),
    }


def ways_in_torch(scores: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return the calls with torch, including the gradient."""
    import torch

    from lpsmap import AtMostOne, TorchFactorGraph, Xor

    torch.set_num_threads(1)
    leaf = torch.tensor(scores, requires_grad=True)

    def build() -> tuple:
        graph = TorchFactorGraph()
        u = graph.variable_from(leaf)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        return graph, u

    def differentiate(graph, u) -> None:
        graph.solve(threads=1)
        value = u.value
        value.backward(value.detach())
        leaf.grad = None

    kept, variables = build()

    def rescored() -> None:
        kept.rescore(variables, leaf)
        differentiate(kept, variables)

    return {
        "torch: build, solve, gradient": lambda: differentiate(*build()),
        "torch: rescore, solve, gradient": rescored,
    }


def serve() -> None:
    """For every name read, print the processor time of a call, in microseconds."""
    warnings.simplefilter("ignore")
    known = ways()
    for line in sys.stdin:
        call = known[json.loads(line)]
        call()
        begin = time.process_time()
        for _ in range(CALLS):
            call()
        print((time.process_time() - begin) / CALLS * 1e6, flush=True)


class Version:
    """A process with one version of the library."""

    def __init__(self, python: str) -> None:
        command, pipe = [python, __file__, "--serve"], subprocess.PIPE
        folder = Path(__file__).parent
        self._process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)

    def microseconds(self, name: str) -> float:
        """Return the time of a call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(name), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException("a version ended; see above why")
        return float(answer)


@click.command(context_settings={"show_default": True})
@click.argument("other", required=False)
@click.option("--turns", type=click.IntRange(min=1), default=15, help="Turns of each version.")
@click.option("--serve", "serving", is_flag=True, hidden=True)
def main(other: str | None, turns: int, serving: bool) -> None:
    """Print the times of calls, and those of OTHER, a Python interpreter of another version."""
    if serving:
        serve()
        return
    versions = {"ours": Version(sys.executable)}
    if other is not None:
        versions["the other's"] = Version(other)
    times: dict[str, dict[str, list[float]]] = {
        name: {version: [] for version in versions} for name in ways()
    }
    for _ in track(range(turns), "measuring", console=Console(stderr=True)):
        for name, found in times.items():
            for version, process in versions.items():
                found[version].append(process.microseconds(name))
    table = Table(title=f"microseconds of processor time a call, medians of {turns} turns")
    table.add_column("call")
    for version in versions:
        table.add_column(version, justify="right")
    for name, found in times.items():
        table.add_row(name, *(f"{np.median(found[version]):.0f}" for version in versions))
    Console().print(table)


if __name__ == "__main__":
    main()
