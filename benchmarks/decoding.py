"""Time decoding beside the solve that it starts from, and assignment beside SciPy's.

``python benchmarks/decoding.py`` prints milliseconds an instance by the thread's own time, with one
thread: the solve, `Solution.decode` of it, and the exact search, the shares of instances that are
found and proved, and the ratio of decoding to the solve. The second table has exact searches of up
to 3 s of trees whose words repeat; the third has `solve_map` of one `Matching` beside
`scipy.optimize.linear_sum_assignment`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from lpsmap import (
    AtMostOne,
    Budget,
    DepTree,
    FactorGraph,
    Matching,
    ModifierBudget,
    Pair,
    Sequence,
    Xor,
)
from lpsmap_core import Factor, Variables

Declare = Callable[[Variables, np.random.Generator], list[Factor]]

CASES: dict[str, tuple[tuple[int, ...], Declare]] = {
    "100,000 Xor rows of 10": ((100_000, 10), lambda u, rng: [Xor(u)]),
    "10,000 trees of 10": ((10_000, 10, 10), lambda u, rng: [DepTree(u)]),
    "a chain of 10,000 pairs": (
        (10_001,),
        lambda u, rng: [Pair(u[:-1], u[1:], rng.normal(size=10_000))],
    ),
    "64 trees of 20, budget 2": (
        (64, 20, 20),
        lambda u, rng: [DepTree(u), ModifierBudget(u, 2)],
    ),
    "64 matchings 8x14": ((64, 8, 14), lambda u, rng: [Matching(u)]),
    "64 sequences 50x20, 5 tags at most once": (
        (64, 50, 20),
        lambda u, rng: [Sequence(u, rng.normal(size=(20, 20))), AtMostOne(u[:, :, :5], axis=1)],
    ),
}

MATRICES: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "normal": lambda rng, n: rng.normal(size=(n, n)),
    "integers to 1000": lambda rng, n: rng.integers(0, 1000, (n, n)).astype(np.float64),
    "30 % masked": lambda rng, n: np.where(
        rng.random((n, n)) < 0.3, -np.inf, rng.normal(size=(n, n))
    ),
}


WORDS = "trees of 25 words of 14 kinds, budget 3"
SENTENCES = (16, 25, 14)
"""Sentences, their words, and the different words of each: many trees have equal scores."""


def least_time(work: Callable[[], object], repetitions: int) -> float:
    """Return the least time of a call in milliseconds, after a first call that compiles."""
    work()
    times = []
    for _ in range(repetitions):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return 1e3 * min(times)


def decoding_row(shape: tuple[int, ...], declare: Declare, repetitions: int) -> list[str]:
    """Return the cells of a case."""
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=shape))
    for factor in declare(u, rng):
        graph.add(factor)
    solve = least_time(lambda: graph.solve(threads=1), repetitions)
    solution = graph.solve(threads=1)
    decode = least_time(lambda: solution.decode(threads=1), repetitions)
    found = solution.decode(threads=1)
    exact = least_time(lambda: graph.solve_map(exact=True, threads=1), repetitions)
    n = len(found.score)
    cells = [f"{t / n:.4f}" for t in (solve, decode, exact)]
    shares = [f"{100.0 * flags.mean():.1f} %" for flags in (found.found, found.proved)]
    return [*cells, f"{decode / solve:.2f}", *shares]


def words_row(max_time: float) -> list[str]:
    """Return the cells of exact searches of trees whose words repeat, one search a sentence."""
    n_sentences, n, n_kinds = SENTENCES
    results, begin = [], time.thread_time()
    for seed in range(n_sentences):
        rng, graph = np.random.default_rng(seed), FactorGraph()
        kinds = rng.integers(0, n_kinds, size=n)
        u = graph.variable_from(4.0 * rng.normal(size=(n_kinds, n_kinds))[kinds][:, kinds])
        graph.add(DepTree(u, single_root=True))
        graph.add(Budget(u, 3, axis=0, mask=~np.eye(n, dtype=bool)))
        results.append(graph.solve_map(exact=True, max_time=max_time, threads=1))
    seconds = time.thread_time() - begin
    proved = sum(result.ok for result in results)
    score = sum(float(result.score.sum()) for result in results)
    return [f"{1e3 * seconds / n_sentences:.0f}", f"{proved} of {n_sentences}", f"{score:.4f}"]


def assignment_row(scores: npt.NDArray[np.float64], repetitions: int) -> list[str]:
    """Return the cells of a matrix."""
    graph = FactorGraph()
    graph.add(Matching(graph.variable_from(scores)))
    ours = least_time(lambda: graph.solve_map(threads=1), repetitions)
    theirs = least_time(lambda: linear_sum_assignment(scores, maximize=True), repetitions)
    return [f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}"]


@click.command()
@click.option("--only", default="", help="Only the cases whose names contain this.")
@click.option("--repetitions", default=3, help="Repetitions; the least time counts.")
@click.option("--sizes", default="20,200,400,1000", help="Sides of the matrices.")
def main(only: str, repetitions: int, sizes: str) -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    table = Table("batch", "solve", "decode", "exact", "decode / solve", "found", "proved")
    for name, (shape, declare) in CASES.items():
        if only in name:
            table.add_row(name, *decoding_row(shape, declare, repetitions))
    Console().print(table)
    if only in WORDS:
        table = Table("exact search", "ms", "proved", "score")
        words_row(3.0)  # loads kernels
        table.add_row(WORDS, *words_row(3.0))
        Console().print(table)
    table = Table("matrix", "side", "solve_map", "SciPy", "ratio")
    for name, draw in MATRICES.items():
        for n in map(int, sizes.split(",")) if only in name else ():
            scores = draw(np.random.default_rng(0), n)
            table.add_row(name, str(n), *assignment_row(scores, repetitions))
    Console().print(table)


if __name__ == "__main__":
    main()
