"""Interrupt hard solves of every structured type, and measure how long Ctrl-C takes.

``python tests/interrupts.py --solves 50`` solves, in a child process for every type, graphs that
take long in turn in three ways: one factor of nearly uniform scores, the factor among others, and a
batch of factors. Each solve is sent SIGINT at a random time; the graph is then solved again, for a
few iterations, and has to give the bits of one that was never interrupted. A child that does not
answer within 20 seconds is killed. It ends with exit code 1 if one was killed, if a solve ended by
itself, if bits differ, or if one took longer than a second and a half.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from lpsmap import (
    Alignment,
    AtMostOne,
    BinaryTree,
    Bits,
    Budget,
    DepTree,
    Factor,
    FactorGraph,
    HeadAutomaton,
    Matching,
    Permutation,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    SequenceSpans,
    TopK,
    Variables,
)

TOO_LONG = 1.5
KILLED = 20.0
"""Seconds from the signal on."""

WAYS = 3

LATEST = 1.0
"""Seconds until the signal is sent, at most; most are sent early, amid different things."""

FloatArray = npt.NDArray[np.float64]
Make = Callable[[Variables], Factor]


class Hard(NamedTuple):
    """How solves of a type take long."""

    large: tuple[int, ...]
    batch: tuple[int, ...]
    make: Make
    spread: bool = False
    """Whether scores lie between 0 and 1, evenly, rather than all near 0."""


TYPES = {
    "Alignment": Hard((150, 150), (200, 30, 30), Alignment),
    "BinaryTree": Hard((80, 80), (200, 25, 25), BinaryTree),
    "Bits": Hard((12_000,), (300, 1000), Bits, spread=True),
    "DepTree": Hard((400, 400), (200, 60, 60), DepTree),
    "DepTree projective": Hard((200, 200), (200, 30, 30), lambda u: DepTree(u, projective=True)),
    "HeadAutomaton": Hard(
        (2500,), (100, 300), lambda u: HeadAutomaton(u, _pairs(u.shape[-1] + 1)), spread=True
    ),
    "Matching": Hard((120, 120), (400, 30, 30), Matching),
    "Permutation": Hard((3000,), (200, 300), Permutation),
    "SemiMarkov": Hard(
        (200, 20, 5), (200, 40, 10, 4), lambda u: SemiMarkov(u, _pairs(u.shape[-1]))
    ),
    "Sequence": Hard((1500, 20), (600, 60, 10), lambda u: Sequence(u, _pairs(u.shape[-1]))),
    "SequenceBudget": Hard(
        (500, 20),
        (600, 60, 10),
        lambda u: SequenceBudget(u, _pairs(u.shape[-1]), u.shape[-2] // 4),
    ),
    "SequenceDistance": Hard((1500, 20), (600, 60, 10), lambda u: SequenceDistance(u, np.zeros(5))),
    "SequenceSpans": Hard(
        (400, 4), (600, 60, 4), lambda u: SequenceSpans(u, _pairs(u.shape[-1]), 20, 2, 3)
    ),
    "TopK": Hard((30_000,), (600, 300), lambda u: TopK(u, u.shape[-1] // 3)),
}
"""For every type the shapes of a large factor and of a batch, and how one is declared."""


def _pairs(n: int) -> FloatArray:
    return np.zeros((n, n))


def hard(name: str, way: int) -> tuple[FactorGraph, dict[str, Any]]:
    """Return a graph that takes long to solve, and with which options."""
    large, batch, make, spread = TYPES[name]
    rng, graph, shape = np.random.default_rng(way), FactorGraph(), batch if way == 2 else large
    scores = rng.uniform(size=shape) if spread else 1e-3 * rng.normal(size=shape)
    u = graph.variable_from(scores)
    graph.add(make(u))
    if way == 1:
        flat = u.reshape(-1)
        graph.add(Budget(flat, max(flat.size // 50, 1)))
        graph.add(AtMostOne(flat[: flat.size // 2 * 2].reshape(-1, 2)))
    return graph, {"max_iter": 10**6, "tol": 0.0, "max_inner_iter": 10**6}


def briefly(graph: FactorGraph) -> bytes:
    """Return the bits of a graph's marginals after a few iterations."""
    return graph.solve(max_iter=2, max_inner_iter=4).values.tobytes()


def child(name: str, first: int, last: int) -> None:
    """Solve some graphs of a type; say what happens, a word a line."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may ignore it
    fresh = []
    for way in range(WAYS):
        graph, options = hard(name, way)
        fresh.append(briefly(graph))
        graph.solve(**options, max_time=1.0)  # kernels are compiled before the clock runs
    for number in range(first, last):
        graph, options = hard(name, number % WAYS)
        try:
            print("solving", flush=True)
            graph.solve(**options)
            word = "ended"
        except KeyboardInterrupt:
            word = "interrupted"
        print(word, flush=True)
        same = briefly(graph) == fresh[number % WAYS]
        print("same" if same else "different", flush=True)


class Child:
    """A child process and the words that it says."""

    def __init__(self, name: str, first: int, last: int) -> None:
        arguments = [sys.executable, __file__, "--child", name, str(first), str(last)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, bufsize=0)

    def word(self, seconds: float) -> str:
        """Return the next word; nothing if it does not come in time."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().decode().strip() if ready else ""


def interrupt(name: str, solves: int, rng: np.random.Generator) -> Iterator[tuple[str, float]]:
    """Yield for every solve what came of it, and the seconds from the signal to that."""
    number = 0
    while number < solves:
        process = Child(name, number, solves)
        while number < solves:
            number += 1
            assert process.word(900.0) == "solving"
            word = process.word(LATEST * rng.uniform() ** 2)
            sent = time.perf_counter()
            if not word:
                os.kill(process.process.pid, signal.SIGINT)
                word = process.word(KILLED)
            seconds = time.perf_counter() - sent
            after = process.word(120.0) if word else "killed"
            if after == "same":
                yield word, seconds
                continue
            yield after or "silent", seconds
            process.process.send_signal(signal.SIGABRT)  # where it is stuck
            time.sleep(1.0)
            process.process.kill()
            break
        process.process.wait()


@click.command()
@click.option("--solves", default=50, help="Solves of every type.")
@click.option("--only", help="One type.")
@click.option("--child", "task", nargs=3, hidden=True)
def main(solves: int, only: str | None, task: tuple[str, str, str] | None) -> None:
    """Interrupt hard solves of every structured type."""
    if task:
        child(task[0], int(task[1]), int(task[2]))
        return
    rng, wrong = np.random.default_rng(0), False
    table = Table("type", "interrupted", "failed", "median s", "worst s")
    for name in [only] if only else TYPES:
        found = list(interrupt(name, solves, rng))
        failures = [(i, word) for i, (word, _) in enumerate(found) if word != "interrupted"]
        times = [seconds for word, seconds in found if word == "interrupted"] or [np.nan]
        wrong |= bool(failures) or max(times) > TOO_LONG
        figures = (len(times), failures or 0, f"{np.median(times):.3f}", f"{max(times):.3f}")
        table.add_row(name, *map(str, figures))
        print(name, *figures, flush=True)
    Console().print(table)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
