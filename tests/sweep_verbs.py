"""The verbs of the sweep, each with what it needs beforehand, and judges of small graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import FactorGraph
from lpsmap_core.api import slot_values, slots_of, solve_directly
from lpsmap_core.testing.oracle import oracles_of
from stress_decoding import Judge
from stress_decoding import check_graph as check_assignments
from stress_graphs import structures_of
from stress_judging import Report
from stress_judging import check_graph as check_marginals
from sweep_cases import MAX_SLOTS, Case

__all__ = ["BEST_SO_FAR", "JUDGES", "VERBS"]

FloatArray = npt.NDArray[np.float64]
Call = Callable[[], Any]

BEST_SO_FAR = ("exact", "decode", "k_best")
"""Verbs that answer Ctrl-C with what they have; the others raise KeyboardInterrupt."""


SAMPLES = 400
"""Samples that are judged."""

COLUMNS = 10
"""Variables whose Jacobian is computed at all sizes."""

TEMPERATURES = 0.1, 20.0
"""Temperatures at which solves are timed, the first, and judged."""


def _solve(case: Case, seconds: float) -> Call:
    return lambda: case.graph.solve(max_time=seconds)


def _gradient(case: Case, seconds: float) -> Call:
    solution, rng = case.solution, np.random.default_rng(case.seed)
    d = rng.normal(size=len(solution.values))
    d_v = [rng.normal(size=nu.shape) for nu in solution.additionals]
    return lambda: solution.vjp(d, d_v)


def _lp_map(case: Case, seconds: float) -> Call:
    return lambda: case.graph.solve_map(max_time=seconds)


def _exact(case: Case, seconds: float) -> Call:
    return lambda: case.graph.solve_map(exact=True, max_time=seconds)


def _decode(case: Case, seconds: float) -> Call:
    relaxed = case.relaxed
    return lambda: relaxed.decode(max_time=seconds)


def _k_best(case: Case, seconds: float) -> Call:
    return lambda: case.graph.k_best(3, max_time=seconds)


def _gibbs(case: Case, seconds: float) -> Call:
    def ask() -> Any:
        try:
            gibbs = case.graph.gibbs(case.factor)
        except (TypeError, ValueError) as refused:
            return refused
        found = gibbs.log_partition, gibbs.entropy, gibbs.marginals, gibbs.additionals
        if np.isfinite(found[0]).all():
            with suppress(TypeError):  # of types that sum over their structures alone
                gibbs.sample(2, seed=0)
                gibbs.k_best(2)
        return found

    return ask


def _graph_gibbs(case: Case, seconds: float) -> Call:
    def ask() -> Any:
        try:
            gibbs = case.graph.gibbs()
            found = gibbs.log_partition, gibbs.entropy, gibbs.value_of(case.u)
            return found, gibbs.sample(2, seed=0)
        except (TypeError, ValueError) as refused:  # types without sums, and cycles
            return refused

    return ask


def _rescore(case: Case, seconds: float) -> Call:
    _ = case.solution
    scores = case.other_scores(), case.eta

    def ask() -> Any:
        for given in scores:
            case.graph.rescore(case.u, given)
            found = case.graph.solve(max_time=seconds / 2)
        return found

    return ask


def _warm_start(case: Case, seconds: float) -> Call:
    solution = case.solution
    return lambda: case.graph.solve(max_time=seconds, warm_start=solution)


def _temperature(case: Case, seconds: float) -> Call:
    return lambda: case.graph.solve(max_time=seconds, temperature=TEMPERATURES[0])


def _jacobian(case: Case, seconds: float) -> Call:
    solution, some = case.solution, case.u.reshape(-1)[:COLUMNS]
    return lambda: (solution.jacobian(some), solution.dual_variables(case.factor))


def _direct(case: Case, seconds: float) -> Call:
    solution = case.solution

    def ask() -> Any:
        found = solve_directly(solution.layout.part, solution.scores, lambda: None)
        return found, None if found is None else found.multiply(found.marginals)

    return ask


VERBS: dict[str, Callable[[Case, float], Call]] = {
    "solve": _solve,
    "gradient": _gradient,
    "lp_map": _lp_map,
    "exact": _exact,
    "decode": _decode,
    "k_best": _k_best,
    "gibbs": _gibbs,
    "graph_gibbs": _graph_gibbs,
    "rescore": _rescore,
    "warm_start": _warm_start,
    "temperature": _temperature,
    "jacobian": _jacobian,
    "direct": _direct,
}
"""For every verb a function that gets all ready, and returns the call that is timed."""


# -------------------------------------------------------------------- judges


def judge_marginals(case: Case) -> Iterator[str]:
    """Hold a solve and its gradients against an interior point, eigenvectors and differences."""
    graph = case.enumerated()
    if graph is None:
        return
    report = Report(case.seed, graph.scale)
    check_marginals(report, graph, np.random.default_rng(case.seed))
    yield from report.wrong


def judge_assignments(case: Case) -> Iterator[str]:
    """Hold LP-MAP, the exact search, decoding and the k best against all assignments."""
    graph = case.enumerated()
    if graph is None or case.kind == "Permutation":  # its structures are fractions
        return
    judge = Judge(graph)
    check_assignments(graph, judge, np.random.default_rng(case.seed))
    yield from judge.wrong


def judge_gibbs(case: Case) -> Iterator[str]:
    """Hold log-partition functions, marginals and entropies against sums over all structures."""
    try:
        gibbs = case.graph.gibbs(case.factor)
    except (TypeError, ValueError):
        return
    eta = slot_values(case.factor, case.eta.reshape(-1)[case.factor.variables.index])
    shape = case.factor.n_factors, case.factor.n_additionals
    eta_v = np.zeros(shape) if not shape[1] else np.asarray(case.factor.additionals).reshape(shape)
    marginals = slot_values(case.factor, np.asarray(gibbs.marginals))
    negated = slot_values(case.factor, case.factor.variables.negated)
    for i, oracle in enumerate(oracles_of(case.factor)):
        listed = structures_of(oracle) if oracle.arity <= MAX_SLOTS else None
        if listed is None:
            return
        (m, n), slots = listed, slots_of(case.factor, i)
        m = np.where(negated[slots], 1.0 - m, m)  # of variables, which types may negate
        scores = _sums(m, eta[slots]) + _sums(n, eta_v[i])
        best = scores.max()
        if best == -np.inf:
            continue
        weights = np.exp(scores - best)
        log_partition, p = best + np.log(weights.sum()), weights / weights.sum()
        entropy = -(p * np.log(np.where(p > 0.0, p, 1.0))).sum()
        size = 1e-11 * max(1.0, float(np.abs(scores[scores > -np.inf]).max()))
        found = np.ravel(gibbs.log_partition)[i], np.ravel(gibbs.entropy)[i]
        for name, got, expected in zip(
            ("log-partition", "entropy"), found, (log_partition, entropy), strict=True
        ):
            if not abs(got - expected) <= size:
                yield f"{name} {got} of factor {i}, expected {expected}"
        error = np.abs(marginals[slots] - p @ m).max(initial=0.0)
        if not error <= size:
            yield f"Gibbs marginals of factor {i} are {error:.1e} off"
    with suppress(TypeError):  # of types that sum over their structures alone
        yield from _judge_samples(case, gibbs)


def _judge_samples(case: Case, gibbs: Any) -> Iterator[str]:
    """Hold samples and their frequencies against log-probabilities, which the sums determine."""
    drawn = gibbs.sample(SAMPLES, seed=0)
    extra = drawn.additionals if case.factor.n_additionals else None
    shape = case.factor.n_factors, SAMPLES
    if not drawn.counts.size or (drawn.counts != SAMPLES).any():
        return
    log_p = np.asarray(gibbs.log_probability(drawn.variables, extra)).reshape(shape)
    flat = drawn.variables.reshape(*shape, -1)
    for i in range(shape[0]):
        if not np.isfinite(log_p[i]).all():
            yield f"a sample of factor {i} is not possible"
            continue
        # the mean of -log p is the entropy
        error = abs(log_p[i].mean() + np.ravel(gibbs.entropy)[i])
        spread = 6.0 * log_p[i].std() / np.sqrt(SAMPLES) + 0.02 * (1.0 + np.abs(log_p[i]).max())
        if not error <= spread:
            yield f"log-probabilities of samples of factor {i} are {error:.1e} off their mean"
        _, first, counts = np.unique(flat[i], axis=0, return_index=True, return_counts=True)
        p = np.exp(np.minimum(log_p[i, first], 0.0))  # a log-probability of 1e-16 is rounding
        allowed = 6.0 * np.sqrt(p * (1.0 - p) / SAMPLES) + 6.0 / SAMPLES
        if extra is None and not (np.abs(counts / SAMPLES - p) <= allowed).all():
            yield f"frequencies of samples of factor {i} are not their probabilities"


def judge_graph_gibbs(case: Case) -> Iterator[str]:
    """Hold the distribution of a graph of one declaration against those of its factors."""
    if len(case.graph.factors) > 1:
        return
    try:
        whole, alone = case.graph.gibbs(), case.graph.gibbs(case.factor)
    except (TypeError, ValueError):
        return
    found, expected = np.sort(whole.log_partition), np.sort(np.ravel(alone.log_partition))
    apart = found.shape == expected.shape  # factors of one declaration may share variables, too
    if apart and not np.allclose(found, expected, rtol=1e-12, atol=1e-12):
        yield f"log-partition functions of the graph are {found}, expected {expected}"


def judge_jacobian(case: Case) -> Iterator[str]:
    """Hold the matrix against products with unit vectors, and dual variables to their sums."""
    solution = case.graph.solve(tol=1e-9, max_iter=20_000)
    if not solution.ok:
        return
    index = case.u.index.reshape(-1)
    found = solution.jacobian(case.u)
    rows = [solution.vjp(unit)[0][index] for unit in np.eye(len(solution.values))[index]]
    if not np.allclose(found, rows, rtol=0.0, atol=1e-9):
        yield "the Jacobian differs from products with unit vectors"
    total = np.zeros(len(solution.values))
    for factor in solution.factors:
        duals = slot_values(factor, solution.dual_variables(factor))
        np.add.at(total, slot_values(factor, factor.variables.index), duals)
    size = 1.0 + np.abs(case.eta[np.isfinite(case.eta)]).max(initial=0.0)
    if not (np.abs(total) <= 1e-9 * size).all():
        yield f"dual variables sum to {np.abs(total).max():.1e}"


def _sums(m: FloatArray, scores: FloatArray) -> FloatArray:
    return np.asarray((m * np.where(m != 0.0, scores, 0.0)).sum(axis=1))


def judge_again(case: Case) -> Iterator[str]:
    """Hold rescored and warm-started solves against fresh ones."""
    other, cold = case.other_scores(), case.graph.solve(tol=1e-9, max_iter=20_000)
    warm = case.graph.solve(tol=1e-9, max_iter=20_000, warm_start=cold)
    yield from _differs("warm start", case, cold, warm)
    case.graph.rescore(case.u, other)
    again = case.graph.solve(tol=1e-9, max_iter=20_000)
    fresh: FactorGraph = Case(case.kind, case.size, case.seed).graph
    fresh.rescore(fresh.blocks[0], other)
    yield from _differs("rescore", case, fresh.solve(tol=1e-9, max_iter=20_000), again)


def judge_direct(case: Case) -> Iterator[str]:
    """Hold a call of the closed form, and its product with a vector, against a solve's bits."""
    solution = case.graph.solve()
    part = solution.layout.part
    direct = solve_directly(part, solution.scores, lambda: None)
    if direct is None:
        return
    d, variables = np.random.default_rng(case.seed).normal(size=case.eta.size), part.variables
    if not (solution.ok and np.array_equal(direct.marginals, solution.values[variables])):
        yield "a call of the closed form differs from a solve"
    if not np.array_equal(direct.multiply(d[variables]), solution.vjp(d)[0][variables]):
        yield "a product with the Jacobian of the closed form differs from that of a solve"


def judge_temperature(case: Case) -> Iterator[str]:
    """Hold solves at temperatures against solves of scores that are divided by them."""
    d = np.random.default_rng(case.seed).normal(size=case.eta.size)
    for t in TEMPERATURES:
        found = case.graph.solve(tol=1e-9, max_iter=20_000, temperature=t)
        divided: FactorGraph = Case(case.kind, case.size, case.seed).graph
        divided.rescore(divided.blocks[0], case.eta / t)
        for factor in divided.factors:
            if factor.additionals is not None:
                divided.rescore(factor, np.asarray(factor.additionals) / t)
        expected = divided.solve(tol=1e-9, max_iter=20_000)
        yield from _differs(f"temperature {t:g}", case, expected, found)
        if not (expected.ok and found.ok):
            continue
        gradients = t * found.vjp(d)[0], expected.vjp(d)[0]
        if not np.allclose(*gradients, rtol=1e-9, atol=1e-9):
            yield f"temperature {t:g}: the gradient differs"
        if not np.allclose(found.objective, t * expected.objective, rtol=1e-9, atol=1e-9):
            yield f"temperature {t:g}: the objective differs"


def _differs(what: str, case: Case, expected: Any, found: Any) -> Iterator[str]:
    if (expected.status != found.status).any() and not (expected.ok and found.ok):
        yield f"{what}: status {found.status.tolist()}, expected {expected.status.tolist()}"
    elif expected.ok:
        error = float(np.abs(expected.values - found.values).max(initial=0.0))
        magnitude = np.abs(case.eta[case.eta > -np.inf]).max(initial=1.0)
        if not error <= 1e-6 + 1e-12 * magnitude:
            yield f"{what}: marginals are {error:.1e} off those of a fresh solve"


JUDGES: dict[str, Callable[[Case], Iterator[str]]] = {
    "judge_marginals": judge_marginals,
    "judge_assignments": judge_assignments,
    "judge_gibbs": judge_gibbs,
    "judge_graph_gibbs": judge_graph_gibbs,
    "judge_again": judge_again,
    "judge_jacobian": judge_jacobian,
    "judge_temperature": judge_temperature,
    "judge_direct": judge_direct,
}
"""What yields all that is wrong about a small graph."""
