"""Count the products of gradients, and compare them with the power iteration of the paper.

``python benchmarks/products.py`` draws graphs of 2 to 40 factors of all kinds, in the way of the
tests, and prints how many products with the local Jacobians the gradient of each takes, by
component, next to the 100 that the paper's power iteration takes (Niculae & Martins 2020,
Algorithm 2). Both errors are against eigenvectors: the largest of a gradient's entries, as a
multiple of its largest entry or 1. Components of one factor take a single product, and are left
out. Kernels run uncompiled, so that their calls can be counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["LPSMAP_DISABLE_JIT"] = "1"

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap_core import Solution
from lpsmap_core.engine import backward, faces

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from dense import eigenprojection, local_jacobians
from random_graphs import random_graph

SCALES = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)

POWERS = 100
"""Products of the paper's power iteration."""


class Counter:
    """Counts the products with local Jacobians in every component's backward pass."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._total = 0
        self._multiply, self._locally = backward._multiply, backward.multiply_jacobians
        for module in (backward, faces):
            module.multiply_jacobians = self._counted(self._locally)
        backward._multiply = self._begin

    def _begin(self, *arguments: Any) -> int:
        before = self._total
        unfinished = int(self._multiply(*arguments))
        self.counts.append(self._total - before)
        return unfinished

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._total += 1  # includes the forward pass
            return function(*arguments)

        return call


def errors(solution: Solution, d: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Return the error of a gradient, and of the paper's powers, against the eigenvectors."""
    variables = solution.layout.part.variables
    s = local_jacobians(solution).s
    expected = eigenprojection(s)[0] @ d[variables]
    powers = d[variables]
    for _ in range(POWERS):
        powers = s @ powers
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    return tuple(
        float(np.abs(x - expected).max(initial=0.0)) / scale for x in (found[variables], powers)
    )


@click.command(context_settings={"show_default": True})
@click.option("--graphs", type=int, default=1000, help="Number of graphs.")
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
def main(graphs: int, seed: int) -> None:
    """Print products and errors."""
    counter, products, found = Counter(), [], []
    for i in track(range(graphs), description="solving", console=Console(stderr=True)):
        rng = np.random.default_rng(seed + i)
        drawn = random_graph(rng, int(rng.integers(2, 41)), float(rng.choice(SCALES)))
        solution = drawn.build()[0].solve(tol=1e-10, max_iter=20_000, threads=1)
        d = rng.normal(size=len(drawn.eta))
        counter.counts.clear()
        gradient, _ = solution.vjp(d)
        # components of one factor take a single product
        products += [n for n in counter.counts if n > 1]
        found.append(errors(solution, d, gradient))
    table = Table(title=f"gradients of {graphs} random graphs, {len(products)} components")
    for column in ("", "median", "99 %", "worst"):
        table.add_column(column, justify="right")
    rows = np.quantile(products, [0.5, 0.99, 1.0])
    table.add_row("products", *(f"{x:.0f}" for x in rows))
    table.add_row("products of the paper", *[str(POWERS)] * 3, end_section=True)
    for name, values in zip(("error", "error of the paper"), np.array(found).T, strict=True):
        table.add_row(name, *(f"{x:.1e}" for x in np.quantile(values, [0.5, 0.99, 1.0])))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
