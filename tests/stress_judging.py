"""What is wrong about a solved random graph, by judges that share no code with the engine.

A linear program says whether a component has a solution, an interior point on enumerated structures
which one, eigenvectors what its derivatives are, and differences of the interior point's solutions
what they are again.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import judges
from dense import DenseJacobian
from lpsmap import ConvergenceWarning, Solution, Status
from lpsmap_core import CompilationNotice
from lpsmap_decode import solve_many
from stress_graphs import UNTRAINED, StressGraph, draw_graph

__all__ = ["Report", "check_graph", "checked", "components_of"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

OPTIONS: dict[str, Any] = {"tol": 1e-9, "max_iter": 20_000, "threads": 1}
"""How graphs are solved."""

THREADED = 4
"""One of so many graphs is also solved in threads."""

CLOSE = 1e-6
"""Allowed error of a marginal, or of the objective relative to the scores' magnitude: a thousand
times what is solved to, since how far copies that nearly agree are from ones that do depends on the
constraints."""

ROUNDING = 1e-12
"""Allowed error besides, relative to the largest score: the solution is a 1-Lipschitz function of
the scores, which sums of some thousand terms round at 2e-16 of the largest each."""

AGREEMENT = 1e-7
"""Allowed error of the objective besides, relative to the largest score: copies agree within
the tolerance only, and their disagreement is worth as much as the duals."""

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


def check_threads(report: Report, graph: StressGraph, solution: Solution) -> None:
    """Hold the same graph, solved three times by two threads, against a solution."""
    if report.seed % THREADED:
        return
    graphs = [graph.build() for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = list(solve_many(graphs, ThreadPoolExecutor(2), batch_size=1, **OPTIONS))
    for outcome in outcomes:
        if outcome.error is not None:
            report.wrong.append(f"in threads: {outcome.error!r}")
        elif not np.array_equal(outcome.values[0], solution.values, equal_nan=True):
            report.wrong.append("in threads: other marginals")


def check_graph(report: Report, graph: StressGraph, rng: np.random.Generator) -> None:
    """Solve a graph and judge all about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = graph.build().solve(**OPTIONS)
        if solution.ok:
            check_gradient(report, solution, rng)
    check_threads(report, graph, solution)
    check_warnings(report, solution, caught)
    eta = np.where(graph.eta == -np.inf, 0.0, graph.eta)
    components = components_of(len(eta), graph.enumerated())
    wholes = components_of(len(eta), graph.masked(0.0).enumerated())
    for component, whole in zip(components, wholes, strict=True):
        check_component(report, solution, component, whole, graph)
    free = np.setdiff1d(np.arange(len(eta)), [v for c in components for v in c.variables])
    if not np.array_equal(solution.values[free], np.clip(graph.eta[free], 0.0, 1.0)):
        report.wrong.append("a variable of no factor is not its clipped score")
    plain = graph.ties in ("none", UNTRAINED) and 0.1 <= graph.scale <= 10.0
    if plain and components and solution.ok and not report.unjudged and graph.mask == -np.inf:
        check_differences(report, solution, components, graph, rng)


def checked(seed: int, extreme: bool = True) -> Report:
    """Check the graph of a seed; whatever it raises is a failure, too."""
    graph = draw_graph(seed, extreme)
    head = graph.head
    report = Report(seed, graph.scale, f"{head}, {', '.join(graph.kinds)}", set(graph.kinds))
    try:
        check_graph(report, graph, np.random.default_rng([seed, 1]))
    except Exception as error:
        report.wrong.append(f"{type(error).__name__}: {error}")
    return report
