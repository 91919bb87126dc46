"""Whole random graphs of mixed factors, against an interior-point judge and differences.

Core's engine solves them, and fewer of them a second one: it shares the seam with it, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

import dense_engine
import judges
from lpsmap import FactorGraph, Solution
from lpsmap_core.plugins.registry import registered
from random_graphs import KINDS, RandomGraph, random_graph

FloatArray = npt.NDArray[np.float64]

SCALES = (1e-6, 1e-3, 0.1, 1.0, 1.0, 10.0, 1e3, 1e6)
SCALES_OF = {"auto": SCALES, "dense": (0.3, 1.0, 3.0)}


@pytest.fixture(params=["auto", "dense"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the engine that solves."""
    with registered(dense_engine):
        yield request.param


def share(draws: int, engine: str) -> int:
    """Return how many of some draws an engine solves: the slow one a few."""
    return draws if engine == "auto" else min(draws, 3 + draws // 4)


def drawn(seed: int, scales: Sequence[float] = SCALES) -> RandomGraph:
    """Draw a graph of 1 to 7 factors."""
    rng = np.random.default_rng(seed)
    return random_graph(rng, int(rng.integers(1, 8)), float(rng.choice(scales)))


def solved(
    graph: RandomGraph, eta: FloatArray, eta_v: list[FloatArray], engine: str = "auto"
) -> Solution:
    """Solve to the tightest tolerance that tests ask for."""
    built, _, _ = graph.build(eta, eta_v)
    solution = built.solve(tol=1e-9, max_iter=20_000, engine=engine)
    assert solution.ok, solution
    return solution


def check_values(graph: RandomGraph, engine: str = "auto") -> None:
    mu, nus = graph.judged()
    solution = solved(graph, graph.eta, graph.eta_v, engine)
    np.testing.assert_allclose(solution.values, mu, rtol=0, atol=1e-6)
    # several distributions may share these marginals: additionals agree in what they are worth
    worth = sum(float(s @ n) for s, n in zip(graph.eta_v, nus, strict=True))
    found = sum(
        float(s @ n.reshape(-1)) for s, n in zip(graph.eta_v, solution.additionals, strict=True)
    )
    scale = max(1.0, *(np.abs(s).max(initial=0.0) for s in [graph.eta, *graph.eta_v]))
    assert found == pytest.approx(worth, abs=1e-6 * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_of_one_kind(kind: str, engine: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(share(3, engine)):
        check_values(random_graph(rng, 4, kinds=(kind,)), engine)


def test_random_graphs(draws: int, engine: str) -> None:
    for seed in range(share(draws // 5, engine)):
        check_values(drawn(seed, SCALES_OF[engine]), engine)


@pytest.mark.slow
def test_a_thousand_random_graphs() -> None:
    for seed in range(1000):
        check_values(drawn(10_000 + seed))


def test_integer_scores_make_ties() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 6)))
        tied = RandomGraph(np.round(graph.eta), graph.declared)
        mu, _ = tied.judged()
        solution = solved(tied, tied.eta, tied.eta_v)
        np.testing.assert_allclose(solution.values, mu, rtol=0, atol=1e-6)


# -------------------------------------------------------------------- derivatives


def check_gradient(seed: int, engine: str = "auto") -> bool:
    """Hold one product with the Jacobian against differences; false where a kink is too near.

    Where additionals are not determined by the marginals, they have no derivative: only products of
    the marginals are compared.
    """
    graph = drawn(seed, scales=(0.3, 1.0, 3.0))
    rng = np.random.default_rng(seed)
    sizes = np.cumsum([len(graph.eta), *(len(e) for e in graph.eta_v)])[:-1]
    x = np.concatenate([graph.eta, *graph.eta_v])
    direction = rng.normal(size=len(x))

    def values(point: FloatArray) -> FloatArray:
        eta, *eta_v = np.split(point, sizes)
        return solved(graph, eta, eta_v, engine).values

    expected, smooth = judges.directional_derivative(values, x, direction)
    if not smooth:
        return False
    d = rng.normal(size=len(graph.eta))
    gradient, extra = solved(graph, graph.eta, graph.eta_v, engine).vjp(d)
    found = np.concatenate([gradient, *(e.reshape(-1) for e in extra)]) @ direction
    scale = np.abs(d) @ np.abs(expected)
    assert abs(found - d @ expected) <= 1e-5 * max(1.0, scale), seed
    return True


def test_gradients(draws: int, engine: str) -> None:
    tried = share(draws // 8, engine)
    assert sum(check_gradient(seed, engine) for seed in range(tried)) > tried // 2


@pytest.mark.slow
def test_gradients_of_a_thousand_graphs() -> None:
    seeds = iter(range(20_000, 30_000))
    assert sum(check_gradient(next(seeds)) for _ in range(1300)) >= 1000


def test_the_derivative_is_symmetric_and_of_the_additionals_too(engine: str) -> None:
    for seed in range(share(20, engine)):
        graph = drawn(seed, scales=(1.0,))
        solution = solved(graph, graph.eta, graph.eta_v, engine)
        rng = np.random.default_rng(seed)
        shapes = [nu.shape for nu in solution.additionals]
        x, y = rng.normal(size=(2, len(graph.eta)))
        x_v, y_v = ([rng.normal(size=s) for s in shapes] for _ in range(2))
        jx, jx_v = solution.jvp(x, x_v)
        jy, jy_v = solution.jvp(y, y_v)
        left = jx @ y + sum((a * b).sum() for a, b in zip(jx_v, y_v, strict=True))
        right = x @ jy + sum((a * b).sum() for a, b in zip(x_v, jy_v, strict=True))
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9), seed


def test_derivatives_of_additionals_against_differences(engine: str) -> None:
    """Pairs determine their additional by its marginals unless its score is zero."""
    tried, seeds = 0, share(40, engine)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 4, kinds=("Pair", "Xor", "AtMostOne"))
        sizes = np.cumsum([len(graph.eta), *(len(e) for e in graph.eta_v)])[:-1]
        x = np.concatenate([graph.eta, *graph.eta_v])
        direction = rng.normal(size=len(x))

        def everything(
            point: FloatArray, graph: RandomGraph = graph, sizes: npt.NDArray[np.int64] = sizes
        ) -> FloatArray:
            eta, *eta_v = np.split(point, sizes)
            solution = solved(graph, eta, eta_v, engine)
            return np.concatenate([solution.values, *(a.reshape(-1) for a in solution.additionals)])

        expected, smooth = judges.directional_derivative(everything, x, direction)
        if not smooth:
            continue
        tried += 1
        parts = np.split(direction, sizes)
        solution = solved(graph, graph.eta, graph.eta_v, engine)
        d_v = [p.reshape(a.shape) for p, a in zip(parts[1:], solution.additionals, strict=True)]
        found, found_v = solution.jvp(parts[0], d_v)
        flat = np.concatenate([found, *(f.reshape(-1) for f in found_v)])
        np.testing.assert_allclose(flat, expected, rtol=1e-5, atol=1e-5, err_msg=str(seed))
    assert tried > seeds // 3


# -------------------------------------------------------------------- batches


def test_a_ragged_batch_is_its_64_instances() -> None:
    rng = np.random.default_rng(0)
    instances = [random_graph(rng, int(rng.integers(1, 6))) for _ in range(64)]
    together = FactorGraph()
    views, factors = [], []
    for instance in instances:
        _, u, made = instance.build(graph=together)
        views.append(u)
        factors.append(made)
    solution = together.solve(tol=1e-11, max_iter=20_000)
    assert solution.ok
    d = rng.normal(size=together.n_variables)
    gradient, extra = solution.vjp(d)
    extra_of = dict(zip(map(id, together.factors), extra, strict=True))
    for instance, u, made in zip(instances, views, factors, strict=True):
        graph, alone_u, alone_factors = instance.build()
        alone = graph.solve(tol=1e-11, max_iter=20_000)
        np.testing.assert_allclose(u.value, alone_u.value, rtol=0, atol=1e-9)
        alone_gradient, alone_extra = alone.vjp(d[u.index])
        np.testing.assert_allclose(gradient[u.index], alone_gradient, rtol=0, atol=1e-9)
        for factor, alone_factor, grad in zip(made, alone_factors, alone_extra, strict=True):
            np.testing.assert_allclose(extra_of[id(factor)], grad, rtol=0, atol=1e-9)
            if factor.n_additionals:
                np.testing.assert_allclose(
                    together.additionals_of(factor),
                    graph.additionals_of(alone_factor),
                    rtol=0,
                    atol=1e-9,
                )
