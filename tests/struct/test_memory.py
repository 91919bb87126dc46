"""Active sets stay small, and solving again and again leaves nothing behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lpsmap_core import FactorGraph, Solution
from lpsmap_core.api import ActiveSets
from lpsmap_factors_logic import Budget
from lpsmap_factors_struct import DepTree, Sequence
from solver_bytes import bytes_of

Make = Callable[[np.random.Generator, int], Callable[[], None]]

MEGABYTE = 1 << 20
RESIDENT = Path("/proc/self/statm")
PAGE = 4096


def active_set_bytes(solution: Solution) -> int:
    """The numbers that the active sets of a solution keep."""
    solvers = solution.solved.state.solvers
    return sum(bytes_of(solver) for solver in solvers if isinstance(solver, ActiveSets))


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("batch", "single_root"),
    [
        (8, False),
        pytest.param(64, False, marks=pytest.mark.slow),
        pytest.param(64, True, marks=pytest.mark.slow),
    ],
)
def test_trees_of_a_hundred_words(rng: np.random.Generator, batch: int, single_root: bool) -> None:
    """At most 200 MB for 64 sentences, with standard normal scores: nearly 200 trees a sentence."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((batch, 100, 100)))
    graph.add(DepTree(u, single_root=single_root))
    solution = graph.solve()
    assert solution.ok
    assert active_set_bytes(solution) <= 200 * MEGABYTE * batch / 64


@pytest.mark.compiled
def test_nearly_uniform_chains(rng: np.random.Generator) -> None:
    """Less than a megabyte for a chain of 50 by 20, where sets of its structures would take 16."""
    graph = FactorGraph()
    u = graph.variable_from(1e-3 * rng.standard_normal((2, 50, 20)))
    graph.add(Sequence(u, 1e-3 * rng.standard_normal((20, 20))))
    solution = graph.solve()
    assert solution.ok
    assert active_set_bytes(solution) <= 2 * MEGABYTE


def one_graph(rng: np.random.Generator, n: int) -> Callable[[], None]:
    """The same graph, solved again."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((2, n, n)))
    graph.add(DepTree(u, projective=True))
    graph.add(Budget(u, 2, axis=1))

    def run() -> None:
        graph.solve(threads=1)

    return run


def many_graphs(rng: np.random.Generator, n: int) -> Callable[[], None]:
    """A graph for every batch, as in training: values, structures, gradients."""
    scores = rng.standard_normal((2, n, n))

    def run() -> None:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        factor = graph.add(Sequence(u, np.zeros((n, n))))
        solution = graph.solve(threads=1)
        solution.vjp(u.value)
        solution.structures(factor)

    return run


def resident() -> int:
    """Bytes of memory that this process holds: NumPy's, the compiled kernels' and all others."""
    return int(RESIDENT.read_text().split()[1]) * PAGE


def held() -> int:
    """Bytes in blocks of Python's and NumPy's that are too large for NumPy's cache of free ones."""
    gc.collect()
    sizes = (trace.size for trace in tracemalloc.take_snapshot().traces)
    return sum(size for size in sizes if size > 1024)


@pytest.mark.compiled
@pytest.mark.parametrize("make", [one_graph, many_graphs])
def test_solving_again_keeps_nothing(rng: np.random.Generator, make: Make) -> None:
    run = make(rng, 12)
    run()
    tracemalloc.start()
    run()
    before = held()
    for _ in range(50):
        run()
    after = held()
    tracemalloc.stop()
    assert after <= before


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(not RESIDENT.exists(), reason="resident memory is read from Linux's /proc")
@pytest.mark.parametrize("make", [one_graph, many_graphs])
def test_ten_thousand_solves_do_not_grow(rng: np.random.Generator, make: Make) -> None:
    """By the process's memory, which also holds what compiled kernels allocate."""
    run = make(rng, 4)
    for _ in range(1000):
        run()
    gc.collect()
    before = resident()
    for _ in range(10_000):
        run()
    gc.collect()
    assert resident() - before < 4 * MEGABYTE
