"""Count the iterations of ADMM with accelerations that the engine does not have, and with its own.

``python benchmarks/accelerations.py --out docs/images/accelerations.png`` solves instances of three
workloads at score scales from 0.1 to 100, one component at a time, by a loop in Python around the
engine's own local solvers. To the plain loop it adds one thing after the other: over-relaxation,
balanced residuals, spectral step sizes (Xu, Figueiredo & Goldstein 2017), and Anderson acceleration
with a safeguard (Walker & Ni 2011). The last row is the engine. An iteration solves every local
problem once, whatever else it does.
"""

from __future__ import annotations

import collections
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import ConvergenceWarning, FactorGraph
from lpsmap_core.engine.admm import BALANCE_FACTOR, BALANCE_PERIOD, BALANCE_RATIO, INNER_ITERATIONS
from lpsmap_core.engine.state import Options, PartState, start
from lpsmap_core.layout.layout import build_layout

sys.path.insert(0, str(Path(__file__).parent))
from workloads import WORKLOADS

NAMES = ("matching 8x14", "tree+budget n=20", "sequence 14x20 + AtMostOne")
SCALES = (0.1, 1.0, 10.0, 100.0)

CORRELATED = 0.2
"""Of the spectral step size: how well two changes have to agree to be believed."""

MEMORY = 8
"""Iterates that Anderson acceleration combines."""

SAFEGUARD = 1.5
"""An accelerated iterate is given up if it moves this many times as far as the one before did."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """What is added to the plain loop."""

    relaxation: float = 1.0
    step_size: str = "fixed"
    """Or ``balanced``, or ``spectral``."""
    anderson: bool = False


METHODS = {
    "plain": Method(),
    "relaxed 1.6": Method(1.6),
    "relaxed 1.8": Method(1.8),
    "relaxed 1.6, balanced": Method(1.6, "balanced"),
    "spectral": Method(1.0, "spectral"),
    "relaxed 1.6, spectral": Method(1.6, "spectral"),
    "balanced, Anderson": Method(1.0, "balanced", anderson=True),
    "relaxed 1.6, balanced, Anderson": Method(1.6, "balanced", anderson=True),
}
ENGINE = "the engine, which also polishes"


class ScaledNormal:
    """Draws normal numbers times a scale, for the workloads."""

    def __init__(self, scale: float, seed: int) -> None:
        self._scale, self._rng = scale, np.random.default_rng(seed)

    def standard_normal(self, size: int | tuple[int, ...]) -> FloatArray:
        """Return such numbers."""
        return self._scale * self._rng.standard_normal(size)


# -------------------------------------------------------------------- the loop, in Python


@dataclass
class Step:
    """One iteration: where it started, as one number a link, and where it led."""

    w: FloatArray
    """``lambda + gamma u``, which is all that an iteration depends on."""
    image: FloatArray
    z: FloatArray
    """The copies that the factors chose."""
    intermediate: FloatArray
    """The multipliers before the means move."""
    primal: float
    change: float
    solved: bool


class Loop:
    """ADMM on a graph that is one component; numbers on links are in the signs of the variables."""

    def __init__(self, graph: FactorGraph) -> None:
        part = build_layout(graph.n_variables, graph.factors).part
        scores = graph.flat_scores()[part.variables]
        eta_v = [
            bucket.scores([graph.additional_scores(f) for f in bucket.declarations])
            for bucket in part.buckets
        ]
        self.state: PartState = start(part, scores, eta_v, Options())
        self.part, self.gamma = part, float(self.state.problem.progress.gamma[0])
        self._degree = np.diff(part.variable_offsets)

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means over the links of every variable."""
        part = self.part
        return np.bincount(part.link_variable, values, part.n_variables) / self._degree

    def iterate(self, w: FloatArray, relaxation: float) -> Step:
        """Take one iteration from ``lambda + gamma u``."""
        part, iterate, extras = self.part, self.state.problem.iterate, self.state.problem.extras
        owner, gamma = part.link_variable, self.gamma
        u = self.mean(w) / gamma
        dual = w - gamma * u[owner]
        a = part.sign * ((iterate.score[owner] + w) / (1.0 + gamma)) + part.shift
        scaled, solved = extras.eta / (1.0 + gamma), True
        for b, (bucket, solver) in enumerate(zip(part.buckets, self.state.solvers, strict=True)):
            links, additionals = self.state.links_of(b), self.state.additionals_of(b)
            rows, v = np.arange(bucket.n_factors), extras.v[additionals]
            local, z = a[links], iterate.z[links]
            solver.solve(rows, local, scaled[additionals], z, v, INNER_ITERATIONS)
            solved &= not solver.unsolved().size
        z = part.sign * iterate.z + part.shift
        means = self.mean(z)
        gap = means[owner] - z
        relaxed = relaxation * means + (1.0 - relaxation) * u
        return Step(
            w=w,
            image=dual + relaxation * gamma * gap + gamma * relaxed[owner],
            z=z,
            intermediate=dual + gamma * (u[owner] - z),
            primal=float(np.abs(part.delta * gap).max()),
            change=gamma * float(np.abs(part.root_degree * (means - u)).max()),
            solved=solved,
        )

    def restart(self, step: Step, gamma: float) -> FloatArray:
        """Return where a step led, for another step size."""
        u = self.mean(step.image) / self.gamma
        dual = step.image - self.gamma * u[self.part.link_variable]
        self.gamma = gamma
        return dual + gamma * u[self.part.link_variable]


def balanced(step: Step, gamma: float) -> float:
    """Return the step size of the engine's rule."""
    if step.primal > BALANCE_RATIO * step.change:
        return gamma * BALANCE_FACTOR
    return gamma / BALANCE_FACTOR if step.change > BALANCE_RATIO * step.primal else gamma


def spectral(before: Step, step: Step, gamma: float) -> float:
    """Return the curvature of the local problems along what happened lately.

    The means have no curvature, so that it is the whole of the rule. Scores fall as copies rise.
    """
    d_dual, d_z = step.intermediate - before.intermediate, step.z - before.z
    product, of_z, of_dual = d_dual @ d_z, d_z @ d_z, d_dual @ d_dual
    if product <= CORRELATED * np.sqrt(of_z * of_dual) or not product > 0.0:
        return gamma
    steepest, least = of_dual / product, product / of_z
    return float(least if 2.0 * least > steepest else steepest - 0.5 * least)


@dataclass
class Anderson:
    """Combines the latest iterates to where their moves would cancel."""

    steps: collections.deque[Step] = field(default_factory=lambda: collections.deque(maxlen=MEMORY))
    accelerated: bool = False

    def next(self, step: Step) -> FloatArray:
        """Return where to go on; back to the last image if the latest combination was worse."""
        moved = float(np.linalg.norm(step.image - step.w))
        if self.accelerated and self.steps:
            latest = self.steps[-1]
            if moved > SAFEGUARD * np.linalg.norm(latest.image - latest.w):
                self.clear()
                return latest.image
        self.steps.append(step)
        if len(self.steps) < 2:
            return step.image
        moves = np.array([s.image - s.w for s in self.steps])
        weights = np.linalg.lstsq(np.diff(moves, axis=0).T, moves[-1], rcond=1e-10)[0]
        images = np.array([s.image for s in self.steps])
        self.accelerated = True
        combined: FloatArray = step.image - weights @ np.diff(images, axis=0)
        return combined

    def clear(self) -> None:
        """Forget what was found, with another step size, say."""
        self.steps.clear()
        self.accelerated = False


def iterations(graph: FactorGraph, method: Method, tol: float, limit: int) -> float:
    """Return how many iterations a method takes; inf if the limit does not suffice."""
    loop, anderson = Loop(graph), Anderson()
    w, before = np.zeros(loop.part.n_links), None
    for i in range(1, limit + 1):
        step = loop.iterate(w, method.relaxation)
        if step.solved and max(step.primal, step.change) <= tol:
            return i
        w, gamma = step.image, loop.gamma
        if method.step_size == "balanced" and i % BALANCE_PERIOD == 0:
            gamma = balanced(step, gamma)
        elif method.step_size == "spectral" and i % 2 == 0:
            if before is not None:
                gamma = spectral(before, step, gamma)
            before = step
        if gamma != loop.gamma:
            w = loop.restart(step, gamma)
            anderson.clear()
        elif method.anderson:
            w = anderson.next(step)
    return np.inf


def iterations_of_engine(graph: FactorGraph, tol: float, limit: int) -> float:
    """Return how many iterations the engine takes."""
    solution = graph.solve(tol=tol, max_iter=limit, threads=1)
    return float(solution.iterations.max()) if solution.ok else np.inf


# -------------------------------------------------------------------- the table, the picture


def draw(found: dict[str, dict[float, dict[str, FloatArray]]], out: Path) -> None:
    """Draw median and worst, a panel for every workload."""
    figure, axes = plt.subplots(1, len(found), figsize=(12, 4.2), sharey=True, layout="constrained")
    for axis, (name, by_scale) in zip(axes, found.items(), strict=True):
        for i, method in enumerate([*METHODS, ENGINE]):
            medians = [np.median(counts[method]) for counts in by_scale.values()]
            worst = [counts[method].max() for counts in by_scale.values()]
            own = method == ENGINE
            color = "black" if own else f"C{i}"
            axis.plot(list(by_scale), medians, "o-", color=color, label=method, markersize=4)
            axis.plot(list(by_scale), worst, "v:", color=color, markersize=4, linewidth=0.8)
        axis.set(title=name, xlabel="scale of the scores", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("iterations to 1e-6: median (circles), worst")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(out, dpi=130)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--instances", type=int, default=12, help="Instances of every workload and scale.")
@click.option("--tol", type=float, default=1e-6, help="Tolerance.")
@click.option("--max-iter", type=int, default=2000, help="Limit of the iterations.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to save the picture.")
def main(instances: int, tol: float, max_iter: int, out: Path | None) -> None:
    """Print iterations by workload, method and scale."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    runs: dict[str, Callable[[FactorGraph], float]] = {
        name: lambda graph, m=method: iterations(graph, m, tol, max_iter)
        for name, method in METHODS.items()
    }
    runs[ENGINE] = lambda graph: iterations_of_engine(graph, tol, max_iter)
    found: dict[str, dict[float, dict[str, FloatArray]]] = {}
    cases = [(name, scale) for name in NAMES for scale in SCALES]
    for name, scale in track(cases, description="solving", console=Console(stderr=True)):
        build = next(workload.build for workload in WORKLOADS if workload.name == name)
        makes = [build(1, ScaledNormal(scale, seed)) for seed in range(instances)]
        counts = {how: np.array([run(make()) for make in makes]) for how, run in runs.items()}
        found.setdefault(name, {})[scale] = counts
    table = Table(title=f"iterations to {tol:g} of {instances} instances: median / worst")
    for column in ("workload", "method", *(f"scale {scale:g}" for scale in SCALES)):
        table.add_column(column)
    for name, by_scale in found.items():
        for how in runs:
            cells = [
                " / ".join(f"{x:.0f}" if x < np.inf else "-" for x in (np.median(c), c.max()))
                for c in (counts[how] for counts in by_scale.values())
            ]
            table.add_row(name, how, *cells, end_section=how == ENGINE)
    Console(width=140).print(table)
    if out is not None:
        draw(found, out)


if __name__ == "__main__":
    main()
