"""Time layers beside other libraries' in one run, in turns: forward, and forward plus backward.

``pip install torch-struct entmax`` brings the peers, for this benchmark only (``--no-deps`` if an
index has another torch). Rows with missing peers are skipped. Each row is a layer on the same
tensors as the peer's nearest one, and the gradient of its squares:

- sequences, projective and non-projective trees against marginals of torch-struct: the linear
  chain, Eisner's algorithm, and the matrix-tree theorem;
- matchings against 50 Sinkhorn iterations in torch, in the log domain as in Mena et al. (2018),
with an additional row for the rest of the columns;
- a lone `Xor` against entmax's sparsemax;
- workloads of `bench.py` against the earlier library's times, scaled by a sort.

Two clocks: time on the wall with some threads, and the process's time with one thread, which other
processes on the machine disturb less. Numbers are medians over turns; ratios are ours over the
peer's, but the earlier library's times are over ours. The machine need not be idle.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import AtMostOne, DepTree, Sequence, TorchFactorGraph, Xor
from workloads import REFERENCE_SORT, WORKLOADS

Clock = Callable[[], float]
Layer = Callable[..., torch.Tensor]

SINKHORN_ITERATIONS = 50
SHORTEST_TURN = 0.05
"""Minimum seconds of a turn."""


@dataclass(frozen=True)
class Pair:
    """A layer, and the corresponding layer of a peer with the same tensors.

    Attributes
    ----------
    name
        The task of both.
    peer
        The package of the other layer.
    shapes
        The shapes of the tensors of normal numbers.
    ours
        Called with the threads to use and the tensors.
    theirs
        Called with the tensors.
    goal
        The target upper bound on the ratio; None for no target.
    """

    name: str
    peer: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Layer
    theirs: Layer
    goal: float | None = None

    @property
    def missing(self) -> str | None:
        """The peer's package, if it is not installed."""
        package = self.peer.split()[0].replace("-", "_")
        return None if importlib.util.find_spec(package) else package.replace("_", "-")


# -------------------------------------------------------------------- layers


def sequence(threads: int, scores: torch.Tensor, transitions: torch.Tensor) -> torch.Tensor:
    """Marginals of a linear chain's states."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Sequence(u, transitions))
    graph.solve(threads=threads)
    return u.value


def linear_chain(scores: torch.Tensor, transitions: torch.Tensor) -> torch.Tensor:
    """The same of torch-struct, of the steps, whose scores are (later, earlier) state."""
    from torch_struct import LinearChainCRF

    steps = transitions.transpose(-1, -2) + scores[:, 1:, :, None]
    first = steps[:, :1] + scores[:, :1, None, :]
    marginals: torch.Tensor = LinearChainCRF(torch.cat([first, steps[:, 1:]], 1)).marginals
    return marginals


def tree(projective: bool) -> Layer:
    """Marginals of dependency trees."""

    def layer(threads: int, scores: torch.Tensor) -> torch.Tensor:
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, projective=projective))
        graph.solve(threads=threads)
        return u.value

    return layer


def eisner(scores: torch.Tensor) -> torch.Tensor:
    """Marginals of projective trees; torch-struct's rows are the heads."""
    from torch_struct import DependencyCRF

    marginals: torch.Tensor = DependencyCRF(scores.transpose(-1, -2)).marginals
    return marginals


def matrix_tree(scores: torch.Tensor) -> torch.Tensor:
    """Marginals of non-projective trees."""
    from torch_struct.deptree import deptree_nonproj

    marginals: torch.Tensor = deptree_nonproj(scores.transpose(-1, -2), multi_root=True, eps=0.0)
    return marginals


def matching(threads: int, scores: torch.Tensor) -> torch.Tensor:
    """A choice for every row, each column at most once."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.solve(threads=threads)
    return u.value


def sinkhorn(scores: torch.Tensor) -> torch.Tensor:
    """Rows that sum to one, and columns that sum to one with an additional row."""
    rest = scores.new_zeros(len(scores), 1, scores.shape[-1])
    for _ in range(SINKHORN_ITERATIONS):
        scores = scores - scores.logsumexp(-1, keepdim=True)
        total = torch.cat([scores, rest], 1).logsumexp(1, keepdim=True)
        scores, rest = scores - total, rest - total
    return scores.exp()


def xor(threads: int, scores: torch.Tensor) -> torch.Tensor:
    """A choice for every row."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.solve(threads=threads)
    return u.value


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """The same by entmax, which sorts."""
    from entmax import sparsemax as theirs

    chosen: torch.Tensor = theirs(scores, dim=-1)
    return chosen


def pairs(batch: int) -> list[Pair]:
    """Return the compared layers, for a batch size."""
    chain = ((batch, 50, 20), (batch, 49, 20, 20))
    trees = {n: ((batch, n, n),) for n in (20, 50)}
    return [
        Pair("sequence 50x20", "torch-struct", chain, sequence, linear_chain, 0.1),
        Pair("projective tree n=20", "torch-struct", trees[20], tree(True), eisner),
        Pair("projective tree n=50", "torch-struct", trees[50], tree(True), eisner, 0.3),
        Pair("tree n=20", "torch-struct matrix-tree", trees[20], tree(False), matrix_tree),
        Pair("tree n=50", "torch-struct matrix-tree", trees[50], tree(False), matrix_tree, 3.0),
        Pair("matching 30x40", "torch Sinkhorn", ((batch, 30, 40),), matching, sinkhorn, 1.0),
        Pair("Xor 4096x64", "entmax sparsemax", ((4096, 64),), xor, sparsemax, 1.0),
    ]


# -------------------------------------------------------------------- turns


def lap(layer: Callable[[], torch.Tensor], repeats: int, clock: Clock) -> tuple[float, float]:
    """Return the seconds of a forward pass, and of a forward and a backward pass."""
    forward, start = 0.0, clock()
    for _ in range(repeats):
        begin = clock()
        values = layer()
        forward += clock() - begin
        values.pow(2).sum().backward()
    return forward / repeats, (clock() - start) / repeats


def in_turns(
    layers: list[Callable[[], torch.Tensor]], turns: int, clock: Clock
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (turns, layers, 2) seconds, all layers in turn."""
    repeats = []
    for layer in layers:
        for _ in range(2):  # the first call compiles or loads kernels
            _, seconds = lap(layer, 1, clock)
        repeats.append(max(1, round(SHORTEST_TURN / max(seconds, 1e-4))))
    found = [
        [lap(layer, n, clock) for layer, n in zip(layers, repeats, strict=True)]
        for _ in range(turns)
    ]
    return np.array(found)


def compare(pair: Pair, turns: int, threads: int, clock: Clock, dtype: torch.dtype) -> list[str]:
    """Return a row's cells: our times, and the ratios of ours to theirs."""
    torch.set_num_threads(threads)
    draws = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(shape, generator=draws, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in pair.shapes
    ]
    layers = [lambda: pair.ours(threads, *tensors), lambda: pair.theirs(*tensors)]
    found = in_turns(layers, turns, clock)
    ours = 1e3 * np.median(found[:, 0], axis=0)
    ratios = np.median(found[:, 0] / found[:, 1], axis=0)
    return [*(f"{x:.2f}" for x in ours), *(f"{x:.3f}" for x in ratios)]


def over_earlier(name: str, turns: int, threads: int, clock: Clock) -> str:
    """Return the earlier library's time over ours, scaled by sorts before and after ours."""
    numbers = np.random.default_rng(0).standard_normal(1_000_000)
    workload = next(w for w in WORKLOADS if w.name == name)
    make = workload.build(workload.batches[-1], np.random.default_rng(0))
    batch, ratios = workload.batches[-1], []

    def sort() -> float:
        start = clock()
        np.sort(numbers)
        return 1e3 * (clock() - start)

    def solve() -> None:
        solution = make().solve(threads=threads)
        solution.vjp(2 * solution.values)

    solve()
    for _ in range(turns):
        before, start, repeats = sort(), clock(), 0
        while repeats == 0 or clock() - start < SHORTEST_TURN:
            solve()
            repeats += 1
        ours = 1e3 * (clock() - start) / (repeats * batch)
        machine = 0.5 * (before + sort()) / REFERENCE_SORT
        ratios.append(workload.reference * machine / ours)
    return f"{np.median(ratios):.1f}"


# -------------------------------------------------------------------- tables


def peers_table(
    chosen: list[Pair], turns: int, clocks: list[tuple[str, int, Clock]], dtype: torch.dtype
) -> Table:
    """Return the table of layers beside peers."""
    table = Table(title=f"ours over the peer's, {str(dtype).split('.')[1]}, medians of turns")
    columns = ["clock", "forward ms", "both ms", "ratio forward", "ratio both", "goal"]
    for column in ("layer", "peer", *columns):
        table.add_column(column, justify="left" if column in {"layer", "peer"} else "right")
    for pair in track(chosen, "peers", console=Console(stderr=True)):
        goal = "" if pair.goal is None else f"<= {pair.goal:g}"
        if pair.missing:
            table.add_row(pair.name, f"skipped: pip install {pair.missing}")
            continue
        for name, threads, clock in clocks:
            cells = compare(pair, turns, threads, clock, dtype)
            table.add_row(pair.name, pair.peer, name, *cells, goal)
    return table


GOALS = {"sequence 50x20": 10, "tree n=20": 14}
"""Target lower bounds on the ratios to the earlier library."""


def earlier_table(only: str, turns: int, clocks: list[tuple[str, int, Clock]]) -> Table:
    """Return the table of workloads beside the earlier library's times."""
    table = Table(title="the earlier library's time, scaled by a sort, over ours")
    for column in ("workload", *(name for name, _, _ in clocks), "goal"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    names = [name for name in ("sequence 50x20", "tree n=20", "matching 30x40") if only in name]
    for name in track(names, "earlier library", console=Console(stderr=True)):
        ratios = [over_earlier(name, turns, threads, clock) for _, threads, clock in clocks]
        table.add_row(name, *ratios, f">= {GOALS[name]}" if name in GOALS else "")
    return table


@click.command(context_settings={"show_default": True})
@click.option("--batch", type=click.IntRange(min=1), default=16, help="Instances at once.")
@click.option("--turns", type=click.IntRange(min=1), default=9, help="Turns of each.")
@click.option("--threads", type=click.IntRange(min=1), default=2, help="Threads, by the wall.")
@click.option("--double/--single", default=True, help="The tensors' precision; ours is double.")
@click.option("--only", default="", help="Only rows whose name contains this.")
def main(batch: int, turns: int, threads: int, double: bool, only: str) -> None:
    """Print the times of layers beside those of other libraries."""
    warnings.simplefilter("ignore")
    clocks: list[tuple[str, int, Clock]] = [
        (f"wall, {threads} threads", threads, time.perf_counter),
        ("process, 1 thread", 1, time.process_time),
    ]
    chosen = [pair for pair in pairs(batch) if only in pair.name]
    dtype = torch.float64 if double else torch.float32
    console = Console(width=130)
    console.print(peers_table(chosen, turns, clocks, dtype))
    console.print(earlier_table(only, turns, clocks))


if __name__ == "__main__":
    main()
