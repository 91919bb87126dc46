"""Solve random graphs for a time, and hold every answer against independent judges.

``python tests/stress.py --minutes 30`` draws graphs of all installed factor types: masks, lengths,
negations, ties, forbidden variables, duplicates, contradictions, at score scales from 1e-8 to 1e8.
The judges share no code with the engine: a linear program says whether a component has a solution,
an interior point on enumerated structures which one, eigenvectors what its derivatives are, and
differences of the interior point's solutions what they are again. It ends with exit code 1 if an
answer is wrong, if a warning has no status that explains it, or if a graph takes more than a
minute. What it prints about a failure names the seed; ``--only SEED`` repeats it.
"""

from __future__ import annotations

import collections
import faulthandler
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import judges
from dense import DenseJacobian
from lpsmap import ConvergenceWarning, Solution, Status
from lpsmap_core.compile import CompilationNotice
from stress_graphs import StressGraph, draw_graph

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TOLERANCE = 1e-9
"""What graphs are solved to."""

CLOSE = 1e-6
"""Allowed error of a marginal, or of the objective relative to the scores' magnitude: a thousand
times what is solved to, since how far copies that nearly agree are from ones that do depends on the
constraints."""

ROUNDING = 1e-12
"""Allowed error besides, relative to the largest score: the solution is a 1-Lipschitz function of
the scores, which sums of some thousand terms round at 2e-16 of the largest each."""

AGREEMENT = 1e-7
"""Allowed error of the objective besides, relative to the largest score: copies agree within
`TOLERANCE` only, and their disagreement is worth as much as the multipliers."""

UNFINISHED = 1e6
"""Scale of scores from which on the loop may end at its limit, contradictions included: it says so.
Below it, a contradiction has to be found."""

GRADIENT = 1e-8
"""Allowed error of derivatives against eigenvectors, and of differences 1e-5."""


@dataclass
class Report:
    """What came of one graph."""

    seed: int
    graph: StressGraph
    wrong: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    unjudged: int = 0
    """Components of which the judges could not say anything."""
    error: float = 0.0
    """Largest error of a marginal."""
    gradient_error: float = 0.0
    differences: int = 0
    """Gradients compared with differences of the judge's solutions."""


# -------------------------------------------------------------------- hangs


class Watchdog:
    """Ends the process when a graph takes too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    @contextmanager
    def watch(self, seed: int) -> Iterator[None]:
        """Watch over what is done with the graph of a seed."""
        timer = threading.Timer(self._seconds, self._end, [seed, time.process_time()])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self, seed: int, before: float) -> None:
        busy = time.process_time() - before  # little on a machine that had no time for us
        print(
            f"\nseed {seed}: no answer within {self._seconds:g} s, {busy:.1f} s of them busy",
            file=sys.stderr,
        )
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)


# -------------------------------------------------------------------- judging


@dataclass(frozen=True)
class Component:
    """A connected component: its variables, and its factors over their positions among these."""

    variables: IntArray
    numbers: list[int]
    """Of its factors, among all of the graph."""
    factors: list[judges.EnumeratedFactor]

    def solve(self, eta: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Return its marginals, for these scores of all variables, and its factors' additionals."""
        mu, nus, _ = judges.solve_graph(eta[self.variables], self.factors, 1e-10, centred=True)
        return mu, nus


def components_of(n_variables: int, factors: list[judges.EnumeratedFactor]) -> list[Component]:
    """Split enumerated factors by the variables that they share."""
    places = [np.asarray(f.variables, dtype=np.int64) for f in factors]
    pairs = [(p[0], v) for p in places if len(p) for v in p]
    if not pairs:
        return []
    ends = np.array(pairs).T
    shape = n_variables, n_variables
    _, label = connected_components(coo_array((np.ones(len(pairs)), tuple(ends)), shape), False)
    found = []
    for component in dict.fromkeys(label[np.unique(ends)]):
        variables = np.flatnonzero(label == component)
        position = np.zeros(n_variables, dtype=np.int64)
        position[variables] = np.arange(len(variables))
        numbers = [i for i, p in enumerate(places) if len(p) and label[p[0]] == component]
        mine = [factors[i]._replace(variables=position[places[i]]) for i in numbers]
        found.append(Component(variables, numbers, mine))
    return found


def check_component(
    report: Report, solution: Solution, component: Component, eta: FloatArray
) -> None:
    """Hold one component's status, marginals, additionals and bound against the judges."""
    number = int(solution.layout.component[component.variables[0]])
    status = solution.status[number]
    report.statuses.append(status.name)
    try:
        feasible = judges.is_feasible(len(component.variables), component.factors)
        if status is Status.ITERATION_LIMIT and report.graph.scale >= UNFINISHED:
            return
        if feasible == (status is Status.INFEASIBLE) or (status.ok and not feasible):
            report.wrong.append(f"{status.name}, but the linear program says feasible={feasible}")
        if not feasible or not status.ok:
            return
        mu, nus = component.solve(eta)
    except ArithmeticError:
        report.unjudged += 1
        return
    magnitude = report.graph.magnitude
    error = np.abs(solution.values[component.variables] - mu)
    report.error = max(report.error, float(error.max(initial=0.0)))
    allowed = CLOSE + ROUNDING * magnitude
    if not error.max(initial=0.0) <= allowed:
        report.wrong.append(f"{status.name}, but marginals are {error.max():.1e} off")
    most = float(eta[component.variables] @ mu - 0.5 * mu @ mu)
    most += sum(float(f.eta_v @ nu) for f, nu in zip(component.factors, nus, strict=True))
    lacking = most - float(solution.objective[number])
    if not abs(lacking) <= CLOSE + AGREEMENT * magnitude:
        report.wrong.append(f"{status.name}, but the objective is {lacking:.1e} off")
    bound = float(solution.error_bound[number])
    if not np.linalg.norm(error) <= bound + allowed:
        report.wrong.append(f"error {np.linalg.norm(error):.1e} above its bound {bound:.1e}")


def check_gradient(report: Report, solution: Solution, rng: np.random.Generator) -> None:
    """Hold a product with the Jacobian against eigenvectors."""
    dense = DenseJacobian(solution)
    d = rng.normal(size=len(solution.values))
    d_v = [rng.normal(size=nu.shape) for nu in solution.additionals]
    found, expected = solution.vjp(d, d_v), dense(d, d_v)
    for x, y in zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True):
        error = np.abs(x - y) / np.maximum(1.0, np.abs(y))
        report.gradient_error = max(report.gradient_error, float(error.max(initial=0.0)))
    if not report.gradient_error <= GRADIENT:
        report.wrong.append(f"a gradient is {report.gradient_error:.1e} off the eigenvectors'")


def check_differences(
    report: Report, solution: Solution, components: list[Component], rng: np.random.Generator
) -> None:
    """Hold a gradient in the variables' scores against differences of the judge's solutions."""
    eta = np.where(report.graph.eta == -np.inf, 0.0, report.graph.eta)
    direction = rng.normal(size=len(eta)) * (report.graph.eta > -np.inf)
    covered = np.concatenate([c.variables for c in components])

    def values(x: FloatArray) -> FloatArray:
        return np.concatenate([c.solve(x)[0] for c in components])

    try:
        expected, smooth = judges.directional_derivative(values, eta, direction)
    except ArithmeticError:
        return
    if not smooth:
        return
    report.differences += 1
    found = solution.jvp(direction)[0][covered]
    error = float(np.abs(found - expected).max(initial=0.0))
    if not error <= 1e-5 * max(1.0, float(np.abs(expected).max(initial=0.0))):
        report.wrong.append(f"a derivative is {error:.1e} off the differences")


def check_warnings(
    report: Report, solution: Solution, caught: list[warnings.WarningMessage]
) -> None:
    """A warning about convergence goes with a status that is not ok; of others only compiling."""
    for warning in caught:
        if issubclass(warning.category, CompilationNotice):
            continue
        if not issubclass(warning.category, ConvergenceWarning) or solution.ok:
            report.wrong.append(f"{warning.category.__name__}: {warning.message}")
    if not solution.ok and not caught:
        report.wrong.append(f"no warning, with {solution!r}")


def check_graph(seed: int, watchdog: Watchdog) -> Report:
    """Solve the graph of a seed and judge all about it."""
    report, rng = Report(seed, draw_graph(seed)), np.random.default_rng([seed, 1])
    graph = report.graph
    with warnings.catch_warnings(record=True) as caught, watchdog.watch(seed):
        warnings.simplefilter("always")
        solution = graph.build().solve(tol=TOLERANCE, max_iter=20_000, threads=1)
        if solution.ok:
            check_gradient(report, solution, rng)
        _ = solution.error_bound  # found in the watch, used below
    check_warnings(report, solution, caught)
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)
    components = components_of(len(eta), graph.enumerated())
    for component in components:
        check_component(report, solution, component, eta)
    free = np.setdiff1d(np.arange(len(eta)), [v for c in components for v in c.variables])
    if not np.array_equal(solution.values[free], np.clip(graph.eta[free], 0.0, 1.0)):
        report.wrong.append("a variable of no factor is not its clipped score")
    plain = graph.ties == "none" and 0.1 <= graph.scale <= 10.0
    if plain and components and solution.ok and not report.unjudged:
        check_differences(report, solution, components, rng)
    return report


# -------------------------------------------------------------------- the run


def checked(seed: int, watchdog: Watchdog) -> Report:
    """Check a graph; whatever it raises is a failure, too."""
    try:
        return check_graph(seed, watchdog)
    except Exception as error:
        return Report(seed, draw_graph(seed), [f"{type(error).__name__}: {error}"])


def describe(report: Report) -> str:
    """Return all that is wrong about a graph."""
    graph = report.graph
    kinds = ", ".join(piece.template.kind for piece in graph.pieces)
    head = f"seed {report.seed}: scale {graph.scale:g}, ties {graph.ties}, {kinds}"
    return "\n  ".join([head, *report.wrong])


class Summary:
    """Counts over all graphs."""

    def __init__(self) -> None:
        self.graphs = self.wrong = self.unjudged = self.differences = 0
        self.gradient_error = 0.0
        self.kinds: collections.Counter[str] = collections.Counter()
        self.by_scale: dict[float, list[Report]] = collections.defaultdict(list)
        self.statuses: collections.Counter[str] = collections.Counter()

    def add(self, report: Report) -> None:
        """Count a graph."""
        self.graphs += 1
        self.wrong += bool(report.wrong)
        self.unjudged += report.unjudged
        self.differences += report.differences
        self.gradient_error = max(self.gradient_error, report.gradient_error)
        self.kinds.update({piece.template.kind for piece in report.graph.pieces})
        self.statuses.update(report.statuses)
        self.by_scale[report.graph.scale].append(report)

    def print(self, console: Console) -> None:
        """Print the tables."""
        statuses = list(self.statuses)
        table = Table(title=f"{self.graphs} graphs, {sum(self.statuses.values())} components")
        for column in ("scale", "graphs", "wrong", *statuses, "largest error"):
            table.add_column(column, justify="right")
        for scale, reports in sorted(self.by_scale.items()):
            counts = collections.Counter(s for r in reports for s in r.statuses)
            wrong, error = sum(bool(r.wrong) for r in reports), max(r.error for r in reports)
            numbers = [len(reports), wrong, *(counts[s] for s in statuses)]
            table.add_row(f"{scale:g}", *map(str, numbers), f"{error:.1e}")
        console.print(table)
        kinds = Table(title="graphs by factor type")
        for column in ("type", "graphs") * 3:
            kinds.add_column(column)
        cells = [x for kind, n in sorted(self.kinds.items()) for x in (kind, str(n))]
        for i in range(0, len(cells), 6):
            kinds.add_row(*cells[i : i + 6])
        console.print(kinds)
        console.print(
            f"wrong: {self.wrong}; components that the judges could not judge: {self.unjudged}; "
            f"gradients: largest error {self.gradient_error:.1e} against eigenvectors, "
            f"{self.differences} compared with differences"
        )


def run(seeds: Iterator[int], minutes: float, watchdog: Watchdog) -> Summary:
    """Check graphs until the time is over."""
    summary, begin = Summary(), time.monotonic()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("solving", total=60.0 * minutes)
        for seed in seeds:
            report = checked(seed, watchdog)
            summary.add(report)
            if report.wrong:
                progress.console.print(describe(report), soft_wrap=True, markup=False)
            passed = time.monotonic() - begin
            progress.update(
                task,
                completed=passed,
                description=f"{summary.graphs} graphs, {summary.wrong} wrong",
            )
            if passed > 60.0 * minutes:
                break
    return summary


@click.command(context_settings={"show_default": True})
@click.option("--minutes", type=float, default=30.0, help="How long to go on.")
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
@click.option("--only", type=int, help="Check the graph of this seed alone.")
@click.option("--patience", type=float, default=60.0, help="Seconds a graph may take.")
def main(minutes: float, seed: int, only: int | None, patience: float) -> None:
    """Solve random graphs for a time, and hold every answer against independent judges."""
    watchdog = Watchdog(patience)
    checked(seed, Watchdog(10 * patience))  # compiles the engine: nobody should take it for a hang
    seeds = iter(range(seed, sys.maxsize)) if only is None else iter([only])
    summary = run(seeds, minutes, watchdog)
    summary.print(Console(width=120))
    sys.exit(1 if summary.wrong else 0)


if __name__ == "__main__":
    main()
