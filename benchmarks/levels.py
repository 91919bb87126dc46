"""Measure the levels of override side by side, on one factor type.

``python benchmarks/levels.py`` prints the table of the tutorial on factor types: microseconds a
factor of solving and of the backward pass for `Budget` with nothing but a Python oracle (level 1),
with a compiled oracle (2), and with its closed form on arrays and as a kernel (3). Alone, a factor
is solved once; in a grid, where every variable is in a row's budget and in a column's, it is solved
once an iteration. On a shared machine, only the ratios to level 1 in the same run are meaningful.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import Budget, Factor, FactorGraph, Solution
from lpsmap_core import Factors, Scores, Structures, kernel

N, B = 12, 3


@kernel
def _best(rows: Any, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Choose the best variables, or fewer if fewer score above 0, one after the other."""
    offsets, parameters, eta_u = factors.offsets, factors.parameters, scores.eta_u
    start, entry, value, size = structures
    for r in rows:
        lo, hi = offsets[r], offsets[r + 1]
        taken = np.zeros(hi - lo, dtype=np.bool_)
        size[r] = 0
        for _ in range(int(parameters[r, 0])):
            top = -1
            for i in range(hi - lo):
                better = eta_u[lo + i] > (eta_u[lo + top] if top >= 0 else 0.0)
                if better and not taken[i]:
                    top = i
            if top < 0:
                break
            taken[top] = True
            entry[start[r] + size[r]], value[start[r] + size[r]] = top, 1.0
            size[r] += 1


class Level1(Budget):
    """A budget with a Python oracle."""

    projection_kernel = None
    jvp_kernel = None
    solve_sparsemap = classmethod(Factor.solve_sparsemap.__func__)
    jvp = classmethod(Factor.jvp.__func__)


class Level2(Level1):
    """A budget with a compiled oracle."""

    map_kernel = staticmethod(_best)


class Level3Arrays(Budget):
    """A budget in closed form, in array-API code."""

    projection_kernel = None
    jvp_kernel = None


LEVELS = {
    "1 Python oracle": Level1,
    "2 compiled oracle": Level2,
    "3 closed form on arrays": Level3Arrays,
    "3 closed form compiled": Budget,
}


def alone(factor_type: type[Budget], batch: int) -> FactorGraph:
    """Return a graph of factors without shared variables."""
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(batch, N)))
    graph.add(factor_type(u, B))
    return graph


def grid(factor_type: type[Budget], batch: int) -> FactorGraph:
    """Return a graph with as many factors, in squares: half for rows and half for columns."""
    graph = FactorGraph()
    squares = max(1, batch // (2 * N))
    u = graph.variable_from(np.random.default_rng(0).normal(size=(squares, N, N)))
    graph.add(factor_type(u, B))
    graph.add(factor_type(u, B, axis=1))
    return graph


def measure(build: Callable[[], FactorGraph], runs: int) -> float:
    """Return microseconds a factor of building, solving and the backward pass; the best run."""
    best = np.inf
    for _ in range(runs + 1):  # the first run compiles or loads kernels
        start = time.perf_counter()
        solution: Solution = build().solve(threads=1)
        solution.vjp(2 * solution.values)
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / sum(factor.n_factors for factor in solution.factors)


@click.command(context_settings={"show_default": True})
@click.option("--batch", "batches", type=int, multiple=True, default=(1, 64, 1024))
@click.option("--runs", type=int, default=5, help="Runs to take the best of.")
def main(batches: tuple[int, ...], runs: int) -> None:
    """Print the table of levels."""
    cases = [("alone", alone, batch) for batch in batches]
    cases += [("in a grid", grid, batch) for batch in batches if batch >= 2 * N]
    table = Table(title=f"Budget of {B} in {N} variables, one thread, best of {runs} runs")
    for column in ("level", *(f"{name}, {batch}" for name, _, batch in cases)):
        table.add_column(column, justify="left" if column == "level" else "right")
    base: dict[str, float] = {}
    for level, factor_type in track(LEVELS.items(), "measuring", console=Console(stderr=True)):
        row = [level]
        for name, build, batch in cases:
            took = measure(lambda b=build, n=batch, t=factor_type: b(t, n), runs)
            ratio = base.setdefault(f"{name}{batch}", took) / took
            row.append(f"{took:.1f} us ({ratio:.1f}x)")
        table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
