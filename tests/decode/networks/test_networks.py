"""Components of tables as networks, held to trying all assignments."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AtMostOne, Dense, FactorGraph, Imply, Nand, Or, Pair, Potts, Xor
from lpsmap_core import ConvergenceWarning, Deadline
from lpsmap_core.layout.layout import Part
from lpsmap_decode import score_assignment
from lpsmap_decode.exact import component_search
from lpsmap_decode.exact import network_search as of_states
from lpsmap_decode.exact.network_search import NetworkSpace
from lpsmap_decode.networks.blocks import block_order, improve_block
from lpsmap_decode.networks.bounds import tighten
from lpsmap_decode.networks.cycles import no_triplets, triplets_of
from lpsmap_decode.networks.elimination import (
    MAX_NODES,
    eliminate,
    elimination_order,
    neighbours_of,
)
from lpsmap_decode.networks.messages import Potentials, finite_scores, new_shares
from lpsmap_decode.networks.moves import SHORTEST, tabu_search
from lpsmap_decode.networks.network import TableScores, build_network, expand, networks_of
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.search import Search

FloatArray, IntArray = npt.NDArray[np.float64], npt.NDArray[np.int64]


def of_tables(seed: int, forbidding: float = 0.2) -> FactorGraph:
    """Draw tables of one to three variables of one to three states, some slots negated."""
    rng = np.random.default_rng(seed)
    graph, blocks = FactorGraph(), []
    for k in rng.integers(1, 4, size=5):
        scores = rng.normal(size=k)
        scores[1:][rng.random(k - 1) < 0.2] = -np.inf
        negated = rng.random(k) < 0.2
        blocks.append(graph.variable_from(np.where(negated, 0.5, scores)) ^ negated)
    for order in (2, 2, 2, 3, 1):
        chosen = [blocks[i] for i in rng.permutation(5)[:order]]
        table = rng.normal(size=[x.size for x in chosen])
        table[rng.random(table.shape) < forbidding] = -np.inf
        graph.add(Dense(chosen, table))
    graph.add(Xor(blocks[0]))
    return graph


def of_binaries(seed: int) -> FactorGraph:
    """Draw pairs, disjunctions, and blocks of which one at most is on."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=9)) ^ (rng.random(9) < 0.3)
    for kind in rng.choice([Or, Nand, Imply], size=3):
        graph.add(kind(u[rng.permutation(7)[: rng.integers(1, 4)]] ^ (rng.random() < 0.3)))
    first, second = rng.permutation(7)[:6].reshape(2, 3)
    graph.add(Pair(u[first], u[second], rng.normal(size=3)))
    graph.add(AtMostOne(graph.variable_from(rng.normal(size=3))))
    return graph


def of_shared(seed: int) -> FactorGraph:
    """Draw tables, of which many are equal."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    x, y = graph.variable_from(rng.normal(size=(3, 2))), graph.variable_from(rng.normal(size=3))
    turned = y ^ (rng.random(3) < 0.3)
    graph.add(Potts(x[[0, 1, 0]], x[[1, 2, 2]], rng.choice([0.5, -0.5], size=3)))
    tables = rng.normal(size=(2, 2, 2))
    tables[0, 0, 0] = -np.inf
    graph.add(Dense([x[[0, 1, 2]], x[[1, 2, 0]]], tables[rng.integers(2, size=3)]))
    graph.add(Pair(turned[[0, 1, 2]], turned[[1, 2, 0]], 0.7))
    graph.add(Or(turned[rng.permutation(3)[:2]]))
    return graph


def scores_of(graph: FactorGraph) -> tuple[Part, FloatArray, FloatArray]:
    part = graph._laid_out().part
    additionals = [graph.additional_scores(factor) for factor in graph.factors]
    return part, graph.flat_scores()[part.variables], part.by_bucket(additionals, graph.factors)


def score_of(part: Part, eta: FloatArray, eta_v: FloatArray, on: npt.NDArray[np.bool_]) -> float:
    with np.errstate(invalid="ignore"):
        return float(score_assignment(part, eta, eta_v, on)[0][0])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("draw", [of_tables, of_binaries, of_shared])
def test_a_network_scores_every_assignment_as_its_factors_do(draw, seed: int) -> None:
    """By the factors' own oracles; and no assignment is allowed that no states stand for."""
    part, eta, eta_v = scores_of(draw(seed))
    networks = networks_of(part)
    assert networks.covered.all()
    network, found, scores = networks.network, {}, networks.scores(eta, eta_v)
    given = Potentials(*scores, np.zeros(len(scores.states)))
    for chosen in itertools.product(*map(range, network.n_states)):
        on = networks.assignment(np.array(chosen))
        found[tuple(on)] = _total(network, given, chosen)
    for on in judges.binary_vectors(part.n_variables) > 0.5:
        eta_on = np.where(on, eta, 0.0).sum()
        true = score_assignment(part, np.zeros(len(eta)), eta_v, on)[0].sum() + eta_on
        assert found.get(tuple(on), -np.inf) == pytest.approx(true), on


def test_tables_with_equal_scores_share_their_entries() -> None:
    graph, k = FactorGraph(), 5
    x = graph.variable_from(np.random.default_rng(0).normal(size=(30, k)))
    graph.add(Potts(x[:-1], x[1:], np.repeat([0.5, -0.5, 0.5], [9, 10, 10])))
    graph.add(Dense([x[:-2], x[2:]], np.ones((k, k))))
    graph.add(Dense([x[:-3], x[3:]], np.zeros((k, k))))
    part, eta, eta_v = scores_of(graph)
    networks = networks_of(part)
    scores = networks.scores(eta, eta_v)
    assert len(scores.entries) == 4 * k * k
    assert sorted(np.bincount(scores.tables)[:: k * k]) == [10, 19, 27, 28]
    assert expand(networks.network, scores).sum() == 9.5 * k - 5.0 * k + 28 * k * k


@pytest.mark.parametrize("negated", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("first", [Xor, Or])
def test_a_state_that_there_is_no_other_of(negated: tuple[bool, bool], first: type) -> None:
    """An Xor of one slot leaves one state, which others may see from either side."""
    graph = FactorGraph()
    u = graph.variable_from([0.7])
    kinds = [first, Or if first is Xor else Xor]
    for kind in kinds:
        graph.add(kind(u ^ negated[kind is Or]))
    wanted = [not flag for flag in negated]
    found = graph.solve_map(exact=True) if wanted[0] == wanted[1] else None
    if found is not None:
        assert found.ok
        assert u.value.tolist() == [float(wanted[0])]
    else:
        with pytest.warns(ConvergenceWarning, match="no zeros and ones satisfy"):
            found = graph.solve_map(exact=True)
        assert not found.found.any()


def _total(network, given: Potentials, chosen: tuple[int, ...]) -> float:
    total = sum(given.states[network.first_state[:-1] + chosen])
    for f, begin in enumerate(given.tables):
        scope = network.scope[network.scope_offsets[f] : network.scope_offsets[f + 1]]
        sizes = network.n_states[scope]
        total += given.entries[begin + np.ravel_multi_index(np.array(chosen)[scope], sizes)]
    return float(total)


def grid(n: int, k: int, seed: int, forbidding: float = 0.0) -> FactorGraph:
    """Return a torus of variables of k states, of random signs."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    x = graph.variable_from(rng.normal(size=(n, n, k)))
    for other in (np.roll(np.arange(n), -1),):
        for pair in ([x, x[other]], [x, x[:, other]]):
            table = 2.0 * rng.normal(size=(n, n, k, k))
            table[rng.random(table.shape) < forbidding] = -np.inf
            graph.add(Dense(pair, table))
    return graph


def best_of(part: Part, eta: FloatArray, eta_v: FloatArray) -> float:
    """Return the best score over all choices of states, by trying them."""
    networks = networks_of(part)
    states, entries, tables = networks.scores(eta, eta_v)
    network = networks.network
    chosen = np.array(list(itertools.product(*map(range, network.n_states))))
    total = states[network.first_state[:-1] + chosen].sum(axis=1)
    for f, begin in enumerate(tables):
        scope = network.scope[network.scope_offsets[f] : network.scope_offsets[f + 1]]
        index = np.ravel_multi_index(tuple(chosen[:, scope].T), tuple(network.n_states[scope]))
        total += entries[begin + index]
    return float(total.max())


@pytest.mark.parametrize(("n", "k", "forbidding"), [(3, 2, 0.0), (3, 3, 0.2), (4, 2, 0.2)])
@pytest.mark.parametrize("seed", range(3))
def test_elimination_and_bounds(n: int, k: int, forbidding: float, seed: int) -> None:
    part, eta, eta_v = scores_of(grid(n, k, seed, forbidding))
    best = best_of(part, eta, eta_v)
    network, _, _ = networks_of(part).of(0)
    scores = networks_of(part).scores(eta, eta_v)
    chosen = np.zeros(n * n, dtype=np.int64)
    order = elimination_order(network, 1e9)
    assert order.cost < 1e9
    where = network.n_states, network.first_state, network.scope_offsets, network.scope
    given = *where, network.table_offsets, *scores
    assert eliminate(*given, order.nodes, chosen) == pytest.approx(best)
    assert score_of(part, eta, eta_v, networks_of(part).assignment(chosen)) == pytest.approx(best)
    assert elimination_order(network, 10.0).cost == np.inf

    finite, decisive = finite_scores(network, scores)
    entries = expand(network, TableScores(*finite[:3]))
    found = triplets_of(network)
    assert found is not None
    bounds = []
    for wider, triplets in ((network, no_triplets()), found):
        own = np.append(entries, np.zeros(int(wider.table_offsets[-1]) - len(entries)))
        given = finite._replace(
            entries=own, tables=wider.table_offsets[:-1], closed=np.zeros(len(finite.states))
        )
        shares, taken = new_shares(wider), np.zeros(int(triplets.offsets[-1]))
        args = wider, triplets, given, shares, taken, -np.inf, -np.inf
        few = tighten(*args, 2, 1e12, chosen)
        many = tighten(*args, 200, 1e12, chosen)
        assert few + 1e-9 >= many >= best - 1e-9 or best == -np.inf
        bounds.append(many)
    assert bounds[1] <= bounds[0] + 1e-9
    if best > -np.inf:
        chosen[:] = 0
        given = finite._replace(closed=np.zeros(len(finite.states)))
        assert tabu_search(network, given, chosen, 2000) <= best + 1e-9
    # a bound tells what is not allowed at all from what scores little
    assert (bounds[1] < -0.5 * decisive) == (best == -np.inf)


def plain_tabu_search(
    total: Callable[[IntArray], float], n_states: IntArray, closed: list[set[int]], n_moves: int
) -> tuple[float, IntArray]:
    """Tabu search that scores the whole assignment for every move."""
    current = np.zeros(len(n_states), dtype=np.int64)
    best, best_states, random = total(current), current.copy(), 1
    tabu_until: dict[tuple[int, int], int] = {}
    for t in range(n_moves):
        moves = []
        for i, k in enumerate(n_states):
            for x in set(range(k)) - {int(current[i])} - closed[i]:
                score = total(np.where(np.arange(len(n_states)) == i, x, current))
                if tabu_until.get((i, x), 0) <= t or score > best + 1e-9 * (1.0 + abs(best)):
                    moves.append((score, i, x))
        if not moves:
            break
        score, i, x = max(moves)
        random = (1103515245 * random + 12345) % 2**31
        tabu_until[i, int(current[i])] = t + 1 + SHORTEST + (random >> 16) % SHORTEST
        current[i] = x
        if score > best:
            best, best_states = score, current.copy()
    return best, best_states


@pytest.mark.parametrize("seed", range(20))
def test_tabu_moves_are_those_of_a_plain_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_states = rng.integers(1, 5, size=8)
    scopes = [rng.permutation(8)[: rng.integers(1, 4)] for _ in range(12)]
    network = build_network(
        n_states,
        np.cumsum([0, *map(len, scopes)]),
        np.concatenate(scopes),
    )
    states, entries = rng.normal(size=n_states.sum()), rng.normal(size=network.table_offsets[-1])
    is_closed = rng.random(len(states)) < 0.2
    is_closed[network.first_state[:-1]] = False
    potentials = Potentials(
        states, entries, network.table_offsets[:-1], np.where(is_closed, -np.inf, 0.0)
    )
    tables = [
        entries[a:b].reshape(n_states[scope])
        for a, b, scope in zip(
            network.table_offsets[:-1], network.table_offsets[1:], scopes, strict=True
        )
    ]

    def total(chosen: IntArray) -> float:
        pairs = zip(tables, scopes, strict=True)
        of_tables = sum(table[tuple(chosen[scope])] for table, scope in pairs)
        return float(states[network.first_state[:-1] + chosen].sum() + of_tables)

    closed = [
        set(np.flatnonzero(is_closed[a:b]).tolist())
        for a, b in zip(network.first_state[:-1], network.first_state[1:], strict=True)
    ]
    score, expected = plain_tabu_search(total, n_states, closed, 60)
    chosen = np.zeros(8, dtype=np.int64)
    assert tabu_search(network, potentials, chosen, 60) == pytest.approx(score, abs=1e-12)
    np.testing.assert_array_equal(chosen, expected)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("forbidding", [0.0, 0.3])
def test_a_search_without_elimination(
    seed: int, forbidding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bounds that close states: what is left still holds the best, or there is none."""
    monkeypatch.setattr(of_states, "SMALL_COST", -1.0)
    monkeypatch.setattr(of_states, "LARGE_COST", -1.0)
    monkeypatch.setattr(of_states, "ROOT_ROUNDS", 4)
    part, eta, eta_v = scores_of(grid(3, 3, seed, forbidding))
    best = best_of(part, eta, eta_v)
    space = NetworkSpace(part, 0, eta, eta_v, 1e-8)
    found = Search(space.root(), 1e-8).run(space)
    assert found.finished
    assert found.score == pytest.approx(best)
    assert found.bound >= best - 1e-9
    if found.answer is not None:
        assert score_of(part, eta, eta_v, found.answer) == pytest.approx(best)


@pytest.mark.parametrize("by_elimination", [True, False])
def test_heuristics_do_not_delay_elimination(
    by_elimination: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds of the search are short, and elimination follows after a few nodes."""
    rounds = []

    class NoHeuristics(component_search.Portfolio):
        def run(self, deadline: Deadline, until_found: bool = False) -> None:
            rounds.append(until_found)

    monkeypatch.setattr(component_search, "Portfolio", NoHeuristics)
    monkeypatch.setattr(component_search, "FIRST_NODES", 1)
    monkeypatch.setattr(of_states, "SMALL_COST", -1.0)
    monkeypatch.setattr(of_states, "FIRST_NODES", 2)
    monkeypatch.setattr(of_states, "ROOT_ROUNDS", 1)
    if not by_elimination:
        monkeypatch.setattr(of_states, "LARGE_COST", -1.0)
    part, eta, eta_v = scores_of(grid(3, 3, 0))
    n, unknown = part.n_variables, np.full(1, np.inf)
    limits = SearchLimits(1e-8, None, Deadline(), 1)
    given = part, eta, eta_v, np.zeros(n), np.zeros(n, dtype=bool), -unknown, unknown, limits
    found = component_search.decode_part(*given)
    assert found.score[0] == pytest.approx(best_of(part, eta, eta_v))
    assert found.bound[0] == pytest.approx(found.score[0])
    assert found.n_nodes[0] > 1
    assert bool(rounds) != by_elimination


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("draw", [of_tables, lambda seed: grid(3, 3, seed, 0.1)])
def test_a_block_gets_its_best_states(draw, seed: int) -> None:
    part, eta, eta_v = scores_of(draw(seed))
    network, rng = networks_of(part).network, np.random.default_rng(seed)
    given, _ = finite_scores(network, networks_of(part).scores(eta, eta_v))
    given.closed[rng.random(len(given.closed)) < 0.1] = -np.inf
    given.closed[network.first_state[:-1]] = 0.0
    for limit in (1.0, 30.0, 1e9):
        chosen = np.zeros(len(network.n_states), dtype=np.int64)
        weight = rng.uniform(0.5, 1.5, len(chosen))
        order = block_order(network.n_states, neighbours_of(network), weight, limit)
        open_states = [
            [x for x in range(k) if given.closed[first + x] == 0.0] if i in order else [0]
            for i, (k, first) in enumerate(
                zip(network.n_states, network.first_state[:-1], strict=True)
            )
        ]
        best = max(_total(network, given, states) for states in itertools.product(*open_states))
        assert improve_block(network, given, order, chosen) == pytest.approx(best)
        assert _total(network, given, tuple(chosen)) == pytest.approx(best)
        assert all(x in states for x, states in zip(chosen, open_states, strict=True))
    assert len(order) == len(network.n_states)


def test_a_block_has_small_tables_only() -> None:
    """A torus of 6 x 6 has none of width 2 but for some nodes that keep their states."""
    part, _, _ = scores_of(grid(6, 3, 0))
    network, _, _ = networks_of(part).of(0)
    neighbours = neighbours_of(network)
    order = block_order(network.n_states, neighbours.copy(), np.ones(36), 27.0)
    assert 18 <= len(order) < 36
    assert len(set(order)) == len(order)
    inside = neighbours[np.ix_(order, order)]
    for t in range(len(order)):
        near = t + 1 + np.flatnonzero(inside[t, t + 1 :])
        assert len(near) <= 2
        inside[np.ix_(near, near)] = True


def test_blocks_that_overlap_are_no_network() -> None:
    graph = FactorGraph()
    x = graph.variable_from(np.zeros((2, 4)))
    graph.add(Dense([x[0, :3], x[1]], np.zeros((3, 4))))
    graph.add(Dense([x[0, 1:], x[1]], np.zeros((3, 4))))
    y = graph.variable_from(np.zeros((2, 3)))
    graph.add(Dense([y[0], y[1]], np.zeros((3, 3))))
    z = graph.variable_from(np.zeros(3))
    graph.add(Dense([z, z], np.zeros((3, 3))))
    assert networks_of(graph._laid_out().part).covered.tolist() == [False, True, False]


def test_blocks_of_one_first_variable_are_no_node(rng: np.random.Generator) -> None:
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=7))
    graph.add(Dense([u[[0, 1]], u[[2, 3]]], rng.normal(size=(2, 2))))
    graph.add(Dense([u[[4, 5]], u[[0, 6]]], rng.normal(size=(2, 2))))
    assert not networks_of(graph._laid_out().part).covered.any()
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.values[:2].sum() == found.values[[0, 6]].sum() == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_the_relaxation_from_messages_is_certified(seed: int) -> None:
    """The loop finds marginals that meet the messages' bound, and no search is above it."""
    graph = grid(4, 2, seed)
    solution = graph.solve_map(threads=1)
    assert solution.ok
    assert solution.gap[0] <= 1e-6 * abs(solution.objective[0])
    exact = graph.solve_map(exact=True)
    assert exact.ok
    assert exact.total <= solution.objective[0] + solution.gap[0] + 1e-9


def test_networks_of_many_nodes_take_no_square_tables(rng: np.random.Generator) -> None:
    """A picture's worth of nodes would take a table of gigabytes: a longer chain is proved too."""
    n = MAX_NODES + 1
    scores, pairs = rng.normal(size=n), rng.normal(size=n - 1)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Pair(u[:-1], u[1:], pairs))
    network = networks_of(scores_of(graph)[0]).of(0)[0]
    assert elimination_order(network, 1e12).cost == np.inf
    assert triplets_of(network) is None
    best = np.array([0.0, scores[0]])
    for score, pair in zip(scores[1:], pairs, strict=True):
        best = np.array([best.max(), score + max(best[0], best[1] + pair)])
    found = graph.solve_map(exact=True)
    assert found.ok
    np.testing.assert_allclose(found.total, best.max(), rtol=1e-12)
