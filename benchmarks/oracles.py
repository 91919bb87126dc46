"""Measure the growth of the oracle time of every structured factor with the problem size.

``python benchmarks/oracles.py`` prints microseconds for one best structure of standard normal
scores, and draws them, with the exponent between the two largest sizes in the legend. An oracle is
called on many factors at once, as the active set does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import matplotlib
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from lpsmap import (
    Alignment,
    BinaryTree,
    Bits,
    DepTree,
    FactorGraph,
    HeadAutomaton,
    Matching,
    Permutation,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    TopK,
)
from lpsmap_core import Factor, Scores, Structures, Variables
from lpsmap_core.layout.layout import build_layout

matplotlib.use("Agg")
import matplotlib.pyplot as plt

IMAGE = Path(__file__).parents[1] / "docs/images/oracles.png"

STATES = 10

Make = Callable[[FactorGraph, int, int], Factor]
"""Declares a batch of factors of size n in a graph."""


def over(shape: Callable[[int], tuple[int, ...]], make: Callable[[Variables, int], Factor]) -> Make:
    """Declare factors over variables whose shape depends on n."""
    return lambda graph, batch, n: make(graph.variable((batch, *shape(n))), n)


def square(make: Callable[[Variables], Factor]) -> Make:
    """Declare factors over n x n variables."""
    return over(lambda n: (n, n), lambda u, n: make(u))


def chain(make: Callable[[Variables, int], Factor]) -> Make:
    """Declare factors over n positions of a few states."""
    return over(lambda n: (n, STATES), make)


STEPS = np.random.default_rng(1).standard_normal((STATES, STATES))

ORACLES: dict[str, Make] = {
    "DepTree": square(DepTree),
    "DepTree, single root": square(lambda u: DepTree(u, single_root=True)),
    "DepTree, projective": square(lambda u: DepTree(u, projective=True)),
    "BinaryTree": square(BinaryTree),
    "Matching": square(Matching),
    "Alignment": square(Alignment),
    "HeadAutomaton": over(
        lambda n: (n,), lambda u, n: HeadAutomaton(u, np.resize(STEPS, (n + 1, n + 1)))
    ),
    "Sequence": chain(lambda u, n: Sequence(u, STEPS)),
    "SequenceBudget, n / 2": chain(lambda u, n: SequenceBudget(u, STEPS, n // 2)),
    "SequenceDistance": chain(lambda u, n: SequenceDistance(u, STEPS[0, :5])),
    "SemiMarkov": over(lambda n: (n, 5, STATES), lambda u, n: SemiMarkov(u, STEPS)),
    "Permutation": over(lambda n: (n,), lambda u, n: Permutation(u)),
    "Bits": over(lambda n: (n,), lambda u, n: Bits(u)),
    "TopK, n / 2": over(lambda n: (n,), lambda u, n: TopK(u, n // 2)),
}
"""Sequences have 10 states, segments up to 5 positions, distances 2 to either side."""


def microseconds(make: Make, n: int, batch: int, rng: np.random.Generator) -> float:
    """Return the time per best structure: the minimum of a few calls on a batch."""
    graph = FactorGraph()
    factor = make(graph, batch, n)
    part = build_layout(graph.n_variables, [factor]).part
    (bucket,) = part.buckets
    width = factor.vertex_sizes(bucket.factors)
    start = np.append(0, np.cumsum(width))[:-1]
    entry, value = np.empty(width.sum(), dtype=np.int32), np.empty(width.sum())
    structures = Structures(start, entry, value, np.empty_like(start))
    scores = Scores(rng.standard_normal(bucket.n_links), np.zeros(0))
    if bucket.n_additionals:
        extra = [np.asarray(factor.additionals).reshape(batch, -1)]
        scores = scores._replace(eta_v=part.by_bucket(extra, [factor]))
    assert factor.map_kernel is not None
    taken = []
    for _ in range(4):
        begin = time.perf_counter()
        factor.map_kernel(np.arange(batch), bucket.factors, scores, structures)
        taken.append(time.perf_counter() - begin)
    return 1e6 * min(taken) / batch


def growth(make: Make, sizes: npt.NDArray[np.int64]) -> list[float]:
    """Return microseconds for every size."""
    rng = np.random.default_rng(0)
    return [microseconds(make, n, max(1, 50_000 // n**2), rng) for n in sizes.tolist()]


def draw(times: dict[str, list[float]], sizes: npt.NDArray[np.int64], path: Path) -> None:
    """Plot all oracles on logarithmic axes."""
    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    for number, (name, values) in enumerate(times.items()):
        slope = np.log(values[-1] / values[-2]) / np.log(sizes[-1] / sizes[-2])
        style = {"marker": "os^v"[number % 4], "color": f"C{number % 10}", "markersize": 4}
        axis.loglog(sizes, values, label=rf"{name}: $n^{{{slope:.1f}}}$", **style)
    axis.set_xlabel("n: words, positions, rows or items")
    axis.set_ylabel("microseconds for the best structure")
    axis.set_xticks(sizes, labels=[str(n) for n in sizes])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--largest", type=click.IntRange(min=16), default=128, help="Largest n.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=IMAGE,
              show_default="docs/images/oracles.png")  # fmt: skip
def main(largest: int, out: Path) -> None:
    """Time every oracle at doubling sizes, print and draw."""
    sizes = 2 ** np.arange(3, int(np.log2(largest)) + 1)
    times = {name: growth(make, sizes) for name, make in ORACLES.items()}
    table = Table(title="microseconds for one best structure")
    table.add_column("oracle")
    for n in sizes:
        table.add_column(f"n={n}", justify="right")
    for name, values in times.items():
        table.add_row(name, *(f"{value:.1f}" for value in values))
    Console().print(table)
    draw(times, sizes, out)


if __name__ == "__main__":
    main()
