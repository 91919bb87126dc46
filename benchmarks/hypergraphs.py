"""Measure dynamic programs: the generic oracle, the specialised ones, and sums.

``python benchmarks/hypergraphs.py`` prints milliseconds of processor time for one factor with
standard normal scores, in batches of four: the best structure by the type's own kernel and by its
hypergraph, with the ratio of the two; log-partition function and marginals; a product with the
Hessian; ten samples; the ten best structures. Building the hypergraph is not included.
"""

from __future__ import annotations

import os

os.environ.setdefault("LPSMAP_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from lpsmap import (
    Alignment,
    BinaryTree,
    DepTree,
    FactorGraph,
    HeadAutomaton,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    Variables,
)
from lpsmap_core import Scores, Structures
from lpsmap_core.layout.layout import Bucket, build_layout
from lpsmap_dynamic import HypergraphFactor
from lpsmap_dynamic.best_derivation import best_derivations
from lpsmap_jit.arrays import IntArray

BATCH, MIN_SECONDS = 4, 0.2

CASES: dict[str, tuple[tuple[int, ...], Callable[[Variables], object]]] = {
    "Sequence, 50 x 20": ((50, 20), lambda u: Sequence(u, np.zeros((20, 20)))),
    "DepTree, 20 words": ((20, 20), lambda u: DepTree(u, projective=True)),
    "DepTree, 50 words": ((50, 50), lambda u: DepTree(u, projective=True)),
    "Alignment, 50 x 50": ((50, 50), Alignment),
    "BinaryTree, 40 words": ((40, 40), BinaryTree),
    "SemiMarkov, 50 x 5 x 5": ((50, 5, 5), lambda u: SemiMarkov(u, np.zeros((5, 5)))),
    "SequenceBudget, 30 x 5": ((30, 5), lambda u: SequenceBudget(u, np.zeros((5, 5)), 8)),
    "HeadAutomaton, 30": ((30,), lambda u: HeadAutomaton(u, np.zeros((31, 31)))),
    "SequenceDistance, 30 x 10": ((30, 10), lambda u: SequenceDistance(u, np.zeros(7))),
}


def milliseconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call, for one factor of the batch."""
    run()
    calls, begin = 0, time.process_time()
    while time.process_time() - begin < MIN_SECONDS:
        run()
        calls += 1
    return (time.process_time() - begin) / calls / BATCH * 1e3


def room_for(bucket: Bucket) -> Structures:
    """Return the output arrays of an oracle."""
    sizes = bucket.type.vertex_sizes(bucket.factors)
    ends = np.cumsum(sizes)
    memory = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1])
    return Structures(ends - sizes, *memory, np.empty(len(sizes), dtype=np.int64))


def oracle(bucket: Bucket, rows: IntArray, scores: Scores) -> Callable[[], object]:
    """Return a call of a bucket's oracle."""
    room = room_for(bucket)
    return lambda: bucket.type.map_kernel(rows, bucket.factors, scores, room)


def measured(shape: tuple[int, ...], make: Callable[[Variables], object]) -> list[str]:
    """Return a row of the table."""
    graph, rng, rows = FactorGraph(), np.random.default_rng(0), np.arange(BATCH)
    factor = make(graph.variable((BATCH, *shape)))
    assert isinstance(factor, HypergraphFactor)
    bucket = build_layout(graph.n_variables, [factor]).buckets[0]
    begin = time.process_time()
    (hypergraph,), _ = factor.hypergraphs()
    seconds = time.process_time() - begin
    scores = Scores(rng.standard_normal(bucket.n_links), rng.standard_normal(bucket.n_additionals))
    generic = type("Generic", (type(factor),), {"map_kernel": staticmethod(best_derivations)})
    factor.__class__ = generic
    other = build_layout(graph.n_variables, [factor]).buckets[0]
    times = [milliseconds(oracle(b, rows, scores)) for b in (bucket, other)]
    inference = factor.inference()
    times += [
        times[1] / times[0],
        milliseconds(lambda: inference.beliefs(rows, scores)),
        milliseconds(lambda: inference.hessian_product(rows, scores, scores)),
        milliseconds(lambda: inference.sample(rows, scores, 10, rng)),
        milliseconds(lambda: inference.k_best(rows, scores, 10)),
    ]
    return [f"{hypergraph.n_edges:,}", f"{1e3 * seconds:.0f}", *(f"{t:.3g}" for t in times)]


def main() -> None:
    """Print the table."""
    table = Table(
        "",
        "hyperedges",
        "made in",
        "own",
        "generic",
        "ratio",
        "sums",
        "Hessian",
        "10 samples",
        "10 best",
    )
    measured(*CASES["DepTree, 20 words"])  # compiles
    for name, case in CASES.items():
        table.add_row(name, *measured(*case))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
