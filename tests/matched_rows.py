"""Solve tables of variables with a factor for each row and each column, in every way.

To be run in a process of its own, with memory that is overwritten when it is freed::

    MALLOC_PERTURB_=165 PYTHONMALLOC=malloc python tests/matched_rows.py 20 24 Xor Budget
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_factors_logic import AtMostOne, Budget, Imply, Knapsack, Nand, Or, Xor, XorOut

ROWS: dict[str, Callable[[Variables], Factor]] = {
    "Xor": Xor,
    "AtMostOne": AtMostOne,
    "Or": Or,
    "Budget": lambda u: Budget(u, 2),
    "Knapsack": lambda u: Knapsack(u, np.arange(1.0, u.shape[1] + 1.0), 9.0),
    "Imply": Imply,
    "Nand": Nand,
    "XorOut": XorOut,
}
"""Types whose factors are one for each row."""

SECONDS = 0.2
"""Limit for each way: enough for memory to be made, freed and taken again."""


def solved(rows: str, shape: tuple[int, int]) -> Iterator[str]:
    """Solve in one way after the other, and yield its name before that."""
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal(shape))
    graph.add(ROWS[rows](u))
    graph.add(AtMostOne(u, axis=0))
    for _ in range(2):
        yield "LP-MAP"
        relaxed = graph.solve_map(max_time=SECONDS, threads=1)
        yield "decoding"
        relaxed.decode(max_time=SECONDS, threads=1)
        yield "exact search"
        graph.solve_map(exact=True, max_time=SECONDS, threads=1)
        yield "k best"
        graph.k_best(3, max_time=SECONDS, threads=1)
        graph.rescore(u, rng.standard_normal(shape))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what the limits cut short
    height, width, *names = sys.argv[1:]
    for name in names or ROWS:
        for way in solved(name, (int(height), int(width))):
            print(f"{name}: {way}", flush=True)
    print("done")
