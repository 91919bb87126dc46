"""The best structure: LP-MAP and exact search against trying all assignments."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Knapsack, Pair, Sequence, Xor
from lpsmap_core import ConvergenceWarning, Solution, Status
from lpsmap_decode import Assignment
from lpsmap_decode.heuristics.portfolio import Portfolio
from random_graphs import KINDS, RandomGraph, all_scores, random_graph
from warned import details_of

FloatArray = npt.NDArray[np.float64]

SCALES = (1e-3, 1.0, 1.0, 100.0)


def draw(seed: int, most_variables: int = 14) -> RandomGraph:
    """Draw a graph of mixed factors, structured ones included, that can be enumerated."""
    rng = np.random.default_rng(seed)
    while True:
        scale, n_factors = float(rng.choice(SCALES)), int(rng.integers(2, 7))
        graph = random_graph(rng, n_factors, scale, [*KINDS, "Sequence"])
        if len(graph.eta) <= most_variables:
            return graph


def check_against_enumeration(seed: int) -> None:
    """Exact MAP is never wrong, LP-MAP a bound that is never below it."""
    drawn = draw(seed)
    tried, scores = all_scores(drawn)
    best, size = float(scores.max()), max(1.0, float(np.abs(drawn.eta).sum()))
    graph, u, _ = drawn.build()
    found = graph.solve_map(exact=True, threads=1)
    assert isinstance(found, Assignment)
    assert found.ok, (seed, found)
    assert found.total == pytest.approx(best, abs=1e-7 * size), seed
    row = np.flatnonzero((tried == u.value).all(axis=1))
    assert scores[row] == pytest.approx(best, abs=1e-7 * size), seed
    for limits in ({}, {"max_iter": 3}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            relaxed = graph.solve_map(threads=1, **limits)
        free = np.where(relaxed.layout.component < 0, np.maximum(drawn.eta, 0.0), 0.0).sum()
        bound = relaxed.objective.sum() + relaxed.gap.sum() + free
        assert bound >= best - 1e-6 * size, (seed, limits)
        bound = relaxed.solved.assignment_bound().sum() + free
        assert bound >= best - 1e-9 * size, (seed, limits)


@pytest.mark.parametrize("seed", range(60))
def test_exact_map_equals_enumeration(seed: int) -> None:
    check_against_enumeration(seed)


@pytest.mark.slow
def test_five_thousand_graphs_equal_enumeration() -> None:
    for seed in range(1000, 6000):
        check_against_enumeration(seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_relaxed_solution_decodes_to_something_allowed(seed: int) -> None:
    drawn = draw(10_000 + seed)
    tried, scores = all_scores(drawn)
    graph, _, factors = drawn.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        decoded = graph.solve(threads=1).decode()
    assert decoded.found.all()
    row = np.flatnonzero((tried == decoded.values).all(axis=1))
    assert scores[row] == pytest.approx(decoded.total)
    if decoded.ok:
        assert decoded.total == pytest.approx(scores.max())
    for factor, d in zip(factors, drawn.declared, strict=True):
        (structure,) = decoded.structures(factor)
        own = np.abs(decoded.values[d.variables] - d.negated)
        np.testing.assert_array_equal(np.asarray(structure.variables).reshape(-1, len(own))[0], own)


@pytest.mark.parametrize("mask", [-1e4, -1e9, float(np.finfo(np.float64).min), -np.inf])
@pytest.mark.parametrize("exact", [False, True])
def test_masks_of_any_size_forbid(mask: float, exact: bool, rng: np.random.Generator) -> None:
    scores = rng.normal(size=(3, 5, 7))
    masked = np.where(rng.random(scores.shape) < 0.3, mask, scores)
    values = []
    for given in (masked, np.where(masked == mask, -np.inf, masked)):
        graph = FactorGraph()
        u = graph.variable_from(given)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        graph.solve_map(exact=exact)
        values.append(u.value)
    np.testing.assert_allclose(values[0], values[1], atol=1e-5)


def test_a_row_of_masks_takes_the_least_of_them() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[-1e4, -3e4, -2e4], [1.0, 0.0, 0.5]])
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    assert graph.solve_map(exact=True).ok
    np.testing.assert_array_equal(u.value, [[1, 0, 0], [0, 0, 1]])


def test_variables_that_repel_each_other() -> None:
    """Defect 14 of the earlier library: its exact solver failed on a dozen of them."""
    graph = FactorGraph()
    u = graph.variable_from(np.linspace(1.0, 1.1, 12))
    first, second = np.triu_indices(12, 1)
    graph.add(Pair(u[first], u[second], np.full(len(first), -0.7)))
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.total == pytest.approx(2 * 1.1 - 0.1 / 11 - 0.7)


def test_single_factors_are_solved_by_their_oracle(rng: np.random.Generator) -> None:
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(4, 5, 3)))
    sequences = graph.add(Sequence(u, rng.normal(size=(3, 3)), lengths=[5, 3, 1, 0]))
    solution = graph.solve_map()
    assert isinstance(solution, Solution)
    assert (solution.iterations == 1).all()
    covered = np.arange(5) < [[5], [3], [1], [0]]
    np.testing.assert_array_equal(u.value.sum(axis=2)[covered], 1.0)
    np.testing.assert_array_equal(
        u.value[~covered], u.graph.flat_scores().reshape(4, 5, 3)[~covered] > 0.0
    )
    np.testing.assert_allclose(solution.gap, 0.0, atol=1e-12)
    for i, found in enumerate(graph.structures(sequences)):
        assert len(found.probabilities) == (i < 3)
    assert np.shares_memory(graph.solution.values, solution.values)


def test_variables_in_no_factor() -> None:
    graph = FactorGraph()
    u = graph.variable_from([0.2, -0.1, 0.0, -np.inf, 3.0])
    graph.solve_map()
    np.testing.assert_array_equal(u.value, [1, 0, 0, 0, 1])
    assert graph.solve_map(exact=True).total == pytest.approx(3.2)


def test_contradictions_are_said() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 3)))
    graph.add(Xor(u))
    graph.add(Budget(u, 0, axis=1))
    graph.add(Xor(graph.variable_from([1.0, 2.0])))
    with pytest.warns(ConvergenceWarning, match="constraints that no zeros and ones") as caught:
        found = graph.solve_map(exact=True)
    assert "2 of 3 components have constraints" in details_of(caught[0])
    assert found.proved.all()
    assert not found.found[:2].any()
    assert np.isnan(u.value).all()
    np.testing.assert_array_equal(found.values[-2:], [0.0, 1.0])


def test_scores_that_are_not_finite_harm_their_component_alone() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[np.nan, 1.0], [0.0, 1.0]])
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning):
        relaxed = graph.solve_map()
    assert relaxed.status[0] is Status.NON_FINITE
    with pytest.warns(ConvergenceWarning, match="have a score that is NaN"):
        graph.solve_map(exact=True)
    np.testing.assert_array_equal(u.value, [[np.nan, np.nan], [0.0, 1.0]])
    graph.rescore(u, np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match=r"block 0 holds nan at \[0, 0\]"):
        graph.solve_map(exact=True)


def frustrated(n: int, rng: np.random.Generator) -> FactorGraph:
    """Return a graph whose relaxation says little: random signs between all pairs."""
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=n))
    first, second = np.triu_indices(n, 1)
    graph.add(Pair(u[first], u[second], rng.normal(size=len(first))))
    return graph


@pytest.mark.compiled
def test_limits_leave_the_best_so_far_and_a_bound(rng: np.random.Generator) -> None:
    graph = frustrated(60, rng)
    for limit in ({"max_nodes": 40}, {"max_time": 0.3}):
        with pytest.warns(ConvergenceWarning, match="not proved the best"):
            found = graph.solve_map(exact=True, **limit)
        assert found.found.all()
        assert not found.proved.any()
        assert found.bound[0] > found.score[0]


@pytest.mark.compiled
def test_however_short_the_time_there_is_an_assignment(rng: np.random.Generator) -> None:
    """Networks that are not small, trees whose words have few dependents, and matchings."""
    network, trees, matchings = FactorGraph(), FactorGraph(), FactorGraph()
    x = network.variable_from(rng.normal(size=(20, 300)))
    for _ in range(3):
        order = rng.permutation(300)
        pairs = rng.normal(size=(20, 300)).reshape(-1)
        network.add(Pair(x.reshape(-1), x[:, order].reshape(-1), pairs))
    u = trees.variable_from(rng.normal(size=(5, 15, 15)))
    trees.add(DepTree(u, projective=False))
    trees.add(Budget(u, 3, axis=1))
    trees.add(Pair(u[:, :-1], u[:, 1:], rng.normal(size=(5, 14, 15))))
    m = matchings.variable_from(rng.normal(size=(3, 12, 12)))
    matchings.add(Xor(m))
    matchings.add(AtMostOne(m, axis=1))
    matchings.add(Pair(m[:, :-1, :-1], m[:, 1:, 1:], rng.normal(scale=3.0, size=(3, 11, 11))))
    for graph in (network, trees, matchings):
        for max_time in (1.0, 1e-9):  # the first compiles
            begin = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = graph.solve_map(exact=True, max_time=max_time)
            seconds = time.monotonic() - begin
        assert found.found.all()
        assert (found.bound >= found.score).all()
        assert seconds < 1.5


@pytest.mark.compiled
def test_the_time_is_that_of_all_components(rng: np.random.Generator) -> None:
    """Also where nothing that is allowed can be found for any of them."""
    graph, n = FactorGraph(), 60
    u = graph.variable_from(rng.normal(size=(n, 7, 7)))
    graph.add(DepTree(u))
    graph.add(Budget(u, 1, axis=1))
    graph.add(Knapsack(u.reshape(n, 49), rng.uniform(size=(n, 49)), np.full(n, 0.9)))
    for max_time in (0.2, 0.1):  # the first compiles
        begin = time.monotonic()
        with pytest.warns(ConvergenceWarning, match="no assignment yet"):
            found = graph.solve_map(exact=True, max_time=max_time)
        seconds = time.monotonic() - begin
    assert np.isfinite(found.bound).any()
    assert seconds < 3.0


@pytest.mark.compiled
def test_ctrl_c_gives_the_best_so_far(rng: np.random.Generator) -> None:
    graph, seen = frustrated(60, rng), []

    def stop(component: int, progress: object) -> None:
        seen.append((component, progress))
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="not proved the best"):
        found = graph.solve_map(exact=True, progress=stop)
    assert found.found.all()
    assert len(seen) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_a_real_ctrl_c_reaches_the_search(rng: np.random.Generator) -> None:
    graph = frustrated(60, rng)
    graph.solve_map(exact=True, max_nodes=1000, gap=1e9)  # compiles
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.warns(ConvergenceWarning, match="not proved the best"):
        found = graph.solve_map(exact=True, max_time=60.0)
    timer.join()
    assert found.found.all()
    assert found.bound[0] > found.score[0]
    assert graph.solve().ok


@pytest.mark.compiled
def test_a_gap_that_is_good_enough(rng: np.random.Generator) -> None:
    graph = frustrated(30, rng)
    exact = graph.solve_map(exact=True)
    rough = graph.solve_map(exact=True, gap=0.5)
    assert rough.ok
    assert rough.n_nodes.sum() < exact.n_nodes.sum()
    assert rough.bound[0] >= exact.total - 1e-9


@pytest.mark.parametrize("autodetect_acyclic", [False, True])
def test_a_chain_of_pairs_as_the_earlier_library_tests_it(
    autodetect_acyclic: bool, rng: np.random.Generator
) -> None:
    """A tree of factors is solved exactly, whatever the option says."""
    scores, pairs = rng.normal(size=8), rng.normal(size=7)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Pair(u[:-1], u[1:], pairs))
    graph.solve_map(autodetect_acyclic=autodetect_acyclic)
    tried = judges.binary_vectors(8)
    best = (tried @ scores + (tried[:, :-1] * tried[:, 1:]) @ pairs).argmax()
    np.testing.assert_allclose(u.value, tried[best], atol=1e-6)


@pytest.mark.parametrize("autodetect_acyclic", [False, True])
def test_two_pairs_on_single_views(autodetect_acyclic: bool) -> None:
    """As the earlier library tests it: views of no axes, one of which is in both pairs."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([-1.0, 0.5, -1.0]))
    graph.add(Pair(u[0], u[1], 2.0))
    graph.add(Pair(u[1], u[2], -3.0))
    graph.solve_map(autodetect_acyclic=autodetect_acyclic)
    np.testing.assert_allclose(u.value, [1.0, 1.0, 0.0], atol=1e-6)


def test_options_are_checked() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1.0, 2.0])))
    for wrong in ({"gap": -1.0}, {"max_nodes": 0}, {"max_iter": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            graph.solve_map(exact=True, **wrong)
    with pytest.raises(TypeError, match="autodetect_acyclic"):
        graph.solve_map(autodetect_acyclic="yes")
    assert graph.solve_map(100, step_size=0.1, adapt=False).ok


def test_a_proof_by_the_last_node_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows need different columns out of three."""
    monkeypatch.setattr(Portfolio, "run", lambda *_: pytest.fail("heuristics follow the proof"))
    graph = FactorGraph()
    u = graph.variable((4, 3))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.add(Knapsack(u.reshape(-1), np.linspace(1.0, 2.0, 12), 9.0))
    with pytest.warns(ConvergenceWarning):
        found = graph.solve_map(exact=True, max_nodes=1, solver="lpsmap")
    assert isinstance(found, Assignment)
    assert found.n_nodes.tolist() == [1]
    assert found.bound.tolist() == [-np.inf]
