"""The generic active set against an exact judge, on polytopes without any structure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import judges
from environments import ROOT
from lpsmap import AtMostOne
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.local.active.memory import block_size, set_of, view_set
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.active.steps import RUNNING
from random_graphs import Polytope, random_polytope

FloatArray = npt.NDArray[np.float64]


class Problem(NamedTuple):
    """A local problem over listed structures."""

    m: FloatArray
    n: FloatArray
    a: FloatArray
    eta_v: FloatArray
    delta: FloatArray

    def sets(self) -> ActiveSets:
        """Return cold active sets for it."""
        graph = FactorGraph()
        u = graph.variable(self.m.shape[1])
        factor = Polytope(u, self.m, self.n, self.eta_v if self.eta_v.size else None)
        return ActiveSets(build_layout(u.size, [factor]).buckets[0], self.delta)

    def solve(
        self, sets: ActiveSets | None = None, most: int | None = 2000
    ) -> tuple[FloatArray, FloatArray, ActiveSets]:
        """Return z, v and the active sets."""
        sets = self.sets() if sets is None else sets
        z, v = np.full(len(self.a), np.nan), np.full(len(self.eta_v), np.nan)
        sets.solve(np.array([0]), self.a, self.eta_v, z, v, most)
        return z, v, sets

    def judged(self) -> FloatArray:
        """Return the z that the judge finds."""
        z, _ = judges.project_polytope(self.m, self.n, self.a, self.eta_v, self.delta)
        return z

    @property
    def rounding(self) -> float:
        """Return what the rounding of the scores alone may cost."""
        return 1e-12 + 1e-14 * float(np.abs(np.concatenate([self.a, self.eta_v])).max())


def problems(count: int, seed: int, most: int = 40, ties: bool = False) -> Iterator[Problem]:
    """Draw problems of all scales; with ties, of small integer scores."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        arity, n_additionals = int(rng.integers(1, 9)), int(rng.integers(0, 4))
        m, n = random_polytope(rng, arity, n_additionals, most)
        draw = (lambda size: rng.integers(-2, 3, size).astype(float)) if ties else rng.normal
        scale = 1.0 if ties else 10.0 ** rng.integers(-8, 9)
        a, eta_v = scale * draw(size=arity), scale * draw(size=n_additionals)
        yield Problem(m, n, a, eta_v, np.sqrt(rng.integers(1, 5, size=arity)))


def found(sets: ActiveSets) -> list[tuple[float, FloatArray]]:
    """Return the weights and vertices of the only factor's structures, in the store's order."""
    vertices = sets.structures(np.array([0]))
    dense = np.zeros((len(vertices.owner), sets.bucket.n_links + sets.bucket.n_additionals))
    rows = np.repeat(np.arange(len(dense)), np.diff(vertices.offsets))
    dense[rows, vertices.entry] = vertices.value
    return list(zip(vertices.probability.tolist(), dense, strict=True))


def check(problem: Problem, z: FloatArray, v: FloatArray, sets: ActiveSets) -> None:
    """Hold a solution against the judge's, and its distribution against the solution."""
    assert sets.status[0] != RUNNING
    np.testing.assert_allclose(z, problem.judged(), rtol=0, atol=problem.rounding)
    structures = found(sets)
    p = np.array([weight for weight, _ in structures])
    m, n = np.split(np.array([vertex for _, vertex in structures]), [len(z)], axis=1)
    assert p.sum() == pytest.approx(1.0, abs=1e-14)
    assert p.min() > 0
    np.testing.assert_allclose(p @ m / problem.delta, z, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p @ n, v, rtol=0, atol=1e-14)
    listed = np.concatenate([problem.m, problem.n], axis=1)
    for row in np.concatenate([m, n], axis=1):
        assert (listed == row).all(axis=1).any(), "a structure that the oracle never returned"


@pytest.mark.parametrize("ties", [False, True])
def test_random_polytopes(ties: bool, draws: int) -> None:
    for problem in problems(draws, seed=1, ties=ties):
        check(problem, *problem.solve())


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
def test_very_many_random_polytopes(ties: bool) -> None:
    for problem in problems(20_000, seed=2, ties=ties):
        check(problem, *problem.solve())


def test_a_warm_start_ends_where_a_cold_one_does(draws: int) -> None:
    rng = np.random.default_rng(3)
    for problem in problems(draws // 5, seed=4):
        _, _, sets = problem.solve()
        scale = np.abs(problem.a).max()
        for step in (1e-12, 1e-6, 1e-2, 1.0, 1e3):
            nearby = problem._replace(a=problem.a + step * scale * rng.normal(size=len(problem.a)))
            check(nearby, *nearby.solve(sets))


def test_structures_that_share_all_variables_and_differ_in_additionals() -> None:
    m = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    n = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    for eta_v in ([0.3, 0.1], [0.1, 0.3], [-1e6, 0.0], [1e-9, 0.0]):
        problem = Problem(m, n, np.array([0.5, 0.2]), np.array(eta_v), np.ones(2))
        z, v, sets = problem.solve()
        check(problem, z, v, sets)
        expected = np.zeros(2)
        expected[np.argmax(eta_v)] = 1.0
        np.testing.assert_allclose(v, expected, atol=1e-12)


def test_affinely_dependent_faces() -> None:
    """The centre of a cube is the middle of four diagonals; any of them is an answer."""
    for k in range(1, 7):
        m = judges.binary_vectors(k)
        for a in (np.full(k, 0.5), np.linspace(0.3, 0.7, k), np.full(k, 1.0), np.zeros(k)):
            problem = Problem(m, np.zeros((len(m), 0)), a, np.zeros(0), np.ones(k))
            z, v, sets = problem.solve()
            check(problem, z, v, sets)
            np.testing.assert_allclose(z, a, atol=1e-13)
            assert len(found(sets)) <= k + 1


def test_room_grows_with_the_set() -> None:
    k = 60
    problem = Problem(np.eye(k), np.zeros((k, 0)), np.zeros(k), np.zeros(0), np.ones(k))
    z, v, sets = problem.solve()
    np.testing.assert_allclose(z, 1 / k, atol=1e-14)
    check(problem, z, v, sets)
    assert len(found(sets)) == k


def test_an_iteration_limit_leaves_the_factor_unsolved() -> None:
    problem = Problem(np.eye(6), np.zeros((6, 0)), np.zeros(6), np.zeros(0), np.ones(6))
    _, _, sets = problem.solve(most=3)
    assert sets.unsolved().tolist() == [0]
    z, v, sets = problem.solve(sets)
    assert sets.unsolved().tolist() == []
    check(problem, z, v, sets)


def test_the_factor_stays_right_as_structures_come_and_go(draws: int) -> None:
    """After a walk through many score vectors the Cholesky factor is still that of the set."""
    rng = np.random.default_rng(5)
    m = judges.binary_vectors(7)[rng.permutation(128)[:90]]
    problem = Problem(m, np.zeros((90, 0)), np.zeros(7), np.zeros(0), np.sqrt(np.arange(1, 8)))
    sets = problem.sets()
    sizes = set()
    for _ in range(draws):
        problem = problem._replace(a=rng.normal(size=7) * rng.choice([0.3, 1.0, 3.0]))
        problem.solve(sets)
        own = set_of(sets.handle, 0)
        count = int(own.active[0])
        sizes.add(count)
        w = np.array([vertex for _, vertex in found(sets)]) / problem.delta
        chol = np.zeros((count, count))
        chol[np.tril_indices(count)] = own.chol[: count * (count + 1) // 2]
        np.testing.assert_allclose(chol @ chol.T, w @ w.T + 1.0, atol=1e-12)
    assert len(sizes) > 3


def test_products_with_the_jacobian_against_differences(draws: int) -> None:
    rng = np.random.default_rng(6)
    tried = 0
    for problem in problems(draws, seed=7, ties=False):
        if not 1e-4 < np.abs(problem.a).max() < 1e4:
            continue
        k = len(problem.a)
        d = rng.normal(size=k + len(problem.eta_v))

        def solution(x: FloatArray, problem: Problem = problem, k: int = k) -> FloatArray:
            return np.concatenate(problem._replace(a=x[:k], eta_v=x[k:]).solve()[:2])

        x = np.concatenate([problem.a, problem.eta_v])
        expected, smooth = judges.directional_derivative(solution, x, d)
        if not smooth:
            continue
        _, _, sets = problem.solve()
        out_u, out_v = np.empty(k), np.empty(len(problem.eta_v))
        sets.jvp(np.array([0]), d[:k], d[k:], out_u, out_v)
        tried += 1
        # where several distributions are optimal, v depends on the one that was found
        np.testing.assert_allclose(out_u, expected[:k], rtol=1e-5, atol=1e-6)
        if len(np.unique(problem.m, axis=0)) == len(problem.m):
            np.testing.assert_allclose(out_v, expected[k:], rtol=1e-5, atol=1e-5)
    assert tried > draws // 8


def test_a_vertex_of_the_wrong_size_is_named() -> None:
    class Short(Polytope):
        def vertex(self, y: int) -> tuple[FloatArray, FloatArray]:
            return np.ones(1), np.zeros(0)

    graph = FactorGraph()
    graph.add(Short(graph.variable(2), np.eye(2)))
    with pytest.raises(ValueError, match=r"Short\.vertex returned 1 variables.*expected 2"):
        graph.solve()


def test_the_same_answers_without_compiling() -> None:
    code = """
import numpy as np
from test_active_set import problems
for problem in problems(25, seed=8):
    z, v, _ = problem.solve()
    print(*np.concatenate([z, v]).tolist())
"""
    folders = [str(Path(__file__).parent), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "LPSMAP_DISABLE_JIT": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    compiled = [np.concatenate(problem.solve()[:2]) for problem in problems(25, seed=8)]
    for numbers, line in zip(compiled, printed.splitlines(), strict=True):
        np.testing.assert_allclose(list(map(float, line.split())), numbers, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("width", "capacity"), [(1, 4), (7, 5), (20, 16)])
@pytest.mark.parametrize("triangle", [True, False])
def test_a_block_is_as_large_as_what_is_carved_from_it(
    width: int, capacity: int, triangle: bool
) -> None:
    block = np.empty(block_size(width, capacity, triangle))
    one = np.zeros(1, dtype=np.int64)
    arrays = view_set(block, width, capacity, one, one, one)[4:]
    begins = [x.ctypes.data for x in arrays if x.size]  # an empty array may be anywhere
    ends = [x.ctypes.data + x.nbytes for x in arrays if x.size]
    assert begins[1:] == ends[:-1]
    assert begins[0] == block.ctypes.data
    assert ends[-1] == block.ctypes.data + block.nbytes
    sizes = [len(x) for x in arrays]
    entries = 2 * ((width * capacity + 1) // 2)  # whole words
    numbers = triangle * capacity * (capacity + 1) // 2
    with_it = triangle * capacity
    assert sizes == [entries, width * capacity, *[capacity] * 4, with_it, with_it, numbers]


# -------------------------------------------------------------------- oracles that break promises


class OneOf(Factor):
    """Exactly one variable is on."""

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []


class NotANumber(OneOf):
    """The same with a vertex that holds a NaN."""

    def vertex(self, y):
        return np.where(np.arange(*self.event_shape) == 2, np.nan, super().vertex(y)[0]), []


class Turning(OneOf):
    """The same with the best and the worst structure in turns."""

    calls = 0

    def solve_map(self, eta_u, eta_v):
        Turning.calls += 1
        return int(np.argmax(eta_u if Turning.calls % 2 else -eta_u))


class Arbitrary(OneOf):
    """The same with any structure for the best."""

    def solve_map(self, eta_u, eta_v):
        return int(abs(float(eta_u.sum())) * 1e6) % len(eta_u)


class ArbitraryKnowingly(Arbitrary):
    """The same, said beforehand."""

    expected_failures = {"check_map_is_best": "it is an approximation"}


class InFloat32(OneOf):
    """The same in single precision, in which many scores are equal."""

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u.astype(np.float32)))


def graph_of(factor_type: type[Factor], scores: Any, among_others: bool) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(factor_type(u))
    if among_others:
        graph.add(AtMostOne(u, axis=0))
    return graph


@pytest.mark.parametrize("among_others", [False, True])
def test_a_vertex_that_is_not_finite_is_named(among_others: bool) -> None:
    graph = graph_of(NotANumber, np.arange(8.0).reshape(2, 4) / 8, among_others)
    with pytest.raises(ValueError, match=r"NotANumber.vertex returned .* not finite .* structure"):
        graph.solve()


def test_an_oracle_that_contradicts_itself_is_named() -> None:
    with pytest.raises(ValueError, match=r"Turning.solve_map contradicts .*`lpsmap check Turning"):
        graph_of(Turning, [[0.9, 0.0, -3.0]], False).solve()
    scores = np.random.default_rng(0).normal(size=(8, 12))
    with pytest.raises(ValueError, match=r"Arbitrary.solve_map contradicts itself: it returned"):
        graph_of(Arbitrary, scores, True).solve()


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_what_is_said_beforehand_is_no_contradiction() -> None:
    graph_of(ArbitraryKnowingly, np.random.default_rng(0).normal(size=(3, 4)), False).solve()


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_rounding_is_no_contradiction(scale: float) -> None:
    scores = scale * (1.0 + 1e-9 * np.random.default_rng(0).normal(size=(30, 12)))
    graph_of(InFloat32, scores, True).solve(max_iter=50)
