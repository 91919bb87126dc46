"""Print the kernels that searches call beside those that `call_kernels` calls: a process of a test.

It also prints the number of the latter.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import numpy as np

from lpsmap import AtMostOne, Budget, Dense, DepTree, FactorGraph, Pair, Xor
from lpsmap_decode.compile_searches import call_kernels
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.portfolio import ALL, LINEAR_IMPROVING, STRICT_TABLES
from lpsmap_jit.compile import Kernel

OF_SEARCHES = tuple(
    f"lpsmap_decode.{name}"
    for name in ("counts.simplex", "heuristics", "networks.blocks", "networks.bounds")
    + ("networks.cycles", "networks.elimination", "networks.moves")
)
"""Modules whose kernels searches alone call; those of others are called by examples of types."""


def signatures() -> dict[str, set[Any]]:
    """Return the compiled signatures of the kernels of searches that Python called."""
    return {
        f"{kernel.__module__}.{kernel.__name__}": set(kernel.overloads)
        for module in list(sys.modules.values())
        for kernel in vars(module).values()
        if isinstance(kernel, Kernel) and kernel.__module__.startswith(OF_SEARCHES)
    }


def grid(side: int, states: int) -> FactorGraph:
    """Return a grid of multi-state variables."""
    graph, rng = FactorGraph(), np.random.default_rng(0)
    u = graph.variable_from(rng.standard_normal((side, side, states)))
    graph.add(Xor(u))
    for x, y in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        graph.add(Dense([x, y], 3.0 * rng.standard_normal((*x.shape[:2], states, states))))
    return graph


def tree() -> FactorGraph:
    """Return a dependency tree with budgets and scores of neighbouring arcs."""
    graph, rng = FactorGraph(), np.random.default_rng(0)
    u = graph.variable_from(rng.standard_normal((8, 8)))
    graph.add(DepTree(u))
    graph.add(Budget(u, 2, axis=1))
    graph.add(Pair(u[:, :-1], u[:, 1:], rng.standard_normal((8, 7))))
    return graph


def matching() -> FactorGraph:
    """Return a matching with a budget across its rows and columns."""
    graph, rng = FactorGraph(), np.random.default_rng(0)
    u = graph.variable_from(rng.standard_normal((8, 8)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.add(Budget(u[:4, :5].reshape(-1), 3))
    return graph


def main() -> None:
    """Call all searches, each for a few steps."""
    call_kernels()
    compiled, linear = signatures(), ALL + LINEAR_IMPROVING
    for graph, heuristics in (
        (grid(5, 3), STRICT_TABLES),
        (grid(7, 4), STRICT_TABLES),
        (tree(), linear),
        (matching(), linear),
    ):
        scored, means = graph.scored_graph(), graph.solve_map().values.reshape(-1)
        part = scored.layout.part
        component = Component(part, *scored.of_part(), part.of_graph(means))
        for heuristic in heuristics:
            for _ in islice(heuristic(component), 30):
                pass
        graph.solve_map(exact=True, max_nodes=50)
        graph.k_best(3, max_nodes=50)
    late = {name: kinds - compiled.get(name, set()) for name, kinds in signatures().items()}
    print(sum(map(bool, compiled.values())), [name for name, kinds in late.items() if kinds])


if __name__ == "__main__":
    main()
