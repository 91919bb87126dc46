"""Relaxations of the paper's program: valid at feasible points, and in boxes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from corpora import FIVE, OPTIMUM
from lpsmap_search import (
    Corpus,
    CountConstraint,
    DependencyModelWithValence,
    restarts,
    viterbi,
)
from lpsmap_search.flow_polytope import flow_polytope
from lpsmap_search.linear_programs import LinearProgram, SimplexSolver
from lpsmap_search.paper import McCormickNode, McCormickOptions, McCormickSpace
from lpsmap_search.paper.linear_rows import LinearRows, Ranges
from lpsmap_search.paper.products import (
    linearised,
    monomial_bounds,
    monomial_codes,
    multiplied,
)
from lpsmap_search.paper.row_pairs import all_pairs, chosen_pairs, objective_pairs
from lpsmap_search.paper.tangents import separated, simplex_tangents, tangent_rows
from lpsmap_search.polytopes import hypergraph_polytope
from lpsmap_search.shares import count_ranges
from lpsmap_search.sparse_matrix import SparseMatrix
from programs import dense, program_over

pytest.importorskip("highspy")

POLYTOPES = {"hypergraph": hypergraph_polytope, "flow": flow_polytope}
MODEL = DependencyModelWithValence("VNA")
SMALL = ["VA", "AVN", "NV"]
LEAST = np.repeat([-3.0, -1.2, -2.0], [3, 2, 4])
FIRST = np.array([0, 3, 5, 9])


def drawn_probabilities(first: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return probabilities of blocks, some of them zero."""
    p = rng.exponential(size=first[-1]) ** 4 * rng.integers(0, 2, first[-1])
    p[first[:-1]] += 1e-9
    return p / np.repeat(np.add.reduceat(p, first[:-1]), np.diff(first))


def logarithms(p: np.ndarray, least: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p), least)


# -------------------------------------------------------------------- tangents


def test_tangents_hold_for_all_probabilities_also_zero(rng: np.random.Generator) -> None:
    tangents = simplex_tangents(FIRST, LEAST, None, rng)
    assert np.bincount(tangents.block).tolist() == [9, 4, 16]
    rows = tangent_rows(FIRST, tangents, 1 + len(LEAST))
    for _ in range(300):
        theta = logarithms(drawn_probabilities(FIRST, rng), LEAST)
        assert (rows @ np.append(1.0, theta) >= -1e-12).all()


def test_tangents_below_the_least_logarithm_would_not_hold(rng: np.random.Generator) -> None:
    """Why points are moved to a logarithm of the least one plus one."""
    tangents = simplex_tangents(FIRST, LEAST - 2.0, 50, rng)
    rows = tangent_rows(FIRST, tangents, 1 + len(LEAST))
    points = [logarithms(drawn_probabilities(FIRST, rng), LEAST) for _ in range(100)]
    assert min((rows @ np.append(1.0, theta)).min() for theta in points) < -1e-3


def test_points_whose_sums_are_too_large_are_cut_off(rng: np.random.Generator) -> None:
    for _ in range(200):
        low = np.where(rng.random(len(LEAST)) < 0.5, LEAST, 0.5 * LEAST)
        theta = np.maximum(-rng.exponential(size=len(LEAST)), low)
        found = separated(FIRST, LEAST, low, theta, 0.01)
        rows = tangent_rows(FIRST, found, 1 + len(LEAST))
        turn = LEAST + 1.0
        continued = np.exp(turn) * (theta - LEAST)  # zero counts as nothing
        p = np.where((low > LEAST) | (theta > turn), np.exp(theta), continued)
        sums = np.add.reduceat(p, FIRST[:-1])
        assert found.block.tolist() == np.flatnonzero(sums > 1.01).tolist()
        missed = rows @ np.append(1.0, theta)
        assert (missed <= -np.log(sums[found.block]) + 1e-12).all()
        for p in (drawn_probabilities(FIRST, rng) for _ in range(20)):
            if (logarithms(p, LEAST) >= low).all():
                assert (rows @ np.append(1.0, logarithms(p, LEAST)) >= -1e-12).all()


# -------------------------------------------------------------------- products


def drawn_rows(rng: np.random.Generator) -> SparseMatrix:
    dense = np.where(rng.random((7, 5)) < 0.5, rng.standard_normal((7, 5)), 0.0)
    row, column = np.nonzero(dense)
    return SparseMatrix.from_entries(row, column, dense[row, column], dense.shape)


def test_products_are_those_of_the_expressions(rng: np.random.Generator) -> None:
    for _ in range(50):
        rows = drawn_rows(rng)
        first, second = rng.integers(0, 7, (2, 20))
        found = multiplied(rows, first, second)
        values = found.values(rows.value)
        x = np.append(1.0, rng.standard_normal(4))
        k, m = np.divmod(found.code, 5)
        owner = np.repeat(np.arange(20), np.diff(found.start))
        sums = np.bincount(owner, values * x[k] * x[m], minlength=20)
        assert sums == pytest.approx((rows @ x)[first] * (rows @ x)[second], abs=1e-12)
        assert (np.diff(found.code)[np.diff(owner) == 0] > 0).all()


def test_monomials_have_numbers_of_their_own() -> None:
    codes = {int(monomial_codes(np.array(k), np.array(m), 6)) for k in range(6) for m in range(6)}
    assert len(codes) == 21
    assert {int(monomial_codes(np.array(0), np.array(m), 6)) for m in range(6)} == set(range(6))


# -------------------------------------------------------------------- rows


class Program:
    """Rows of a small corpus, and feasible points of them."""

    def __init__(
        self, polytope: str, rng: np.random.Generator, constraint: CountConstraint | None = None
    ) -> None:
        self.corpus, self.rng = Corpus(MODEL, SMALL), rng
        self.polytope = POLYTOPES[polytope](self.corpus)
        parses, m = self.polytope, MODEL.n_parameters
        self.least = np.full(m, -4.0)
        counts = count_ranges(self.corpus, np.eye(m))
        self.ranges = Ranges(
            np.concatenate([self.least, counts[0], 0.0 * parses.upper]),
            np.concatenate([np.zeros(m), counts[1], parses.upper]),
        )
        tangents = simplex_tangents(MODEL.first, self.least, None, rng)
        self.rows = LinearRows(MODEL.first, parses, self.ranges, tangents, constraint)

    def point(self) -> np.ndarray:
        """Return parameters and structures that need not fit each other."""
        theta = logarithms(drawn_probabilities(MODEL.first, self.rng), self.least)
        while True:  # the flow polytope has fractional vertices
            scores = self.rng.standard_normal(MODEL.n_parameters)
            y = np.round(SimplexSolver(program_over(self.polytope, scores)).solve().x, 6)
            if (y == np.round(y)).all():
                return np.concatenate([theta, self.polytope.counts @ y, y])


@pytest.mark.parametrize("polytope", POLYTOPES)
def test_all_products_hold_at_feasible_points(polytope: str, rng: np.random.Generator) -> None:
    program = Program(polytope, rng)
    rows = program.rows
    total = all_pairs(rows)
    (i, j), (e, k) = chosen_pairs(rows, 1.0, rng)
    assert len(i) + len(e) == total
    assert len(np.unique(np.stack([np.minimum(i, j), np.maximum(i, j)]), axis=1).T) == len(i)
    assert len(np.unique(np.stack([e, k]), axis=1).T) == len(e) > 0
    values = rows.values(program.ranges)
    products, zero = multiplied(rows.matrix, i, j), multiplied(rows.matrix, e, k)
    for _ in range(5):
        x = np.append(1.0, program.point())
        at_points = [
            np.add.reduceat(
                found.values(values) * np.prod([x[c] for c in np.divmod(found.code, len(x))], 0),
                found.start[:-1],
            )
            for found in (products, zero)
        ]
        assert at_points[0].min() >= -1e-9
        assert np.abs(at_points[1]).max() <= 1e-9


@pytest.mark.parametrize("polytope", POLYTOPES)
def test_a_number_of_products_is_drawn_without_repetition(
    polytope: str, rng: np.random.Generator
) -> None:
    rows = Program(polytope, rng).rows
    (i, j), (e, k) = chosen_pairs(rows, 500, rng)
    pairs = [*zip(i, j, strict=True), *zip(e, k, strict=True)]
    assert len(pairs) == len(set(pairs)) == 500
    assert i.min() > 0 and max(i.max(), j.max()) < rows.n_inequalities
    half = sum(len(pair[0]) for pair in chosen_pairs(rows, 0.5, rng))
    assert half == round(0.5 * all_pairs(rows))


def test_the_filter_finds_the_products_of_the_objective(rng: np.random.Generator) -> None:
    constraint = CountConstraint(np.ones(MODEL.n_parameters), 1.0)
    rows = Program("flow", rng, constraint).rows
    used = dense(rows.at_least_zero) != 0.0
    m = MODEL.n_parameters
    theta, counts = used[:, 1 : 1 + m].astype(int), used[:, 1 + m : 1 + 2 * m].astype(int)
    expected = {tuple(pair) for pair in np.argwhere(theta @ counts.T)}
    found = objective_pairs(rows, rows.at_least_zero)
    assert {tuple(pair) for pair in np.transpose(found)} == expected


def test_monomials_of_a_single_product_are_left_out_without_loss() -> None:
    """Held to the program in which every monomial is a variable between its bounds."""
    space = McCormickSpace(Corpus(MODEL, SMALL), 0.0, McCormickOptions(products=400, seed=5))
    program = space.program(space.root())
    rng, relaxation = np.random.default_rng(5), space.relaxation
    rows, n = relaxation.rows, relaxation.rows.n_variables
    simplex_tangents(MODEL.first, LEAST[np.zeros(MODEL.n_parameters, dtype=int)], None, rng)
    (i, j), (e, k) = chosen_pairs(rows, 400, rng)  # the same random numbers as in the space
    linear, n_zero = rows.inequalities, len(e) + rows.n_equalities
    theta = np.arange(MODEL.n_parameters)
    counts = theta + MODEL.n_parameters
    left = [linear, rows.lower(theta), rows.upper(theta), i, rows.equalities, e]
    right = [0 * linear, rows.upper(counts), rows.lower(counts), j, 0 * rows.equalities, k]
    found = multiplied(rows.matrix, np.concatenate(left), np.concatenate(right))
    whole = linearised(found, np.unique(found.code[found.code > n]), n + 1)
    ranges = Ranges(program.lower[:n], program.upper[:n])
    values = found.values(rows.values(ranges))
    constant, _ = whole.rest(values, *ranges, n + 1)
    codes = np.unique(found.code[found.code > n])
    low, high = monomial_bounds(codes, *ranges, n + 1)
    objective = np.zeros(n + len(codes))
    objective[n + np.searchsorted(codes, monomial_codes(1 + theta, 1 + counts, n + 1))] = 1.0
    upper = np.full(len(constant), np.inf)
    upper[-n_zero:] = -constant[-n_zero:]
    full = LinearProgram(
        objective,
        np.concatenate([ranges.lower, low]),
        np.concatenate([ranges.upper, high]),
        whole.rows(values),
        -constant,
        upper,
    )
    assert program.matrix.n_columns < full.matrix.n_columns - 100
    assert program.matrix.n_rows == full.matrix.n_rows
    bounds = [SimplexSolver(one).solve().bound for one in (program, full)]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-6)


# -------------------------------------------------------------------- bounds

OPTIONS = [
    McCormickOptions(polytope=polytope, products=products, least=least)
    for polytope, (products, least) in itertools.product(
        POLYTOPES, ((0, None), (0, -8.0), (300, None), ("objective", None))
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"{o.polytope}-{o.products}-{o.least}")
def test_bounds_hold_in_boxes_and_fall_with_them(
    options: McCormickOptions, rng: np.random.Generator
) -> None:
    """No parameters of a box give structures a higher likelihood; no child has a higher bound."""
    corpus = Corpus(MODEL, SMALL)
    space = McCormickSpace(corpus, 0.0, options)
    for width in (0.02, 0.2, 1.0):
        own = drawn_probabilities(MODEL.first, rng)
        m = MODEL.n_parameters
        low = np.maximum(own - width * rng.random(m), 0.0)
        high = np.minimum(own + width * rng.random(m), 1.0)
        node = space.root()._replace(bounds=np.concatenate([low, high]))
        [evaluation] = space.evaluate([node], -1e6)
        inside = [own, *parameters_in(low, high, rng)]
        assert len(inside) > 1
        for p in inside:
            with np.errstate(divide="ignore"):
                assert viterbi(corpus, np.log(p))[0] <= evaluation.bound + 1e-7
        assert len(evaluation.children) == 2
        for child in space.evaluate(evaluation.children, -1e6):
            assert child.bound <= evaluation.bound + 1e-6


def parameters_in(low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return parameters of a box that sum to one: towards its bounds from a random point."""
    found = []
    for _ in range(20):
        p = low + (high - low) * rng.random(len(low))
        for _ in range(60):
            missing = 1.0 - MODEL.sums(p)
            room = np.where(missing[MODEL.block] > 0.0, high - p, low - p)
            total = MODEL.sums(room)[MODEL.block]
            share = np.divide(missing[MODEL.block], total, out=0.0 * p, where=total != 0.0)
            p = p + np.minimum(share, 1.0) * room
        if np.abs(MODEL.sums(p) - 1.0).max() < 1e-12:
            found.append(p)
    return found


@pytest.mark.parametrize("polytope", POLYTOPES)
def test_products_lower_the_bound_of_the_root(polytope: str) -> None:
    corpus = Corpus(MODEL, FIVE)
    none, some = (
        McCormickSpace(corpus, 0.01, McCormickOptions(products=products, polytope=polytope))
        for products in (0, "objective")
    )
    [above], [below] = (space.evaluate([space.root()], -1e6) for space in (none, some))
    assert OPTIMUM < below.bound < above.bound - 1.0 < 0.0


def test_a_box_at_the_optimum_is_bounded_nearly_exactly() -> None:
    """Measured by an independent program: about half a nat where ranges are six hundredths."""
    corpus = Corpus(MODEL, FIVE)
    space = McCormickSpace(corpus, 0.0)
    p = MODEL.normalised(optimal_counts(corpus))
    bounds = []
    for width in (0.03, 1e-4):
        box = np.concatenate([np.maximum(p - width, 0.0), np.minimum(p + width, 1.0)])
        [evaluation] = space.evaluate([McCormickNode(box, *space.root()[1:])], -1e6)
        bounds.append(evaluation.bound)
    assert OPTIMUM < bounds[0] < OPTIMUM + 0.7
    assert OPTIMUM - 1e-9 < bounds[1] < OPTIMUM + 0.01


def optimal_counts(corpus: Corpus) -> np.ndarray:
    found = restarts(corpus, n_restarts=1000, smoothing=0.1, start="random")
    assert found.objective == pytest.approx(OPTIMUM, rel=1e-12)
    return found.counts
