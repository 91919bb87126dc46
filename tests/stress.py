"""Solve random graphs for a time, and hold every answer against independent judges.

``python tests/stress.py --minutes 30`` draws graphs of all installed factor types: masks, lengths,
negations, ties, forbidden variables, duplicates, contradictions, at score scales from 1e-8 to 1e8.
The judges share no code with the engine: a linear program says whether a component has a solution,
an interior point on enumerated structures which one, eigenvectors what its derivatives are, and
differences of the interior point's solutions what they are again. It ends with exit code 1 if an
answer is wrong, if a warning has no status that explains it, if a graph takes more than a minute,
or if a process dies: graphs are solved in child processes. What it prints about a failure names the
seed; ``--only SEED`` repeats it.

Every twentieth graph has up to 2,000 slots: `stress_large` judges it by duality.

Masks are also drawn as large numbers, which forbid no more than they outweigh, scales up to
1e300 and down to 1e-300, and counts beyond all there is to count.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

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
from lpsmap import ConvergenceWarning, FactorGraph, Solution, Status
from lpsmap_core import CompilationNotice
from lpsmap_core.plugins.registry import installed
from stress_graphs import StressGraph, draw_graph, templates_of
from stress_large import EVERY, draw_large, wrong_marginals
from sweep_cases import Case

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
`TOLERANCE` only, and their disagreement is worth as much as the duals."""

UNFINISHED = 1e6
"""Scale of scores from which on the loop may end at its limit, contradictions included: it says so.
Below it, a contradiction has to be found."""

GRADIENT = 1e-8
"""Allowed error of derivatives against eigenvectors, and of differences 1e-5."""


PRECISE = 1e8
"""Scores above this are held against the optimum of the linear program without the quadratic term,
whose digits it takes, and a single factor's against decimals."""

LINEAR = 1e-9
"""How far a solution may lie below that optimum, relative to the largest score."""

PENALTIES = (1e3, 3e3)
"""Multiples of the scores' magnitude, at least 1, that stand in for large masks where these have to
be used: the judges' answer is one that both give."""


@dataclass
class Report:
    """What came of one graph."""

    seed: int
    scale: float = 1.0
    described: str = ""
    kinds: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    unjudged: int = 0
    """Components of which the judges could not say anything."""
    error: float = 0.0
    """Largest error of a marginal."""
    gradient_error: float = 0.0
    differences: int = 0
    """Gradients compared with differences of the judge's solutions."""


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
    report: Report, solution: Solution, component: Component, whole: Component, graph: StressGraph
) -> None:
    """Hold one component's status, marginals, objective and bound against the judges.

    `component` has no structures that a mask forbids, `whole` has all.
    """
    number = int(solution.layout.component[component.variables[0]])
    status, bound = solution.status[number], float(solution.error_bound[number])
    report.statuses.append(status.name)
    if status is Status.SOLVED and np.isinf(bound):
        report.wrong.append("SOLVED, but error_bound is inf")
    unfinished = status in (Status.ITERATION_LIMIT, Status.PRECISION_LIMIT)
    if unfinished and (graph.scale >= UNFINISHED):
        return
    try:
        feasible = judges.is_feasible(len(component.variables), component.factors)
        possible = feasible
        if not feasible and graph.mask > -np.inf:
            possible = judges.is_feasible(len(whole.variables), whole.factors)
        if possible == (status is Status.INFEASIBLE) or (status.ok and not possible):
            report.wrong.append(f"{status.name}, but the linear program says feasible={possible}")
        if not possible or not status.ok:
            return
        if graph.magnitude > PRECISE:
            check_linear(report, solution, component, graph)
            return
        mu, most = judged(component, whole, graph, feasible)
    except ArithmeticError:
        report.unjudged += 1
        return
    error = np.abs(solution.values[component.variables] - mu)
    report.error = max(report.error, float(error.max(initial=0.0)))
    allowed = CLOSE + ROUNDING * graph.magnitude
    if not error.max(initial=0.0) <= allowed:
        report.wrong.append(f"{status.name}, but marginals are {error.max():.1e} off")
    if not np.linalg.norm(error) <= bound + allowed:
        report.wrong.append(f"error {np.linalg.norm(error):.1e} above its bound {bound:.1e}")
    lacking = most - float(solution.objective[number])
    if feasible and not abs(lacking) <= CLOSE + AGREEMENT * graph.magnitude:
        report.wrong.append(f"{status.name}, but the objective is {lacking:.1e} off")


def judged(
    component: Component, whole: Component, graph: StressGraph, feasible: bool
) -> tuple[FloatArray, float]:
    """Return the judges' marginals and maximum; with masks that are used, the marginals alone."""
    if not feasible:
        found = []
        for penalty in PENALTIES:
            seen = graph.masked(-penalty * graph.magnitude)
            scores = [scores for piece in seen.pieces for scores in piece.eta_v]
            factors = [
                f._replace(eta_v=scores[i])
                for f, i in zip(whole.factors, whole.numbers, strict=True)
            ]
            again = Component(whole.variables, whole.numbers, factors)
            found.append(again.solve(seen.eta)[0])
        if np.abs(found[0] - found[1]).max(initial=0.0) > 0.1 * CLOSE:
            raise ArithmeticError("the penalties are not large enough")
        return found[0], np.nan
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)
    mu, nus = component.solve(eta)
    most = float(eta[component.variables] @ mu - 0.5 * mu @ mu)
    most += sum(float(f.eta_v @ nu) for f, nu in zip(component.factors, nus, strict=True))
    return mu, most


def check_linear(
    report: Report, solution: Solution, component: Component, graph: StressGraph
) -> None:
    """Hold a component of very large scores against what decides it."""
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)[component.variables]
    mu = solution.values[component.variables]
    alone = component.factors[0]
    distinct = len(set(np.asarray(alone.variables).tolist())) == len(alone.variables)
    if len(component.factors) == 1 and distinct:
        exact = judges.project_factor(eta, alone)
        error = float(np.abs(mu - exact).max(initial=0.0))
        if not error <= CLOSE:
            report.wrong.append(f"marginals are {error:.1e} off the decimals'")
        return
    best, used = judges.linear_optimum(eta, component.factors, mu)
    if not used >= best - LINEAR * graph.magnitude * len(eta):
        report.wrong.append(f"linear value {used:.9e} below the optimum {best:.9e}")


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
    report: Report,
    solution: Solution,
    components: list[Component],
    graph: StressGraph,
    rng: np.random.Generator,
) -> None:
    """Hold a gradient in the variables' scores against differences of the judge's solutions."""
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)
    direction = rng.normal(size=len(eta)) * (graph.eta > -np.inf)
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


def check_graph(report: Report, graph: StressGraph, rng: np.random.Generator) -> None:
    """Solve a graph and judge all about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = graph.build().solve(tol=TOLERANCE, max_iter=20_000, threads=1)
        if solution.ok:
            check_gradient(report, solution, rng)
    check_warnings(report, solution, caught)
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)
    components = components_of(len(eta), graph.enumerated())
    wholes = components_of(len(eta), graph.masked(0.0).enumerated())
    for component, whole in zip(components, wholes, strict=True):
        check_component(report, solution, component, whole, graph)
    free = np.setdiff1d(np.arange(len(eta)), [v for c in components for v in c.variables])
    if not np.array_equal(solution.values[free], np.clip(graph.eta[free], 0.0, 1.0)):
        report.wrong.append("a variable of no factor is not its clipped score")
    plain = graph.ties == "none" and 0.1 <= graph.scale <= 10.0
    if plain and components and solution.ok and not report.unjudged and graph.mask == -np.inf:
        check_differences(report, solution, components, graph, rng)


# -------------------------------------------------------------------- the run


def checked(seed: int, extreme: bool = True) -> Report:
    """Check the graph of a seed; whatever it raises is a failure, too."""
    graph = draw_graph(seed, extreme)
    head = f"scale {graph.scale:g}, mask {graph.mask:g}, ties {graph.ties}"
    report = Report(seed, graph.scale, f"{head}, {', '.join(graph.kinds)}", set(graph.kinds))
    try:
        check_graph(report, graph, np.random.default_rng([seed, 1]))
    except Exception as error:
        report.wrong.append(f"{type(error).__name__}: {error}")
    return report


def any_checked(seed: int) -> Report:
    """Check the graph of a seed, which may be large."""
    if seed % EVERY == EVERY - 1:
        return checked_large(seed, wrong_marginals)
    return checked(seed)


def checked_large(seed: int, check: Callable[[Case], tuple[list[str], list[str], int]]) -> Report:
    """Check the large graph of a seed."""
    case = draw_large(seed)
    report = Report(seed, 1.0, f"large: {case}", {case.kind.split()[0]})
    try:
        report.wrong, report.statuses, report.unjudged = check(case)
    except Exception as error:
        report.wrong.append(f"{type(error).__name__}: {error}")
    return report


def describe(report: Report) -> str:
    """Return all that is wrong about a graph."""
    return "\n  ".join([f"seed {report.seed}: {report.described}", *report.wrong])


def compile_all(check: Callable[[int], Report] = any_checked) -> None:
    """Have all kernels compiled, by graphs of every installed type."""
    for seed, kind in enumerate(sorted(installed().factors)):
        check(seed)
        for template in templates_of(kind)[:1]:
            numbers, off = np.arange(template.size), np.zeros(template.size, dtype=bool)
            for generic in (False, True):
                graph = FactorGraph()
                u = graph.variable_from(np.zeros(template.size))
                for _ in range(2):
                    graph.add(template.declare(u, numbers, off, np.zeros(template.shape_v)))
                _ = graph.solve(max_inner_iter=1000 if generic else None).error_bound


def _work(seeds: Connection, check: Callable[[int], Report]) -> None:
    """Check the graphs of the seeds that come, until none comes."""
    compile_all(check)  # nobody should take it for a hang
    seeds.send(None)
    while (seed := seeds.recv()) is not None:
        seeds.send(check(seed))


class Worker:
    """A process that checks one graph after the other, and may die of it."""

    def __init__(self, check: Callable[[int], Report]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, check), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self._busy_before = 0.0
        self.since = np.inf
        """When it began with the seed; it may take long to begin with the first."""

    def give(self, seed: int) -> None:
        """Let it check the graph of a seed."""
        self.seed, self.since, self._busy_before = seed, time.monotonic(), self._busy()
        self.connection.send(seed)

    def is_late(self, patience: float) -> bool:
        """Whether it has worked on its seed for too long, or waited for ten times as long."""
        waited = time.monotonic() - self.since
        return waited > 10.0 * patience or (
            waited > patience and self._busy() - self._busy_before > patience
        )

    def _busy(self) -> float:
        """Return its seconds on a processor, where the system tells; else those that passed."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def take(self) -> Report | None:
        """Return its report, or what its death says of the seed; nothing when it has started."""
        try:
            report: Report | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            if self.seed is None:
                raise SystemExit("a process died before its first graph") from None
            died = f"the process died with exit code {self.process.exitcode}"
            report = Report(self.seed, wrong=[died])
        return report

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


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
        self.kinds.update(report.kinds)
        self.statuses.update(report.statuses)
        self.by_scale[report.scale].append(report)

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


def reports(
    seeds: Iterator[int],
    n_workers: int,
    patience: float,
    check: Callable[[int], Report] = any_checked,
) -> Iterator[Report]:
    """Yield the reports on seeds as they come; a worker that dies or hangs is replaced."""
    workers = [Worker(check) for _ in range(n_workers)]
    try:
        while True:
            ready: list[Any] = wait([w.connection for w in workers], timeout=1.0)
            for i, worker in enumerate(workers):
                report = worker.take() if worker.connection in ready else None
                if report is None and worker.is_late(patience):
                    hung = f"no answer within {patience:g} s"
                    report = Report(worker.seed or 0, wrong=[hung])
                    worker.stop()
                if report is not None:
                    yield report
                if worker.connection in ready or report is not None:
                    if not worker.process.is_alive():
                        worker.stop()
                        workers[i] = Worker(check)
                    elif (seed := next(seeds, None)) is not None:
                        worker.give(seed)
                    else:
                        return
    finally:
        for worker in workers:
            worker.stop()


def run(found: Iterator[Report], minutes: float) -> Summary:
    """Check graphs until the time is over."""
    summary, begin = Summary(), time.monotonic()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("solving", total=60.0 * minutes)
        for report in found:
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
@click.option("--only", type=int, help="Check the graph of this seed alone, in this process.")
@click.option("--patience", type=float, default=60.0, help="Seconds a graph may take.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes that solve.")
def main(minutes: float, seed: int, only: int | None, patience: float, workers: int) -> None:
    """Solve random graphs for a time, and hold every answer against independent judges."""
    if only is not None:
        found = iter([any_checked(only)])
    else:
        found = reports(iter(range(seed, sys.maxsize)), workers, patience)
    summary = run(found, minutes)
    summary.print(Console(width=150))
    sys.exit(1 if summary.wrong else 0)


if __name__ == "__main__":
    main()
