"""Scores of any magnitude: large numbers for masks, rows of nothing else, scales beyond float32."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import judges
import stress_judging
from forks import Server
from lpsmap import (
    AndOut,
    AtMostOne,
    Budget,
    ConvergenceWarning,
    DepTree,
    Factor,
    FactorGraph,
    Or,
    OrOut,
    Sequence,
    Solution,
    Status,
    Variables,
    Xor,
)
from lpsmap_core.plugins.registry import installed
from stress_graphs import LARGE_MASKS, ORDINARY_SCALES, StressGraph, draw_graph, templates_of

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SMALLEST = float(np.finfo(np.float64).min)

CLOSE = 1e-6

PRECISION = 1e8
"""Scores up to this are never given up."""


def solved(
    scores: FloatArray, *declare: Callable[[Variables], Factor], **options: Any
) -> tuple[Variables, Solution]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    for factor in declare:
        graph.add(factor(u))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return u, graph.solve(**options)


def matching(scores: FloatArray) -> tuple[Variables, Solution]:
    return solved(scores, Xor, lambda u: AtMostOne(u, axis=-2))


def budgeted_tree(scores: FloatArray) -> tuple[Variables, Solution]:
    return solved(scores, DepTree, lambda u: Budget(u, 3, axis=-2))


def sequence(scores: FloatArray) -> tuple[Variables, Solution]:
    *batch, n, k = scores.shape
    transitions = np.random.default_rng(1).normal(size=(*batch, n - 1, k, k))
    return solved(
        scores, lambda u: Sequence(u, transitions), lambda u: AtMostOne(u[..., :2], axis=-2)
    )


GRAPHS = {
    "matching": (matching, (8, 14)),
    "tree": (budgeted_tree, (8, 8)),
    "sequence": (sequence, (6, 9)),
}


# -------------------------------------------------------------------- masks


@pytest.mark.parametrize("mask", [-1e3, *LARGE_MASKS])
@pytest.mark.parametrize("kind", GRAPHS)
def test_large_masks_forbid(kind: str, mask: float) -> None:
    """A fifth of the scores at -1e9 took over 1,000 iterations, and -1e15 gave wrong marginals."""
    solve, shape = GRAPHS[kind]
    rng = np.random.default_rng(0)
    scores, masked = rng.normal(size=(16, *shape)), rng.random((16, *shape)) < 0.2
    masked[:, np.arange(min(shape)), np.arange(min(shape))] = False
    expected, reference = solve(np.where(masked, -np.inf, scores))
    u, solution = solve(np.where(masked, mask, scores))
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)
    assert np.median(solution.iterations) <= 1.5 * np.median(reference.iterations)
    d = rng.normal(size=expected.value.size)
    np.testing.assert_allclose(solution.vjp(d)[0], reference.vjp(d)[0], atol=CLOSE)
    assert (solution.vjp(d)[0].reshape(masked.shape)[masked] == 0.0).all()


@pytest.mark.parametrize("mask", LARGE_MASKS)
def test_one_large_mask_between_two_rows(mask: float) -> None:
    """Row 0 came out as [0, .5, .5] for -1e15, SOLVED."""
    scores = np.array([[mask, 0.8, 0.0], [0.9, 1.0, 0.4], [0.2, 0.3, 0.5]])
    u, solution = solved(scores, Xor, lambda u: Xor(u, axis=0))
    assert solution.status[0] is Status.SOLVED
    np.testing.assert_allclose(u.value[0], [0.0, 0.7, 0.3], atol=1e-9)


class Masked(NamedTuple):
    """A stress graph, batched, with random masks."""

    graph: StressGraph
    scores: FloatArray
    masked: BoolArray
    masked_v: list[BoolArray]

    @classmethod
    def draw(cls, seed: int, n_instances: int = 2) -> Masked:
        graph, rng = draw_graph(seed), np.random.default_rng([seed, 7])
        scale, n = float(rng.choice(ORDINARY_SCALES)), len(graph.eta)
        scores = scale * rng.normal(size=(n_instances, n))
        if graph.ties == "rounded":
            scores = scale * np.round(scores / scale)
        masked = rng.random(scores.shape) < 0.2
        pieces = [replace(p, eta_v=scale * rng.normal(size=p.eta_v.shape)) for p in graph.pieces]
        masked_v = [rng.random(p.eta_v.shape) < 0.1 for p in pieces]
        drawn = StressGraph(graph.eta, pieces, scale, graph.ties)
        return cls(drawn, scores, masked, masked_v)

    def solve(self, mask: float) -> Solution:
        """Solve all instances as one graph."""
        graph, n = FactorGraph(), self.scores.shape[1]
        u = graph.variable_from(np.where(self.masked, mask, self.scores).reshape(-1))
        for b in range(len(self.scores)):
            for p, masked_v in zip(self.graph.pieces, self.masked_v, strict=True):
                eta_v = np.where(masked_v, mask, p.eta_v)
                graph.add(p.template.declare(u, p.variables + b * n, p.negated, eta_v))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # two graphs of 2,000, contradictory under -inf, take 5,900 iterations for -1e6
            return graph.solve(tol=1e-9, max_iter=10_000)


def check_masks(seeds: Iterator[int]) -> None:
    """Hold every large mask against -inf, in marginals, gradients, statuses and iterations."""
    ratios: list[float] = []
    for seed in seeds:
        drawn = Masked.draw(seed)
        reference = drawn.solve(-np.inf)
        fine = np.array([status.ok for status in reference.status], dtype=bool)
        component = reference.layout.component
        judged = (component >= 0) & np.append(fine, False)[component]
        d = np.random.default_rng(seed).normal(size=len(component))
        gradient = reference.vjp(d)[0]
        for mask in LARGE_MASKS:
            solution, where = drawn.solve(mask), f"seed {seed}, mask {mask:g}"
            assert all(status.ok for status in solution.status[fine]), where
            wrong = np.abs(solution.values - reference.values)[judged].max(initial=0.0)
            assert wrong <= CLOSE, where
            wrong = np.abs(solution.vjp(d)[0] - gradient)[judged].max(initial=0.0)
            assert wrong <= CLOSE, where
            ratios.extend((solution.iterations / np.maximum(reference.iterations, 1))[fine])
            assert Status.ITERATION_LIMIT not in solution.status, where
    assert np.median(ratios) <= 1.5
    assert np.quantile(ratios, 0.99) <= 3.0


@pytest.mark.compiled
def test_masks_of_random_graphs() -> None:
    check_masks(iter(range(10)))


@pytest.mark.compiled
def test_a_polish_that_failed_is_not_tried_for_ever() -> None:
    """Then the loop stood still at 1.3e-9: after 200 iterations, and after 20,000."""
    for mask in (-1e4, -1e9):
        solution = Masked.draw(1526).solve(mask)
        assert Status.ITERATION_LIMIT not in solution.status
        assert solution.iterations.max() < 1000


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(0, 2000, 250))
def test_masks_of_many_random_graphs(begin: int) -> None:
    check_masks(iter(range(begin, begin + 250)))


# -------------------------------------------------------------------- rows that are masked entirely


@pytest.mark.parametrize("mask", [-1e3, *LARGE_MASKS])
@pytest.mark.parametrize("kind", ["matching", "sequence"])
def test_rows_masked_entirely_are_rows_of_equal_scores(kind: str, mask: float) -> None:
    """As in padding: -inf would be a contradiction, and a constant changes nothing."""
    solve, shape = GRAPHS[kind]
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(8, *shape))
    padded = np.arange(shape[0])[:, None] >= shape[0] - 2
    expected, reference = solve(np.where(padded, 0.0, scores))
    u, solution = solve(np.where(padded, mask, scores))
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)
    assert np.median(solution.iterations) <= 1.5 * np.median(reference.iterations)
    d = rng.normal(size=expected.value.size)
    np.testing.assert_allclose(solution.vjp(d)[0], reference.vjp(d)[0], atol=CLOSE)


@pytest.mark.parametrize("mask", [-1e3, *LARGE_MASKS])
def test_rows_and_columns_masked_entirely(mask: float) -> None:
    """Of a square matching: padded rows go with padded columns."""
    rng = np.random.default_rng(3)
    scores, padded = rng.normal(size=(8, 6, 6)), np.arange(6) >= 4
    either, both = padded[:, None] | padded, padded[:, None] & padded
    square = (Xor, lambda u: Xor(u, axis=1))
    expected, _ = solved(np.where(both, 0.0, np.where(either, -np.inf, scores)), *square)
    u, solution = solved(np.where(either, mask, scores), *square)
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)


@pytest.mark.parametrize("mask", [-1e3, *LARGE_MASKS])
def test_words_masked_entirely_are_leaves(mask: float) -> None:
    rng = np.random.default_rng(4)
    scores, padded = rng.normal(size=(8, 6, 6)), np.arange(6) >= 4
    without = np.where(padded[:, None], 0.0, np.where(padded, -np.inf, scores))
    expected, _ = solved(without, DepTree)
    u, solution = solved(np.where(padded[:, None] | padded, mask, scores), DepTree)
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)


@pytest.mark.parametrize("added", [-1e4, -1e6, -1e9])
def test_a_mask_that_is_added_keeps_what_float64_keeps_of_the_scores(added: float) -> None:
    rng = np.random.default_rng(5)
    scores, padded = rng.normal(size=(8, 8, 14)), np.arange(8)[:, None] >= 6
    masked = np.where(padded, scores + added, scores)
    expected, _ = matching(np.where(padded, masked - added, scores))
    u, solution = matching(masked)
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)


@pytest.mark.parametrize("mask", LARGE_MASKS)
def test_rows_that_compete_for_what_is_not_masked(mask: float) -> None:
    """Two rows have but one column in common: one has to use a masked entry."""
    rng = np.random.default_rng(6)
    scores = rng.normal(size=(4, 5, 6))
    scores[:, :2, 1:] = -50.0
    expected, reference = matching(scores)
    scores[:, :2, 1:] = mask
    u, solution = matching(scores)
    assert reference.ok
    assert solution.ok
    np.testing.assert_allclose(u.value, expected.value, atol=CLOSE)


def test_a_mask_of_two_levels_prefers_the_nearer() -> None:
    scores = np.array([[-1e9, -1e9, -1e4], [0.3, 0.2, 0.1], [-1e9, 0.5, 0.6]])
    u, solution = solved(scores, Xor, lambda u: AtMostOne(u, axis=0))
    assert solution.ok
    np.testing.assert_allclose(u.value[0], [0.0, 0.0, 1.0], atol=CLOSE)


@pytest.mark.parametrize("forced", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("mask", [-1e9, -1e12, SMALLEST])
def test_forced_variables_beside_masks(forced: float, mask: float) -> None:
    """Of two magnitudes, or of one: right, or the status says that it is not."""
    rng = np.random.default_rng(11)
    scores, masked = rng.normal(size=(8, 4, 6)), rng.random((8, 4, 6)) < 0.2
    masked[:, np.arange(4), np.arange(4)] = False
    alone = masked.copy()
    alone[:, 0, 1:] = alone[:, 1:, 0] = True
    expected, reference = solved(
        np.where(alone, -np.inf, scores), Xor, lambda u: AtMostOne(u, axis=-2)
    )
    assert reference.ok
    scores[:, 0, 0] = forced
    u, solution = matching(np.where(masked, mask, scores))
    right = solution.status != Status.PRECISION_LIMIT
    assert all(status.ok for status in solution.status[right])
    assert right.any() or forced > PRECISION
    np.testing.assert_allclose(u.value[right], expected.value[right], atol=CLOSE)


# -------------------------------------------------------------------- single factors at any scale


@pytest.mark.parametrize("scale", [1e8, 1e9, 1e12, 1e16, 1e31, 1e32, 1e100, 1e200, 1e300])
@pytest.mark.parametrize("kind", ["Xor", "Or", "AtMostOne", "OrOut", "AndOut", "DepTree"])
def test_single_factors_of_any_scale(kind: str, scale: float) -> None:
    """Trees of scale 1e16 had no arcs; OrOut was wrong from 1e32; an Xor of 1e31 infeasible."""
    types = {"Xor": Xor, "Or": Or, "AtMostOne": AtMostOne, "OrOut": OrOut, "AndOut": AndOut}
    rng = np.random.default_rng(7)
    for _ in range(8):
        if kind == "DepTree":
            scores, vertices = scale * rng.normal(size=(3, 3)), judges.trees(3)[0]
            u, solution = solved(scores, DepTree)
        else:
            scores = scale * rng.normal(size=4)
            structures = {
                "Xor": judges.xor,
                "Or": judges.at_least_one,
                "AtMostOne": judges.at_most_one,
                "OrOut": judges.or_out,
                "AndOut": judges.and_out,
            }
            vertices = structures[kind](4)[0]
            u, solution = solved(scores, types[kind])
        flat = scores.reshape(-1)
        none = np.zeros((len(vertices), 0))
        expected, _ = judges.project_polytope(vertices, none, flat, [], np.ones(len(flat)))
        assert solution.status[0] is Status.SOLVED
        assert np.isfinite(solution.error_bound).all()
        np.testing.assert_allclose(u.value.reshape(-1), expected, atol=CLOSE)


def test_every_factor_type_at_extreme_scales_is_right_or_says_that_it_is_not() -> None:
    judged = 0
    for kind in sorted(installed().factors):
        for template in templates_of(kind)[:2]:
            for scale in (1e-300, 1e-20, 1e10, 1e20, 1e100, 1e300):
                rng = np.random.default_rng([template.size, int(np.log10(scale)) + 400])
                scores = scale * rng.normal(size=template.size)
                eta_v = scale * rng.normal(size=template.shape_v)
                negated = rng.random(template.size) < 0.3
                numbers = np.arange(template.size)
                _, solution = solved(
                    scores,
                    lambda u: template.declare(u, numbers, negated, eta_v),  # noqa: B023
                )
                for i, row in enumerate(template.rows):
                    if not len(row.places) or len(set(row.places)) < len(row.places):
                        continue
                    number = solution.layout.component[row.places[0]]
                    if solution.status[number] is Status.PRECISION_LIMIT:
                        assert max(np.abs(scores).max(), np.abs(eta_v).max(initial=0.0)) > PRECISION
                        assert np.isfinite(solution.values[row.places]).all()
                        continue
                    judged += 1
                    alone = judges.EnumeratedFactor(
                        row.places, negated[row.places], row.m, row.n, eta_v[i]
                    )
                    assert solution.status[number].ok, (kind, scale)
                    expected = judges.project_factor(scores, alone)[row.places]
                    found = solution.values[row.places]
                    np.testing.assert_allclose(found, expected, atol=CLOSE, err_msg=kind)
    assert judged > 100


def test_mixed_magnitudes_in_one_factor() -> None:
    """From 1e-12 to 1e12 at random: what is not proven says so."""
    judged, rng = 0, np.random.default_rng(8)
    for _ in range(240):
        scores = rng.choice([-1.0, 1.0], size=6) * 10.0 ** rng.uniform(-12, 12, size=6)
        vertices, none = judges.budget(6, 2)
        u, solution = solved(scores, lambda u: Budget(u, 2))
        if solution.status[0] is Status.PRECISION_LIMIT:
            assert np.abs(scores).max() > PRECISION
            continue
        judged += 1
        expected, _ = judges.project_polytope(vertices, none, scores, [], np.ones(6))
        np.testing.assert_allclose(u.value, expected, atol=CLOSE)
    assert judged > 60


def test_large_scores_that_decide_a_coupled_graph() -> None:
    """Large scores on what is on in the solution, negative ones on what is off, change nothing."""
    rng = np.random.default_rng(9)
    for _ in range(50):
        scores = 20.0 * rng.normal(size=(4, 6))
        expected, reference = matching(scores)
        assert reference.ok
        mu, n = expected.value, int(rng.integers(1, 6))
        places = rng.permutation(np.flatnonzero((mu < 1e-12) | (mu > 1.0 - 1e-12)))[:n]
        sign = np.where(mu.reshape(-1)[places] > 0.5, 1.0, -1.0)
        scores.reshape(-1)[places] = sign * 10.0 ** rng.uniform(9.0, 300.0)
        u, solution = matching(scores)
        assert solution.ok
        np.testing.assert_allclose(u.value, mu, atol=CLOSE)


def test_what_float64_does_not_hold_says_so() -> None:
    """Scores that differ in the tenth digit, at a scale where that decides."""
    scores = 1e100 * np.array([1.0, 1.0 + 1e-10, 1.0 - 2e-10])
    u, solution = solved(scores, Xor, Xor)
    if solution.ok:
        np.testing.assert_allclose(u.value, [0.0, 1.0, 0.0], atol=CLOSE)
    else:
        assert solution.status[0] is Status.PRECISION_LIMIT
        assert np.isinf(solution.error_bound).all()
        assert np.isinf(solution.gap).all()


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [1000042, 1000052, 1000081, 1000161, 1000193, 1000354])
def test_graphs_that_the_stress_run_found(seed: int) -> None:
    """Dead processes, overflows, and a gap between scores that were both too large."""
    assert not stress_judging.checked(seed).wrong


@pytest.mark.parametrize("scale", 10.0 ** np.arange(0, 9))
def test_solved_has_an_error_bound(scale: float) -> None:
    rng = np.random.default_rng(10)
    _, solution = matching(np.round(scale * rng.normal(size=(16, 5, 6))))
    is_solved = solution.status == Status.SOLVED
    assert np.isfinite(solution.error_bound[is_solved]).all()


# -------------------------------------------------------------------- what ended the process

CRASHES = """
import itertools, warnings
import numpy as np
from lpsmap import Budget, FactorGraph, HeadAutomaton, Matching, TopK, Xor
warnings.simplefilter("ignore")
PAIRS = {
    "matchings": lambda u, rng: (Matching(u), Matching(u.T)),
    "subsets": lambda u, rng: (TopK(u, 2), TopK(u, 2)),
    "subsets and sums": lambda u, rng: (TopK(u, 2), Xor(u, axis=0)),
    "automata": lambda u, rng: (
        HeadAutomaton(u, rng.normal(size=(4, 5, 5))), Budget(u, 2, axis=0)
    ),
}
for name, seed in itertools.product(PAIRS, range(30)):
    print(name, seed, flush=True)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4, 4))
    scores[rng.random((4, 4)) < rng.uniform(0.1, 0.9)] = np.finfo(np.float64).min
    scores[rng.random((4, 4)) < 0.1] = np.finfo(np.float64).max
    graph = FactorGraph()
    u = graph.variable_from(scores)
    for factor in PAIRS[name](u, rng):
        graph.add(factor)
    solution = graph.solve()
    solution.vjp(np.ones(16)), solution.error_bound, solution.objective, solution.gap
    assert np.isfinite(solution.values).all()
"""


@pytest.mark.compiled
def test_the_largest_finite_numbers_do_not_end_the_process(warm_server: Server) -> None:
    """Overflows became indices: SIGSEGV, and a heap that was written over."""
    done = warm_server.run(CRASHES)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}\n{done.stderr[-2000:]}"
