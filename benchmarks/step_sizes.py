"""Show the effect of step sizes on the residuals of three workloads.

``python benchmarks/step_sizes.py --out docs/images/iterations.png`` solves a batch of each by ADMM
at several fixed step sizes, at the one that the scale of the scores suggests, and by the engine. It
draws the median residual over the batch against the iterations, and prints the iterations to 1e-6
and 1e-9.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from lpsmap import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parent))
from workloads import WORKLOADS

NAMES = ("matching 8x14", "tree+budget n=20", "sequence 14x20 + AtMostOne")

METHODS: dict[str, dict[str, Any]] = {
    "fixed at 0.1": {"adapt": False, "step_size": 0.1},
    "fixed at 0.5": {"adapt": False, "step_size": 0.5},
    "fixed at 2": {"adapt": False, "step_size": 2.0},
    "fixed at 10": {"adapt": False, "step_size": 10.0},
    "fixed by the scores' scale": {"adapt": False},
    "the engine": {},
}

TOLERANCES = (1e-6, 1e-9)

FLOOR = 1e-11
"""Smaller residuals are drawn at this value, since a polish leaves only rounding errors."""

Residuals = NDArray[np.float64]


def residuals(name: str, options: dict[str, Any], batch: int, max_iter: int) -> Residuals:
    """Return the larger residual of every instance after every iteration."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    graph = workload.build(batch, np.random.default_rng(0))()
    solution = graph.solve(tol=TOLERANCES[-1], max_iter=max_iter, trace=True, threads=1, **options)
    assert solution.trace is not None
    larger: Residuals = solution.trace.max(axis=1)
    return larger


def first_below(larger: Residuals, tol: float) -> Residuals:
    """Return the first iteration of each instance within a tolerance; inf if there is none."""
    below = larger <= tol
    return np.where(below.any(axis=0), below.argmax(axis=0) + 1.0, np.inf)


def draw(found: dict[str, dict[str, Residuals]], out: Path) -> None:
    """Draw the median residuals, with a panel for every workload."""
    figure, axes = plt.subplots(1, len(found), figsize=(12, 3.6), sharey=True, layout="constrained")
    for axis, (name, by_method) in zip(axes, found.items(), strict=True):
        for method, larger in by_method.items():
            median = np.maximum(np.median(larger, axis=1), FLOOR)
            own = method == "the engine"
            axis.plot(
                np.arange(1, len(median) + 1),
                median,
                label=method,
                color="black" if own else None,
                marker="o" if len(median) == 1 else None,  # a start from multipliers
                linewidth=2.0 if own else 1.2,
            )
        axis.set(title=name, xlabel="iteration", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("larger residual, median")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.savefig(out, dpi=130)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--batch", type=int, default=50, help="Instances of every workload.")
@click.option("--max-iter", type=int, default=2000, help="Maximum number of iterations.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to save the picture.")
def main(batch: int, max_iter: int, out: Path | None) -> None:
    """Print iterations by workload and method, and draw the residuals."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    found: dict[str, dict[str, Residuals]] = {}
    table = Table(title=f"iterations of {batch} instances: median / worst")
    for column in ("workload", "step size", *(f"to {tol:g}" for tol in TOLERANCES)):
        table.add_column(column)
    for name in NAMES:
        found[name] = {}
        for method, options in METHODS.items():
            larger = found[name][method] = residuals(name, options, batch, max_iter)
            cells = []
            for tol in TOLERANCES:
                numbers = np.quantile(first_below(larger, tol), [0.5, 1.0], method="higher")
                shown = [f"{x:.0f}" if x < np.inf else f"> {max_iter}" for x in numbers]
                cells.append(" / ".join(shown))
            table.add_row(name, method, *cells, end_section=method == list(METHODS)[-1])
    Console(width=100).print(table)
    if out is not None:
        draw(found, out)


if __name__ == "__main__":
    main()
