"""Compare the iterations of ADMM with several accelerations and those of the engine.

``python benchmarks/accelerations.py --out docs/images/accelerations.png`` solves instances of three
workloads at score scales from 0.1 to 100, one component at a time, by the engine's own loop without
its polish and acceleration. The methods add, one after the other: over-relaxation, balanced
residuals by the engine's rule, spectral step sizes (Xu, Figueiredo & Goldstein 2017), and Anderson
acceleration with a safeguard (Walker & Ni 2011). The last row is the unmodified engine.
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
from lpsmap_core.engine.admm import LoopSettings, advance_components
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.polish import make_polish
from lpsmap_core.engine.state import initial_state
from lpsmap_core.engine.step_size import balanced_step_size
from lpsmap_core.engine.stopping import CONVERGED
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.local.local_solver import SHORT_RUN

sys.path.insert(0, str(Path(__file__).parent))
from workloads import WORKLOADS

NAMES = ("matching 8x14", "tree+budget n=20", "sequence 14x20 + AtMostOne")
SCALES = (0.1, 1.0, 10.0, 100.0)

CORRELATED = 0.2
"""Correlation that the spectral step size requires of two changes."""

MEMORY = 8
"""Iterates that Anderson acceleration combines."""

SAFEGUARD = 1.5
"""An accelerated iterate is rejected if its residual is this many times that of the previous
one."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A variant of the plain loop."""

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
        """Return scaled normal numbers."""
        return self._scale * self._rng.standard_normal(size)


# -------------------------------------------------------------------- the loop, step by step


@dataclass
class Step:
    """One iteration: its start, as one number per link, and its result."""

    w: FloatArray
    """``lambda + gamma u``; an iteration depends on nothing else."""
    image: FloatArray
    z: FloatArray
    """The copies that the factors chose."""
    intermediate: FloatArray
    """The dual variables before the means move."""
    primal_residual: float
    dual_residual: float


class Loop:
    """The engine's loop on a graph of one component, one iteration at a time.

    Values on links have the order and signs of the variables.
    """

    def __init__(self, graph: FactorGraph, method: Method, tol: float) -> None:
        self.part = part = build_layout(graph.n_variables, graph.factors).part
        eta_v = part.by_bucket([graph.additional_scores(f) for f in graph.factors], graph.factors)
        scores = graph.flat_scores()[part.variables]
        state = initial_state(part, scores, eta_v, Options())
        self.progress, self.iterate = state.problem.progress, state.problem.iterate
        self._degree = np.diff(part.variable_offsets)
        self._owner = np.repeat(np.arange(part.n_variables), self._degree)
        settings = LoopSettings(0, 0, SHORT_RUN, tol, tol, False, method.relaxation)
        tools = make_polish(state, False)
        self._advance = lambda stop: advance_components(
            state, np.zeros(1, dtype=np.int64), tools, settings._replace(stop=stop)
        )

    @property
    def gamma(self) -> float:
        """The step size; setting it keeps the means and duals."""
        return float(self.progress.step_size[0])

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self.progress.step_size[0], self.progress.stale[0] = gamma, True

    @property
    def w(self) -> FloatArray:
        """The state of the loop."""
        w: FloatArray = self.iterate.duals + self.gamma * self.iterate.u[self._owner]
        return w

    @w.setter
    def w(self, w: FloatArray) -> None:
        self.iterate.u[:] = np.bincount(self._owner, w) / self._degree / self.gamma
        self.iterate.duals[:] = w - self.gamma * self.iterate.u[self._owner]
        self.progress.stale[0] = True

    def step(self) -> Step:
        """Take one iteration."""
        part, iterate, progress = self.part, self.iterate, self.progress
        w, u, dual = self.w, iterate.u[self._owner], iterate.duals.copy()
        self._advance(int(progress.iterations[0]) + 1)
        z = (part.sign * iterate.z + part.shift)[part.links.order]
        return Step(
            w=w,
            image=self.w,
            z=z,
            intermediate=dual + self.gamma * (u - z),
            primal_residual=float(progress.primal_residual[0]),
            dual_residual=float(progress.dual_residual[0]),
        )


def spectral(before: Step, step: Step, gamma: float) -> float:
    """Return the curvature of the local problems along the latest change.

    The means have no curvature, so this is the complete rule. Scores decrease as copies increase.
    """
    d_dual, d_z = step.intermediate - before.intermediate, step.z - before.z
    product, of_z, of_dual = d_dual @ d_z, d_z @ d_z, d_dual @ d_dual
    if product <= CORRELATED * np.sqrt(of_z * of_dual) or not product > 0.0:
        return gamma
    steepest, least = of_dual / product, product / of_z
    return float(least if 2.0 * least > steepest else steepest - 0.5 * least)


@dataclass
class Anderson:
    """Combines the latest iterates so that their residuals cancel."""

    steps: collections.deque[Step] = field(default_factory=lambda: collections.deque(maxlen=MEMORY))
    accelerated: bool = False

    def next(self, step: Step) -> FloatArray:
        """Return the next iterate; the last image if the latest combination was worse."""
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
        """Discard the history, for example after a change of the step size."""
        self.steps.clear()
        self.accelerated = False


def iterations(graph: FactorGraph, method: Method, tol: float, limit: int) -> float:
    """Return the number of iterations of a method; inf if the limit does not suffice."""
    loop, anderson, before = Loop(graph, method, tol), Anderson(), None
    first = loop.gamma
    for i in range(1, limit + 1):
        step, gamma = loop.step(), loop.gamma
        if loop.progress.outcome[0] == CONVERGED:
            return i
        if method.step_size == "balanced":
            residuals = step.primal_residual, step.dual_residual
            largest_score = float(loop.progress.largest_score[0])
            gamma = balanced_step_size(i, 1.0, gamma, first, *residuals, largest_score)
        elif method.step_size == "spectral" and i % 2 == 0:
            if before is not None:
                gamma = spectral(before, step, gamma)
            before = step
        if gamma != loop.gamma:
            loop.gamma = gamma
            anderson.clear()
        elif method.anderson:
            loop.w = anderson.next(step)
    return np.inf


def iterations_of_engine(graph: FactorGraph, tol: float, limit: int) -> float:
    """Return the number of iterations of the engine."""
    solution = graph.solve(tol=tol, max_iter=limit, threads=1)
    return float(solution.iterations.max()) if solution.ok else np.inf


# -------------------------------------------------------------------- the table, the picture


def draw(found: dict[str, dict[float, dict[str, FloatArray]]], out: Path) -> None:
    """Draw median and worst numbers, with a panel for every workload."""
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
@click.option("--max-iter", type=int, default=2000, help="Maximum number of iterations.")
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
