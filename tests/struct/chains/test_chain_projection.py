"""Chains by forests: against judge and active set."""

from __future__ import annotations

import itertools
import warnings

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest

import judges
from chain_solvers import forests_of, make_bucket
from checks import SLOW
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import UNTIL_SOLVED, ActiveSets, Bucket, build_layout
from lpsmap_core.local.solvers import choose_solver
from lpsmap_factors_logic import AtMostOne
from lpsmap_factors_struct import Sequence, SequenceBudget
from lpsmap_factors_struct.chains.chain_records import FOREST, NO_FOREST, SMALL
from lpsmap_factors_struct.chains.forest import (
    ForestChain,
    forest_size,
    forest_workspace,
    unpack_forest,
)
from lpsmap_factors_struct.chains.initial_forest import initialise_forest

FloatArray = npt.NDArray[np.float64]

pytestmark = pytest.mark.compiled

KINDS = ("plain", "ties", "no transitions", "nothing", "forbidden", "degrees", "shifted", "tiny")


def solved(solver: ActiveSets, a: FloatArray, eta_v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The local solution, for scores that the solver may change."""
    z, v = np.full(len(a), np.nan), np.full(len(eta_v), np.nan)
    solver.solve(np.arange(solver.bucket.n_factors), a.copy(), eta_v.copy(), z, v, UNTIL_SOLVED)
    assert not solver.unsolved().size
    return z, v


def draw_problem(
    rng: np.random.Generator, kind: str
) -> tuple[int, int, FloatArray, FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Sizes, and scores of slots and additionals, roots of degrees, and what is forbidden."""
    length, n_states = int(rng.integers(2, 12)), int(rng.integers(1, 8))
    scale = 10.0 ** rng.integers(-3, 3) * (1e-4 if kind == "tiny" else 1.0)
    n_additionals = 2 * n_states + (length - 1) * n_states**2
    a = scale * rng.standard_normal(length * n_states)
    eta_v = scale * rng.standard_normal(n_additionals)
    delta, forbidden = np.ones(len(a)), np.zeros(n_additionals, dtype=bool)
    if kind == "ties":
        a, eta_v = scale * np.round(a / scale), scale * np.round(eta_v / scale)
    elif kind == "no transitions":
        eta_v[:] = 0.0
    elif kind == "nothing":
        a[:], eta_v[:] = 0.0, 0.0
    elif kind == "degrees":
        delta = np.sqrt(rng.integers(1, 6, size=len(a)))
    elif kind == "shifted":
        a += np.repeat(1e4 * rng.standard_normal(length), n_states)
        scale = 1e4
    elif kind == "forbidden":
        path = rng.integers(n_states, size=length)
        forbidden = rng.random(n_additionals) < 0.4
        a[rng.random(len(a)) < 0.3] = -np.inf
        a[np.arange(length) * n_states + path] = scale
        steps = n_states * (1 + np.arange(length - 1) * n_states + path[:-1]) + path[1:]
        forbidden[[path[0], *steps, n_additionals - n_states + path[-1]]] = False
    return length, n_states, a, eta_v, delta, forbidden


def excess(bucket: Bucket, delta: FloatArray, a: FloatArray, eta_v: FloatArray, z, v) -> float:
    """How much a path can gain at a solution, by Viterbi: ||z - z*||^2 is at most this."""
    oracle = ActiveSets(bucket, delta)
    oracle.scores[:] = (a - z) / delta
    oracle.find_candidates(np.arange(1), eta_v)
    start, entry, _, size = oracle.candidates
    on = entry[start[0] : start[0] + size[0]]
    scores = np.concatenate([oracle.scores, eta_v])
    return float(scores[on].sum() - scores @ np.concatenate([z * delta, v]))


def check_draws(draws: int, seed: int) -> None:
    """Forests and active sets agree, and both are optimal and feasible."""
    for i in range(draws):
        rng, kind = np.random.default_rng([seed, i]), KINDS[i % len(KINDS)]
        length, n_states, a, eta_v, delta, forbidden = draw_problem(rng, kind)
        bucket = make_bucket(length, n_states)
        flag = forbidden if kind == "forbidden" else None
        forest = forests_of(bucket, delta, flag)
        finite = np.isfinite(a)
        scale = 1.0 + np.abs(a[finite]).max() + np.abs(eta_v).max()
        given = np.where(forbidden, -1e6 * scale, eta_v)
        z, v = solved(forest, a, given)
        assert forest.methods[0] == FOREST, (i, kind)
        shut = np.where(finite, a, -1e6 * scale)
        gap = excess(bucket, delta, shut, given, z, v)
        assert gap <= 1e-12 * length * scale * (1e6 if kind == "forbidden" else 1.0), (i, kind, gap)
        sets = ActiveSets(bucket, delta, None if flag is None else np.asarray(flag, np.int8))
        z_set, _ = solved(sets, a, given)
        np.testing.assert_allclose(z, z_set, rtol=0, atol=1e-9 + 1e-12 * scale, err_msg=str(i))
        check_flow(length, n_states, z * delta, v)
        rows, d_u, d_v = np.arange(1), rng.standard_normal(len(a)), rng.standard_normal(len(v))
        products = []
        for solver in (forest, sets):
            solver.complete_faces(rows, a.copy(), given, z)
            out_u, out_v = np.full(len(a), np.nan), np.full(len(v), np.nan)
            solver.jvp(rows, d_u, d_v, out_u, out_v)
            products.append(np.concatenate([out_u, out_v]))
        if kind in ("plain", "degrees", "shifted"):  # the others have kinks, or flows with a choice
            np.testing.assert_allclose(*products, rtol=0, atol=1e-6, err_msg=f"{i} {kind}")


def check_flow(length: int, n_states: int, m: FloatArray, v: FloatArray) -> None:
    """Additionals are a flow of one, whose nodes are the variables."""
    m = m.reshape(length, n_states)
    edges = v[n_states:-n_states].reshape(length - 1, n_states, n_states)
    assert min(m.min(), v.min()) >= 0.0
    np.testing.assert_allclose(m.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(edges.sum(axis=2), m[:-1], atol=1e-12)
    np.testing.assert_allclose(edges.sum(axis=1), m[1:], atol=1e-12)
    np.testing.assert_allclose(np.stack([v[:n_states], v[-n_states:]]), m[[0, -1]], atol=1e-12)


def test_forests_agree_with_active_sets() -> None:
    """On problems of all kinds."""
    check_draws(48, 0)


@pytest.mark.slow
def test_forests_agree_with_active_sets_often() -> None:
    """As above, many times."""
    check_draws(SLOW, 1)


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 0.1, 1.0, 10.0])
def test_judge(scale: float) -> None:
    """Small chains agree with an enumeration and an interior point method."""
    rng, (length, n_states) = np.random.default_rng(3), (4, 3)
    bucket = make_bucket(length, n_states)
    a = scale * rng.standard_normal(length * n_states)
    eta_v = scale * rng.standard_normal(bucket.n_additionals)
    delta = np.sqrt(rng.integers(1, 4, size=len(a)))
    paths = np.array(list(itertools.product(range(n_states), repeat=length)))
    m = np.eye(n_states)[paths]
    steps = np.einsum("pti,ptj->ptij", m[:, :-1], m[:, 1:]).reshape(len(paths), -1)
    n = np.concatenate([m[:, 0], steps, m[:, -1]], axis=1)
    expected, _ = judges.project_polytope(m.reshape(len(paths), -1), n, a, eta_v, delta)
    z, _ = solved(forests_of(bucket, delta), a, eta_v)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])
def test_all_scales_are_solved(scale: float) -> None:
    """With a bound on the error, and marginals that need hundreds of structures."""
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((2, 20, 10)))
    chain = graph.add(Sequence(u, scale * rng.standard_normal((2, 19, 10, 10))))
    solution = graph.solve()
    assert (solution.status == Status.SOLVED).all()
    assert solution.error_bound.max() < 1e-9 * max(scale, 1.0)
    found = graph.structures(chain)
    if scale <= 0.1:
        assert (solution.solved.state.solvers[0].methods == FOREST).all()
        assert found.counts.min() > 80
    mean = (found.probabilities[..., None, None] * found.variables).sum(axis=1)
    np.testing.assert_allclose(mean, u.value, atol=1e-9)
    assert np.isfinite(found.pull_back(rng.standard_normal(found.probabilities.shape))).all()


def test_warm_starts_follow_moving_scores() -> None:
    """A forest that has been found helps with the next problem, far or near."""
    rng, (length, n_states) = np.random.default_rng(1), (10, 6)
    bucket, delta = make_bucket(length, n_states), np.ones(length * n_states)
    forest = forests_of(bucket, delta)
    for scale, move in itertools.product((1e-3, 0.1, 3.0), (1e-3, 0.1, 1.0)):
        a = scale * rng.standard_normal(len(delta))
        eta_v = scale * rng.standard_normal(bucket.n_additionals)
        for _ in range(4):
            a = a + move * scale * rng.standard_normal(len(a))
            z, v = solved(forest, a, eta_v)
            assert excess(bucket, delta, a, eta_v, z, v) < 1e-11
            check_flow(length, n_states, z, v)


def test_gradients_against_differences() -> None:
    """In scores of all kinds, away from kinks."""
    rng, scale, (length, n_states) = np.random.default_rng(5), 0.05, (9, 6)
    bucket = make_bucket(length, n_states)
    delta = np.sqrt(rng.integers(1, 4, size=length * n_states))
    a = scale * rng.standard_normal(len(delta))
    eta_v = scale * rng.standard_normal(bucket.n_additionals)
    d_u, d_v = rng.standard_normal(len(a)), rng.standard_normal(len(eta_v))
    forest, out_u, out_v = forests_of(bucket, delta), np.empty(len(a)), np.empty(len(eta_v))
    z, _ = solved(forest, a, eta_v)
    forest.jvp(np.arange(1), d_u, d_v, out_u, out_v)
    h = 1e-8
    ahead = solved(forests_of(bucket, delta), a + h * d_u, eta_v + h * d_v)
    behind = solved(forests_of(bucket, delta), a - h * d_u, eta_v - h * d_v)
    for product, more, less in zip((out_u, out_v), ahead, behind, strict=True):
        np.testing.assert_allclose(product, (more - less) / (2 * h), atol=2e-5)
    alone = np.empty(len(a))
    forest.jvp(np.arange(1), d_u, np.empty(0), alone, np.empty(0))
    forest.jvp(np.arange(1), d_u, 0.0 * d_v, out_u, out_v)
    np.testing.assert_allclose(alone, out_u, atol=1e-12)


@pytest.mark.parametrize("length", [0, 1, 2])
@pytest.mark.parametrize("n_states", [1, 40])
def test_short_chains(length: int, n_states: int) -> None:
    """Without a step there is no forest: the active set solves these."""
    rng, graph = np.random.default_rng(2), FactorGraph()
    u = graph.variable_from(1e-3 * rng.standard_normal((3, 2, n_states)))
    graph.add(Sequence(u, 1e-3 * rng.standard_normal((n_states, n_states)), lengths=[2, length, 2]))
    solution = graph.solve()
    assert (solution.status == Status.SOLVED).all()
    np.testing.assert_allclose(u.value[[0, 2]].sum(axis=-1), 1.0)
    solver = solution.solved.state.solvers[0]
    assert set(solver.methods) <= {SMALL, FOREST, NO_FOREST}


def test_among_other_factors() -> None:
    """Nearly uniform scores, among constraints: solved to rounding, from faces found before."""
    rng, scale, values = np.random.default_rng(4), 1e-2, []
    scores = scale * rng.standard_normal((2, 8, 12))
    steps = scale * rng.standard_normal((12, 12))
    for sign in (1.0, -1.0):
        graph = FactorGraph()
        u = graph.variable_from(sign * scores)
        on = u if sign > 0.0 else ~u
        graph.add(Sequence(on, steps))
        graph.add(AtMostOne(on, axis=1))
        solution = graph.solve(tol=1e-9)
        assert solution.ok
        assert solution.error_bound.max() < 1e-8
        again = graph.solve(tol=1e-9, warm_start=solution)
        assert again.iterations.max() < solution.iterations.max()
        values.append(u.value if sign > 0.0 else 1.0 - u.value)
    np.testing.assert_allclose(*values, rtol=0, atol=1e-8)


def test_ties_can_move() -> None:
    """Where all scores are equal, marginals are the middle, and every layer moves by itself."""
    length, n_states = 6, 4
    bucket, rng = make_bucket(length, n_states), np.random.default_rng(8)
    n, n_v = length * n_states, bucket.n_additionals
    forest, out_u, out_v = forests_of(bucket, np.ones(n)), np.empty(n), np.empty(n_v)
    z, _ = solved(forest, np.zeros(n), np.zeros(n_v))
    np.testing.assert_allclose(z, 0.25)
    d_u = rng.standard_normal((length, n_states))
    forest.complete_faces(np.arange(1), np.zeros(n), np.zeros(n_v), z)
    forest.jvp(np.arange(1), d_u.ravel(), np.zeros(n_v), out_u, out_v)
    expected = d_u - d_u.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(out_u.reshape(d_u.shape), expected, atol=1e-12)


def test_what_forests_do_not_solve_is_left_to_active_sets() -> None:
    """Potentials that are too large for the digits of marginals, and contradictions."""
    bucket, rng = make_bucket(12, 5), np.random.default_rng(9)
    a, eta_v = 1e8 * rng.standard_normal(60), 1e8 * rng.standard_normal(bucket.n_additionals)
    forest = forests_of(bucket, np.ones(60))
    z, _ = solved(forest, a, eta_v)
    assert forest.methods[0] == NO_FOREST
    again = ActiveSets(bucket, np.ones(60))
    np.testing.assert_allclose(z, solved(again, a, eta_v)[0], atol=1e-6)
    z, _ = solved(forest, 1e-8 * a, 1e-8 * eta_v)
    assert forest.methods[0] == NO_FOREST
    np.testing.assert_allclose(z, solved(again, 1e-8 * a, 1e-8 * eta_v)[0], atol=1e-9)


@pytest.mark.parametrize("n_states", [1, 3, 4, 7, 20])
def test_edges_of_a_forest_close_no_circle(n_states: int) -> None:
    """Fewer edges between two layers than they have nodes, and paths that are independent."""
    rng, length, n = np.random.default_rng(n_states), 9, 9 * n_states
    bucket = make_bucket(length, n_states)
    forest = forests_of(bucket, np.ones(n))
    eta_v = 1e-2 * rng.integers(3, size=bucket.n_additionals)
    z, v = solved(forest, 1e-2 * rng.standard_normal(n), eta_v)
    assert forest.methods[0] == FOREST
    nodes = (z.reshape(length, n_states) > 0.0).sum(axis=1)
    steps = v[n_states:-n_states].reshape(length - 1, -1) > 0.0
    assert (steps.sum(axis=1) < nodes[1:] + nodes[:-1]).all()
    found = forest.structures(np.arange(1))
    n_paths, on = len(found.probability), found.entry < n
    paths = np.zeros((n_paths, n))
    paths[np.repeat(np.arange(n_paths), np.diff(found.offsets))[on], found.entry[on]] = 1.0
    np.testing.assert_allclose(found.probability @ paths, z, atol=1e-12)
    assert np.linalg.matrix_rank(paths - paths[:1]) == n_paths - 1


@pytest.mark.parametrize("kind", ["plain", "ties", "nothing"])
def test_forests_begin_with_best_paths(kind: str, rng: np.random.Generator) -> None:
    """All flow on the best one; every edge is on the best path of one of its nodes, or both."""
    length, n = 5, 4
    scores, steps = rng.standard_normal(length * n), rng.standard_normal((length - 1) * n * n)
    if kind != "plain":
        scores, steps = (0.5 * np.round(x) * (kind == "ties") for x in (scores, steps))
    nodes, used = judges.sequences(length, n)
    value = nodes @ scores + used @ steps
    forest = unpack_forest(np.empty(forest_size(length, n)), length, n)
    room = forest_workspace(length, n, 0)
    room.score[:] = scores
    most = initialise_forest(ForestChain(length, n, forest, room, steps, 0, n * n))
    assert most == pytest.approx(value.max(), abs=1e-12)
    best = np.zeros((length - 1, n, n))
    for t in range(length - 1):
        edges = nx.Graph()
        for x in range(t * 2 * n, t * 2 * n + forest.n_edges[t]):
            i, j = int(forest.begin[x]), int(forest.end[x]) - n
            edges.add_edge(("before", i), ("after", j))
            best[t, i, j] = forest.flow[x]
            through = nodes.reshape(-1, length, n)
            over = used.reshape(-1, length - 1, n, n)[:, t, i, j] > 0.0
            at_least = min(value[through[:, t, i] > 0].max(), value[through[:, t + 1, j] > 0].max())
            assert value[over].max() == pytest.approx(at_least, abs=1e-12)
        assert nx.is_forest(edges)
        assert edges.number_of_edges() == forest.n_edges[t]
    flow = used @ best.reshape(-1)
    assert value[flow == length - 1].max() == pytest.approx(value.max(), abs=1e-12)
    assert best.sum() == length - 1


def test_limited_iterations_mean_the_active_set() -> None:
    """As for all types that iterate."""
    graph = FactorGraph()
    u = graph.variable_from(1e-3 * np.random.default_rng(0).standard_normal((20, 10)))
    graph.add(Sequence(u, np.zeros((10, 10))))
    with pytest.warns(UserWarning, match="ran out of iterations"):
        solution = graph.solve(max_inner_iter=5)
    assert solution.status[0] == Status.INNER_ITERATION_LIMIT
    assert type(solution.solved.state.solvers[0]) is ActiveSets


def test_other_structures_are_no_chains() -> None:
    """A type that inherits all but the structures is solved by its own oracle."""

    class Lazy(Sequence):
        def solve_map(self, eta_u, eta_v):
            return (0,) * len(eta_u)

    graph = FactorGraph()
    for factor in (
        Lazy(graph.variable((3, 2)), np.zeros((2, 2))),
        SequenceBudget(graph.variable((3, 2)), np.zeros((2, 2)), 1),
    ):
        bucket = build_layout(graph.n_variables, [factor]).buckets[0]
        assert choose_solver(bucket.type).solver is ActiveSets


def test_contradictions_stay_contradictions() -> None:
    """A chain that must not take any step."""
    graph = FactorGraph()
    u = graph.variable_from(1e-3 * np.random.default_rng(0).standard_normal((2, 20, 6)))
    transitions = np.zeros((2, 19, 6, 6))
    transitions[1, 7] = -np.inf
    graph.add(Sequence(u, transitions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = graph.solve()
    assert list(solution.status) == [Status.SOLVED, Status.INFEASIBLE]


def test_threads_and_order_do_not_matter() -> None:
    """To the last bit."""
    rng = np.random.default_rng(6)
    scores, steps = 1e-2 * rng.standard_normal((6, 15, 8)), 1e-2 * rng.standard_normal((8, 8))
    values = []
    for threads, order in ((1, slice(None)), (2, slice(None)), (2, slice(None, None, -1))):
        graph = FactorGraph()
        u = graph.variable_from(scores[order])
        graph.add(Sequence(u, steps))
        graph.solve(threads=threads)
        values.append(u.value[order])
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])


def test_many_states_with_nearly_uniform_scores() -> None:
    """All states are used, so that a forest takes more than 400 rounds."""
    rng, (length, n_states) = np.random.default_rng(0), (20, 60)
    bucket = make_bucket(length, n_states)
    a, eta_v = (1e-8 * rng.standard_normal(n) for n in (bucket.n_links, bucket.n_additionals))
    delta = np.sqrt(rng.integers(1, 4, size=len(a)))
    forest = forests_of(bucket, delta)
    z, v = solved(forest, a, eta_v)
    assert forest.methods[0] == FOREST
    assert excess(bucket, delta, a, eta_v, z, v) < 1e-14
    check_flow(length, n_states, z * delta, v)
