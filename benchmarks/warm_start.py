"""Measure the savings of warm starts in a training run.

``python benchmarks/warm_start.py`` trains linear models of arc scores to reproduce structures, by
stochastic gradient descent on the LP-SparseMAP loss, and solves every batch twice: cold, and from
their solutions of the previous epoch. For every epoch it prints the change of the scores, the mean
iterations of an example, and milliseconds of building and solving a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from lpsmap import (
    AtMostOne,
    Budget,
    DepTree,
    FactorGraph,
    Solution,
    Variables,
    Xor,
)

FloatArray = npt.NDArray[np.float64]
Build = Callable[[FloatArray], tuple[FactorGraph, Variables]]

FEATURES, SHARPNESS, FIRST_RATE = 20, 5.0, 0.02


def matching(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    """Xor on every row, AtMostOne on every column."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    return graph, u


def tree(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    """Non-projective tree with at most five modifiers a head."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u))
    graph.add(Budget(u, 5, axis=1, mask=~np.eye(scores.shape[-1], dtype=bool)))
    return graph, u


WORKLOADS: dict[str, tuple[Build, tuple[int, int]]] = {
    "matching 8x14": (matching, (8, 14)),
    "tree+budget n=20": (tree, (20, 20)),
    "tree+budget n=50": (tree, (50, 50)),
}


class Run:
    """One training run, solved cold and warm.

    Parameters
    ----------
    build
        Builds a graph from a batch of scores.
    shape
        Shape of an example's scores.
    examples, batch
        Number of examples, and of those solved at a time.
    tol
        Tolerance of the solves.
    """

    def __init__(
        self, build: Build, shape: tuple[int, int], examples: int, batch: int, tol: float
    ) -> None:
        self.rng = np.random.default_rng(0)
        self.build, self.batch, self.tol = build, batch, tol
        self.features = self.rng.standard_normal((examples, *shape, FEATURES))
        true = self.features @ self.rng.standard_normal(FEATURES)
        self.gold = build(SHARPNESS * true)[0].solve(tol=tol).values.reshape(true.shape)
        self.weights = np.zeros(FEATURES)
        self.starts: dict[int, Solution] = {}
        self.latest = np.zeros(true.shape)

    def epoch(self, rate: float) -> tuple[float, float, float, float, float]:
        """Train for an epoch; return drift, and iterations and milliseconds, cold and warm."""
        cold, warm, drift = [], [], []
        batches = np.array_split(np.arange(len(self.gold)), len(self.gold) // self.batch)
        for b in self.rng.permutation(len(batches)).tolist():
            chosen = batches[b]
            scores = self.features[chosen] @ self.weights
            drift.append(np.sqrt(np.mean((scores - self.latest[chosen]) ** 2)))
            self.latest[chosen] = scores
            cold.append(self._solve(scores))
            warm.append(self._solve(scores, self.starts.get(b)))
            solution = self.starts[b] = warm[-1][0]
            error = solution.values.reshape(scores.shape) - self.gold[chosen]
            assert np.abs(solution.values - cold[-1][0].values).max() < 100 * self.tol
            self.weights -= rate * np.einsum("bij,bijk->k", error, self.features[chosen])
        iterations = [np.mean([s.iterations.mean() for s, _ in runs]) for runs in (cold, warm)]
        times = [1e3 * float(np.median([t for _, t in runs])) for runs in (cold, warm)]
        return float(np.mean(drift)), *map(float, iterations), *times

    def _solve(self, scores: FloatArray, start: Solution | None = None) -> tuple[Solution, float]:
        begin = time.perf_counter()
        graph, _ = self.build(scores)
        solution = graph.solve(tol=self.tol, warm_start=start)
        return solution, time.perf_counter() - begin


@click.command(context_settings={"show_default": True})
@click.option("--examples", type=int, default=64, help="Number of examples.")
@click.option("--batch", type=int, default=16, help="Examples of a batch.")
@click.option("--epochs", type=int, default=8, help="Number of epochs.")
@click.option("--tol", type=float, default=1e-6, help="Tolerance of the solves.")
@click.option("--only", default="", help="Only workloads whose name contains this.")
def main(examples: int, batch: int, epochs: int, tol: float, only: str) -> None:
    """Print iterations and times by epoch."""
    table = Table(title=f"{examples} examples in batches of {batch}, to {tol:g}")
    for column in ("workload", "epoch", "drift", "cold", "warm", "cold ms", "warm ms", "saved"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for name, (build, shape) in WORKLOADS.items():
        if only not in name:
            continue
        build(np.zeros((1, *shape)))[0].solve()  # compiles or loads kernels
        run = Run(build, shape, examples, batch, tol)
        for epoch in range(1, epochs + 1):
            drift, cold, warm, cold_ms, warm_ms = run.epoch(FIRST_RATE / shape[0] / epoch)
            table.add_row(
                name if epoch == 1 else "",
                str(epoch),
                f"{drift:.1e}",
                f"{cold:.1f}",
                f"{warm:.1f}",
                f"{cold_ms:.1f}",
                f"{warm_ms:.1f}",
                f"{100 * (1 - warm_ms / cold_ms):.0f} %",
                end_section=epoch == epochs,
            )
    Console(width=100).print(table)
    Console().print("cold, warm: mean iterations; drift: of the scores since the last epoch")


if __name__ == "__main__":
    main()
