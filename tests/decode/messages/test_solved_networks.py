"""Networks that messages solve alone: held to trying all assignments, and to the loop."""

from __future__ import annotations

import itertools
import warnings
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, Budget, Dense, FactorGraph, Potts, Xor
from lpsmap_core import ConvergenceWarning, Options, Status
from lpsmap_core.engine import compiled
from lpsmap_core.engine.linear import solve_linear
from lpsmap_core.engine.state import PartState
from lpsmap_core.layout.layout import Part
from lpsmap_decode.messages import message_engine
from lpsmap_decode.messages.message_engine import MessageEngine
from lpsmap_decode.messages.solved_networks import SolvedNetworks
from lpsmap_decode.networks.messages import new_shares
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.networks.ordering import breadth_first, fewest_first

FloatArray = npt.NDArray[np.float64]


def ring(seed: int, n: int = 5, k: int = 2, scale: float = 1.0) -> tuple[FactorGraph, FloatArray]:
    """Return a circle of nodes, with the scores of all its assignments."""
    rng = np.random.default_rng(seed)
    eta, tables = scale * rng.normal(size=(n, k)), scale * rng.normal(size=(n, k, k))
    graph = FactorGraph()
    x = graph.variable_from(eta)
    graph.add(Dense([x, x[(np.arange(n) + 1) % n]], tables))
    chosen = np.array(list(itertools.product(range(k), repeat=n)))
    total = eta[np.arange(n), chosen].sum(axis=1)
    total += tables[np.arange(n), chosen, np.roll(chosen, -1, axis=1)].sum(axis=1)
    return graph, total


def grid(n: int = 12, k: int = 20) -> FactorGraph:
    """Return a grid of nodes, with one table for all edges, that messages do not solve."""
    graph = FactorGraph()
    x = graph.variable_from(np.random.default_rng(0).normal(size=(n, n, k)))
    graph.add(Potts(x[:, :-1], x[:, 1:], 1.0))
    graph.add(Potts(x[:-1], x[1:], 1.0))
    return graph


def test_a_network_has_no_array_with_a_number_for_every_message() -> None:
    graph = grid()
    networks = networks_of(graph._laid_out().part)
    assert networks.covered.all()
    held = {k: v for k, v in vars(networks).items() if isinstance(v, np.ndarray)}
    held |= networks.network._asdict() | networks.places._asdict()
    n_messages = int(networks.network.message_offsets[-1])
    assert {name for name, array in held.items() if len(array) >= n_messages} == set()


def test_messages_are_the_only_array_of_that_size() -> None:
    network = networks_of(grid()._laid_out().part).network
    sizes = sorted(len(array) for array in new_shares(network))
    assert sizes == [network.first_state[-1], network.message_offsets[-1]]


def test_passes_before_a_search_end_once_the_bound_cannot_close_the_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, graph = np.random.default_rng(3), FactorGraph()
    x = graph.variable_from(0.1 * rng.normal(size=(10, 10, 3)))
    graph.add(Dense([x[:-1], x[1:]], rng.normal(size=(9, 10, 3, 3))))
    graph.add(Dense([x[:, :-1], x[:, 1:]], rng.normal(size=(10, 9, 3, 3))))
    given = graph._laid_out().part, *graph.scored_graph().of_part(), np.zeros(1, dtype=bool)
    options = Options(quadratic=0.0, exact=True, tol=1e-10)
    early = MessageEngine().solve(*given, options).found
    monkeypatch.setattr(message_engine, "SLOW", 0.0)
    late = MessageEngine().solve(*given, options).found
    assert early.passes[0] <= 300 < 600 <= late.passes[0]
    gap = late.bound[0] - late.score[0]
    assert gap > 1.0
    assert abs(early.bound[0] - late.bound[0]) < 1e-5 * gap


def test_messages_are_freed_before_cores_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    alive, seen, pass_messages = [], [], MessageEngine.solve

    def passed(*arguments: Any) -> Any:
        result = pass_messages(*arguments)
        alive.append(weakref.ref(result))
        return result

    def solve(*arguments: Any) -> PartState:
        seen.extend(one() is None for one in alive)
        return solve_linear(*arguments)

    monkeypatch.setattr(MessageEngine, "solve", passed)
    monkeypatch.setattr(compiled, "solve_linear", solve)
    with pytest.warns(ConvergenceWarning):
        grid().solve_map(max_iter=3)
    assert seen == [True]


@pytest.mark.parametrize("seed", range(30))
def test_marginals_of_all_factors_agree_and_score_what_is_said(seed: int) -> None:
    graph, total = ring(seed, scale=float(10.0 ** (seed % 7 - 3)))
    solution = graph.solve_map(tol=1e-9)
    assert solution.ok
    assert isinstance(solution.solved, SolvedNetworks)
    assert "_additionals" not in vars(solution.solved)  # computed when they are asked for
    mu = solution.values.reshape(5, 2)
    pairs = solution.additionals[0].reshape(5, 2, 2)
    assert pairs.min() >= -1e-12
    np.testing.assert_allclose(pairs.sum(axis=2), mu, atol=1e-9)
    np.testing.assert_allclose(pairs.sum(axis=1), np.roll(mu, -1, axis=0), atol=1e-9)
    size = max(1.0, abs(total.max()))
    assert solution.objective[0] + solution.gap[0] >= total.max() - 1e-9 * size
    assert solution.gap[0] <= 2e-9 * size
    # what meets the bound is the optimum of the relaxation, by the loop too
    by_loop = graph.solve_map(tol=1e-9, warm_start=solution)
    assert not isinstance(by_loop.solved, SolvedNetworks)
    assert by_loop.objective[0] == pytest.approx(solution.objective[0], rel=1e-6, abs=1e-6)
    if not ((mu > 1e-6) & (mu < 1.0 - 1e-6)).any():
        assert solution.objective[0] == pytest.approx(total.max(), rel=1e-9)
    for distribution in solution.structures(graph.factors[0]):
        assert sum(distribution.probabilities) == pytest.approx(1.0)


def test_what_nothing_fits_is_not_solved() -> None:
    """Three nodes that all have to differ, of two states."""
    graph = FactorGraph()
    x = graph.variable_from(np.zeros((3, 2)))
    differ = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    one, other = x[np.array([0, 1, 2])], x[np.array([1, 2, 0])]
    graph.add(Dense([one, other], np.tile(differ, (3, 1, 1))))
    relaxed = graph.solve_map()  # halves differ
    np.testing.assert_allclose(x.value, 0.5, atol=1e-6)
    assert relaxed.ok
    with pytest.warns(ConvergenceWarning, match="no zeros and ones satisfy"):
        assert not graph.solve_map(exact=True).found.any()
    graph = FactorGraph()
    x = graph.variable_from([[0.0, -np.inf], [0.0, -np.inf]])
    graph.add(Dense([x[0], x[1]], differ))
    y = graph.variable_from(np.zeros(2))
    graph.add(Dense([x[1], y], np.zeros((2, 2))))
    with pytest.warns(ConvergenceWarning):
        assert graph.solve_map().status[0] is Status.INFEASIBLE


def test_a_bad_component_leaves_the_others_as_they_are() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    eta = rng.normal(size=(2, 3, 2))
    eta[1, 0, 0] = np.nan
    x = graph.variable_from(eta)
    graph.add(Dense([x, x[:, np.array([1, 2, 0])]], rng.normal(size=(2, 3, 2, 2))))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve_map()
    assert solution.status[1] is Status.NON_FINITE
    assert solution.status[0] in (Status.SOLVED, Status.CONVERGED)
    assert np.isfinite(solution.values[:6]).all()
    assert np.isnan(solution.values[6:]).all()


def test_breadth_first_visits_every_node_once_from_neighbour_to_neighbour() -> None:
    scopes = [[0, 5], [5, 2], [2, 7, 1], [3, 4], [1, 0]]
    lengths = np.array([len(s) for s in scopes])
    when = breadth_first(9, np.append(0, np.cumsum(lengths)), np.concatenate(scopes))
    assert sorted(when) == list(range(9))
    neighbours = [{j for s in scopes if i in s for j in s} - {i} for i in range(9)]
    starts = [i for i in range(9) if not any(when[j] < when[i] for j in neighbours[i])]
    assert len(starts) == 4  # as many as parts that hang together


@pytest.mark.parametrize("seed", range(20))
def test_the_node_of_fewest_neighbours_left_goes_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    scopes = [rng.permutation(n)[: rng.integers(2, 4)].tolist() for _ in range(seed)]
    offsets = np.append(0, np.cumsum([len(s) for s in scopes])).astype(np.int64)
    scope = np.array([i for s in scopes for i in s], dtype=np.int64)
    when, tie = fewest_first(n, offsets, scope), breadth_first(n, offsets, scope)
    left = set(range(n))
    for t in range(n):
        neighbours = {i: sum(len(left & {*s}) - 1 for s in scopes if i in s) for i in left}
        node = min(left, key=lambda i: (neighbours[i], tie[i]))
        assert when[node] == t
        left.remove(node)


def mixture(seed: int) -> tuple[FactorGraph, list[FactorGraph]]:
    """Return a graph of components that different ways solve, and each of them alone.

    A circle whose relaxation messages solve, one of three states whose relaxation they mostly do
    not, a matching, and a count of whatever is on.
    """
    rng = np.random.default_rng(seed)
    circles = [(rng.normal(size=(5, k)), 2.0 * rng.normal(size=(5, k, k))) for k in (2, 3)]
    matching, few = rng.normal(size=(4, 4)), rng.normal(size=6)

    def build(parts: list[int]) -> FactorGraph:
        graph = FactorGraph()
        for which in parts:
            if which < 2:
                x = graph.variable_from(circles[which][0])
                graph.add(Dense([x, x[(np.arange(5) + 1) % 5]], circles[which][1]))
            elif which == 2:
                u = graph.variable_from(matching)
                graph.add(Xor(u))
                graph.add(AtMostOne(u, axis=0))
            else:
                graph.add(Budget(graph.variable_from(few), 2))
        return graph

    return build([0, 1, 2, 3]), [build([which]) for which in range(4)]


@pytest.mark.parametrize("seed", range(12))
def test_a_mixture_is_solved_as_its_components_are(seed: int) -> None:
    graph, alone = mixture(seed)
    solution, others = graph.solve_map(tol=1e-9), [g.solve_map(tol=1e-9) for g in alone]
    objective = [other.objective[0] for other in others]
    np.testing.assert_allclose(solution.objective, objective, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(solution.gap, 0.0, atol=1e-5)
    assert (solution.gap >= -1e-9).all()
    assert list(solution.status) == [other.status[0] for other in others]
    for factor in graph.factors:
        for distribution in solution.structures(factor):
            assert sum(distribution.probabilities) == pytest.approx(1.0)
    again = graph.solve_map(tol=1e-9, warm_start=solution)
    np.testing.assert_allclose(again.objective, objective, rtol=1e-6, atol=1e-6)
    best = graph.solve_map(exact=True)
    scores = [g.solve_map(exact=True).score[0] for g in alone]
    assert best.ok
    np.testing.assert_allclose(best.score, scores, rtol=1e-9)
    assert (best.score <= solution.objective + solution.gap + 1e-9).all()


def test_the_loop_solves_what_messages_do_not_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, _ = mixture(0)
    times = np.zeros(4)

    def solved(part: Part, eta: FloatArray, eta_v: FloatArray, skip: Any, *rest: Any) -> PartState:
        times[~skip] += 1
        return solve_linear(part, eta, eta_v, skip, *rest)

    monkeypatch.setattr(compiled, "solve_linear", solved)
    assert graph.solve_map(exact=True).ok
    np.testing.assert_array_equal(times, [0, 0, 1, 1])


@pytest.mark.parametrize("seed", range(30))
def test_small_networks_are_eliminated(seed: int) -> None:
    graph, total = ring(seed, n=4, k=2 + seed % 2, scale=3.0)
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.n_nodes.sum() == 0
    assert found.score[0] == pytest.approx(total.max(), rel=1e-12)
    assert found.bound[0] == pytest.approx(total.max(), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e-12, 1e-100])
@pytest.mark.parametrize("seed", range(5))
def test_small_scores_are_solved_like_large_ones(seed: int, scale: float) -> None:
    """The messages' tolerances are in units of the scores, as are the duals for the loop."""
    for n, k in ((5, 2), (4, 3), (3, 2)):
        large, _ = ring(seed, n, k)
        small, totals = ring(seed, n, k, scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            expected, found = large.solve_map(), small.solve_map()
        assert found.status.tolist() == expected.status.tolist()
        np.testing.assert_allclose(found.objective, scale * expected.objective, rtol=1e-6)
        bound = found.solved.assignment_bound()
        np.testing.assert_allclose(bound, scale * expected.solved.assignment_bound(), rtol=1e-6)
        assert bound[0] >= (1.0 - 1e-12) * totals.max()
