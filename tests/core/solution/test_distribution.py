"""Distributions over structures: what they hold, how they print, and their derivative."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AndOut, AtMostOne, Budget, DepTree, Imply, Nand, Pair, Sequence, Xor, XorOut
from lpsmap_core import ConvergenceWarning, Distributions, Factor, FactorGraph, Solution, stack
from random_graphs import Polytope, RandomGraph, random_graph

FloatArray = npt.NDArray[np.float64]


def mean(found: Distributions, structures: Any) -> FloatArray:
    """Return the expectation of padded numbers of structures."""
    p, event = found.probabilities, structures.shape[found.probabilities.ndim :]
    flat = (p[..., None] * structures.reshape(*p.shape, -1)).sum(axis=p.ndim - 1)
    return np.asarray(flat.reshape((*p.shape[:-1], *event)))


def parses() -> tuple[FactorGraph, DepTree, Budget, Solution]:
    """Return a solved ragged batch of trees with budgets."""
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 5, 5)))
    trees = graph.add(DepTree(u, lengths=[5, 3, 0]))
    budgets = graph.add(Budget(u, 2, axis=1))
    return graph, trees, budgets, graph.solve(tol=1e-9)


# -------------------------------------------------------------------- what they hold


def test_the_mean_of_the_structures_is_the_marginals(draws: int) -> None:
    for seed in range(draws // 10):
        graph, _, factors = random_graph(np.random.default_rng(seed), 5, scale=0.7).build()
        solution = graph.solve(tol=1e-9, max_iter=5000)
        for factor in factors:
            found = graph.structures(factor)
            assert found.counts.shape == factor.batch_shape
            if not solution.ok or not found.most:
                continue
            assert found.probabilities.sum() == pytest.approx(1.0, abs=1e-11)
            values = graph.value_of(factor.variables)
            if factor._flipped is not None:
                values = np.where(factor._flipped, 1.0 - values, values)
            np.testing.assert_allclose(mean(found, found.variables), values, atol=1e-7)
            if factor.n_additionals:
                extra = mean(found, found.additionals)
                np.testing.assert_allclose(extra, factor.additionals_value, atol=1e-6)


def test_ragged_batches_are_padded() -> None:
    graph, trees, budgets, solution = parses()
    found = solution.structures(trees)
    assert len(found) == 3
    assert found.counts[2] == 0
    assert found.probabilities.shape == found.scores.shape == found.mask.shape == (3, found.most)
    assert found.variables.shape == (3, found.most, 5, 5)
    assert found.additionals.shape == (3, found.most, 0)
    np.testing.assert_array_equal(found.mask.sum(axis=1), found.counts)
    np.testing.assert_array_equal(found.probabilities > 0, found.mask)
    np.testing.assert_allclose(found.probabilities[:2].sum(axis=1), 1.0, atol=1e-11)
    assert not found.variables[~found.mask].any()
    assert not found.variables[1, :, 3:].any()
    value = graph.value_of(trees.variables)
    np.testing.assert_allclose(mean(found, found.variables)[0], value[0], atol=1e-9)
    for i, length in enumerate([5, 3]):
        for k, structure in enumerate(found[i]):
            assert structure.variables.shape == (length, length)
            np.testing.assert_array_equal(
                structure.variables, found.variables[i, k, :length, :length]
            )
            assert structure.probability == found.probabilities[i, k]
            assert structure.score == found.scores[i, k]
    over_heads = solution.structures(budgets)
    assert over_heads.probabilities.shape == (3, 5, over_heads.most)
    assert over_heads[1, 4][0].variables.shape == (5,)
    assert over_heads[-1].to_dict() == over_heads[2, 4].to_dict()


def test_indices_out_of_range() -> None:
    _, trees, budgets, solution = parses()
    with pytest.raises(IndexError):
        solution.structures(trees)[3]
    with pytest.raises(IndexError):
        solution.structures(budgets)[0, 5]
    with pytest.raises(IndexError):
        solution.structures(trees)[0][1000]


def test_scores_are_those_of_the_graph() -> None:
    rng = np.random.default_rng(1)
    scores, transitions = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    chains = graph.add(Sequence(u, transitions))
    graph.add(AtMostOne(u[..., 0]))
    solution = graph.solve(tol=1e-9)
    for b, found in enumerate(solution.structures(chains)):
        for structure in found:
            tags = structure.variables.argmax(axis=1)
            expected = scores[b][np.arange(4), tags].sum() + transitions[tags[:-1], tags[1:]].sum()
            assert structure.score == pytest.approx(expected, abs=1e-12)
    found = solution.structures(chains)
    steps = chains.additionals_value[:, 3:-3].reshape(2, 3, 3)
    expected = (scores * u.value).sum() + (transitions * steps).sum()
    assert (found.probabilities * found.scores).sum() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("make", [AndOut, Imply, Nand, XorOut])
def test_structures_speak_of_the_variables_that_were_passed(make: type[Factor]) -> None:
    """Whether a type negates them inside or the caller outside."""
    rng = np.random.default_rng(2)
    scores = 0.5 * rng.normal(size=(2, 4))
    mask = np.array([[True, True, True, True], [True, False, True, True]])
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(make(u, mask=mask))
    graph.add(make(~u[:, :3]))
    solution = graph.solve(tol=1e-10)
    found = solution.structures(factor)
    np.testing.assert_allclose(mean(found, found.variables), np.where(mask, u.value, 0), atol=1e-9)
    for b, distribution in enumerate(found):
        for structure in distribution:
            assert structure.decoded["on"] == np.flatnonzero(structure.variables).tolist()
            assert structure.score == pytest.approx(structure.variables @ scores[b], abs=1e-12)
    negated = solution.structures(graph.factors[1])
    np.testing.assert_allclose(mean(negated, negated.variables), 1 - u.value[:, :3], atol=1e-9)
    for b, distribution in enumerate(negated):
        for structure in distribution:
            expected = (1 - structure.variables) @ scores[b, :3]
            assert structure.score == pytest.approx(expected, abs=1e-12)


def test_forbidden_variables() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.4, -np.inf, 0.3], [-np.inf, 0.1, 0.2]]))
    factor = graph.add(Xor(stack([u[:, 0], ~u[:, 1], u[:, 2]]).reshape(2, 3)))
    with pytest.warns(ConvergenceWarning):
        u0 = graph.variable_from(np.array([-np.inf, -np.inf]))
        impossible = graph.add(Xor(u0))
        solution = graph.solve()
    assert np.isfinite(solution.structures(factor).scores).all()
    assert solution.structures(impossible)[0].scores[0] == -np.inf


def test_components_that_are_not_finite_have_no_structures() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.4, np.nan, 0.3], [0.3, 0.1, 0.2]]))
    rows = graph.add(Xor(u))
    trees = graph.add(Polytope(u, np.eye(3)))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve()
    for factor in (rows, trees):
        found = solution.structures(factor)
        assert found.counts.tolist() == [0, 3]
        assert "none" in repr(found)
        d = solution.vjp(found.pull_back(np.ones((2, 3))))[0]
        assert np.isnan(d[:3]).all()
        np.testing.assert_allclose(d[3:], 0.0, atol=1e-12)


def test_additionals_value_needs_a_solution() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 3, 2)))
    factor = graph.add(Pair(u[..., 0], u[..., 1], np.ones((2, 3))))
    with pytest.raises(RuntimeError, match="call graph"):
        _ = factor.additionals_value
    with pytest.raises(RuntimeError, match="call graph"):
        graph.structures(factor)
    graph.solve()
    np.testing.assert_array_equal(factor.additionals_value, graph.additionals_of(factor))
    assert graph.structures(factor).additionals.shape == (2, 3, graph.structures(factor).most)
    assert graph.structures(factor)[0].additionals.shape == (len(graph.structures(factor)[0]),)


# -------------------------------------------------------------------- what a person reads


def lone_tree() -> Distributions:
    """Return the two parses of a sentence of three words."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.0, 1.0, -1], [1.0, 1.0, 1.0], [-1, 1.0, -1]]))
    tree = graph.add(DepTree(u, single_root=True))
    graph.solve()
    return graph.structures(tree)


def test_a_distribution_prints_as_a_table() -> None:
    scores = np.array([0.5, 0.2, -3.0])
    graph = FactorGraph()
    factor = graph.add(Xor(graph.variable_from(scores)))
    graph.solve()
    found = graph.structures(factor)
    expected = "\n".join(
        [
            "Xor: 2 structures",
            "probability  score  on",
            "      0.650  0.500  [0]",
            "      0.350  0.200  [1]",
        ]
    )
    assert repr(found) == repr(found[0]) == expected
    assert found[0].to_dict() == json.loads(json.dumps(found[0].to_dict()))
    assert found.to_dict() == {
        "factor": "Xor",
        "distributions": [
            [
                {"probability": pytest.approx(0.65), "score": 0.5, "on": [0]},
                {"probability": pytest.approx(0.35), "score": 0.2, "on": [1]},
            ]
        ],
    }


def test_long_tables_end_early() -> None:
    graph = FactorGraph()
    factor = graph.add(Xor(graph.variable_from(np.zeros((100, 2)))))
    graph.solve()
    found = graph.structures(factor)
    assert len(repr(found).splitlines()) == 2 + 20 + 1
    assert repr(found).endswith("... and 90 more")
    assert found._repr_html_().count("<table>") == 10
    wide = graph.add(Budget(graph.variable_from(np.full(60, 2.0)), 60))
    graph.solve()
    assert max(map(len, repr(graph.structures(wide)).splitlines())) < 100


def test_notebooks_draw_trees_and_escape_words() -> None:
    found = lone_tree()
    drawn = found._repr_html_()
    assert drawn.count("<svg") == len(found[0])
    table = ElementTree.fromstring(drawn)
    paths = table.findall(".//{*}path")
    assert len(paths) == 3 * len(found[0])  # an arc for every word
    words = ["<a>", "b", "c"]
    assert "&lt;a&gt;" in found[0].to_html(words)
    assert "<a>" not in found[0].to_html(words)
    with pytest.raises(ValueError, match="words: got 2; expected 3"):
        found[0].to_html(["a", "b"])
    graph = FactorGraph()
    factor = graph.add(Xor(graph.variable_from(np.zeros(2))))
    graph.solve()
    assert '<td style="text-align: left">[1]</td>' in graph.structures(factor)._repr_html_()


# -------------------------------------------------------------------- the derivative


Support = list[dict[bytes, float]]


def supports(found: Distributions) -> Support:
    """Return every factor's probabilities by structure."""
    return [
        {np.append(s.variables, s.additionals).tobytes(): s.probability for s in distribution}
        for distribution in found
    ]


def check_derivative(
    solutions: list[tuple[Solution, Factor]], d: FloatArray, d_v: list[FloatArray], h: float
) -> bool:
    """Compare differences of probabilities between three solutions with the derivative.

    Returns false if a structure came or went on the way.
    """
    before, here, after = (supports(s.structures(f)) for s, f in solutions)
    for three in zip(before, here, after, strict=True):
        if len({frozenset(support) for support in three}) > 1:
            return False
    solution, factor = solutions[1]
    found = solution.structures(factor)
    along = found.push_forward(solution.vjp(d, d_v)[0])
    scale = max(1.0, np.abs(along).max(initial=0.0))
    for f in range(len(found)):
        for k, key in enumerate(here[f]):
            slope = (after[f][key] - before[f][key]) / (2 * h)
            number = along.reshape(len(found), -1)[f, k]
            np.testing.assert_allclose(number, slope, rtol=0, atol=2e-5 * scale)
    g = np.random.default_rng(0).normal(size=along.shape)
    back, back_v = solution.vjp(found.pull_back(g))
    product = back @ d + sum(float(np.sum(x * y)) for x, y in zip(back_v, d_v, strict=True))
    np.testing.assert_allclose(product, (g * along).sum(), atol=1e-8 * scale)
    return bool(found.most > 1)


def compare_with_differences(draw: RandomGraph, rng: np.random.Generator) -> tuple[int, int]:
    """Return how many factors of a graph were compared, and how many passed a kink."""
    h = 1e-4
    d, d_v = rng.normal(size=len(draw.eta)), [rng.normal(size=len(e)) for e in draw.eta_v]
    points = []
    for step in (-h, 0.0, h):
        eta_v = [e + step * x for e, x in zip(draw.eta_v, d_v, strict=True)]
        graph, _, factors = draw.build(draw.eta + step * d, eta_v)
        points.append((graph.solve(tol=1e-11, max_iter=20_000), factors))
    if not all(solution.ok for solution, _ in points):
        return 0, 0
    shaped = [x.reshape(1, -1) for x in d_v]
    compared = [
        check_derivative([(s, factors[i]) for s, factors in points], d, shaped, h)
        for i in range(len(draw.declared))
    ]
    return sum(compared), len(compared) - sum(compared)


@pytest.mark.parametrize("n_factors", [1, 4])
def test_probabilities_against_central_differences(n_factors: int, draws: int) -> None:
    compared = 0
    for seed in range(draws // 10):
        rng = np.random.default_rng(seed)
        compared += compare_with_differences(random_graph(rng, n_factors, scale=0.5), rng)[0]
    assert compared > draws // 40


@pytest.mark.slow
@pytest.mark.parametrize("n_factors", [1, 4])
def test_probabilities_against_central_differences_often(n_factors: int) -> None:
    compared = 0
    for seed in range(2_000):
        rng = np.random.default_rng(seed)
        compared += compare_with_differences(random_graph(rng, n_factors, scale=0.5), rng)[0]
    assert compared > 500


def test_probabilities_of_ragged_batches_against_differences() -> None:
    rng = np.random.default_rng(3)
    scores, transitions = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 2 * 3 + 3 * 9))
    h, compared = 1e-4, 0
    for _ in range(10):
        d, d_v = rng.normal(size=scores.shape), rng.normal(size=transitions.shape)
        points: list[Any] = []
        for step in (-h, 0.0, h):
            graph = FactorGraph()
            u = graph.variable_from(scores + step * d)
            chain = Sequence(~u, additionals=transitions + step * d_v, lengths=[4, 1, 3])
            graph.add(chain)
            limits = graph.add(Budget(u, 3, axis=1))
            points.append((graph.solve(tol=1e-11), [chain, limits]))
        for i in range(2):
            shaped = [d_v, np.zeros((9, 0))]
            compared += check_derivative([(s, f[i]) for s, f in points], d.reshape(-1), shaped, h)
    assert compared > 10


def test_a_tie_moves_along_the_structures_that_are_there() -> None:
    """The centre of a square on one diagonal: off it, the probabilities have a kink."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.5, 0.5]))
    factor = graph.add(Polytope(u, judges.binary_vectors(2)))
    solution = graph.solve()
    before = solution.structures(factor)
    jacobian = np.array([before.push_forward(solution.jvp(e)[0]) for e in np.eye(2)])
    after = solution.structures(factor)  # of the set that derivatives completed
    assert before.most == after.most == 2
    np.testing.assert_array_equal(before.variables, after.variables)
    diagonal = before.variables[0] - before.variables[1]
    np.testing.assert_allclose(jacobian[:, 0], diagonal / 2, atol=1e-12)
    np.testing.assert_allclose(jacobian.sum(axis=1), 0.0, atol=1e-12)
