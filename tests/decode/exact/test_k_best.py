"""The k best assignments of a graph against all of them."""

from __future__ import annotations

import numpy as np
import pytest

import judges
from lpsmap import Bits, Dense, DepTree, FactorGraph, Pair, Sequence, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_core.layout.layout import build_layout
from random_graphs import KINDS, all_scores, random_graph


@pytest.mark.parametrize("seed", range(12))
def test_the_best_of_all_are_found_in_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = random_graph(rng, 4, 1.0, [*KINDS, "Sequence"])
    while len(drawn.eta) > 9:
        drawn = random_graph(rng, 4, 1.0, [*KINDS, "Sequence"])
    graph, u, factors = drawn.build()
    layout = build_layout(graph.n_variables, graph.factors)
    drawn.eta[layout.component < 0] = -1e3  # of what is in no factor, the best counts alone
    tried, scores = all_scores(drawn)
    graph, u, factors = drawn.build()
    k = 6
    ranked = graph.k_best(k)
    allowed = np.sort(scores[scores > -np.inf])[::-1]
    assert all(found.proved.all() for found in ranked)
    if layout.n_components > 1:
        assert ranked[0].total == pytest.approx(allowed[0])
        return
    expected = np.append(allowed[:k], [-np.inf] * (k - len(allowed)))
    np.testing.assert_allclose([found.score[0] for found in ranked], expected, atol=1e-8)
    met = set()
    for found in ranked[: len(allowed)]:
        values = found.value_of(u)
        (row,) = np.flatnonzero((tried == values).all(axis=1))
        assert scores[row] == pytest.approx(found.total)
        met.add(row)
    assert len(met) == min(k, len(allowed))


def test_every_component_is_ranked_by_itself() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    xor = graph.add(Xor(u))
    single = graph.variable_from([1.0, 2.0])
    graph.add(Xor(single))
    first, second, third = graph.k_best(3)
    np.testing.assert_array_equal(u.value, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(second.value_of(u), [[0, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(third.value_of(~u), [[1, 0, 1], [0, 1, 1]])
    assert third.score.tolist() == [1.0, 0.0, -np.inf]
    assert third.found.tolist() == [True, True, False]
    assert third.proved.all()
    assert np.isnan(third.value_of(single)).all()
    assert [d[0].decoded for d in second.structures(xor)] == [{"on": [2]}, {"on": [2]}]
    assert first.ok


def test_tables_and_trees_are_ranked_together() -> None:
    rng = np.random.default_rng(3)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 3)))
    trees = graph.add(DepTree(u))
    graph.add(Pair(u[0, 1], u[2, 1], 2.0))
    x = graph.variable_from(rng.normal(size=(2, 2)))
    dense = graph.add(Dense([x[0], x[1]], rng.normal(size=(2, 2))))
    ranked = graph.k_best(4)
    assert all(found.ok for found in ranked)
    heads = {tuple(found.structures(trees)[()][0].decoded["heads"]) for found in ranked}
    states = [tuple(found.structures(dense)[()][0].decoded["states"]) for found in ranked]
    assert len(heads) == 4
    table = graph.additional_scores(dense).reshape(2, 2)
    scores = graph.flat_scores()[x.index]
    total = scores[0][:, None] + scores[1] + table
    assert states == [np.unravel_index(i, (2, 2)) for i in np.argsort(-total.ravel())]


@pytest.mark.compiled
def test_limits_leave_an_honest_bound() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=14))
    i, j = np.triu_indices(14, 1)
    graph.add(Pair(u[i], u[j], rng.normal(size=len(i))))
    proved = graph.k_best(3)
    with pytest.warns(ConvergenceWarning, match="raise max_time or max_nodes"):
        limited = graph.k_best(3, max_nodes=1)
    assert not limited[0].ok
    assert limited[0].bound[0] >= proved[0].score[0] - 1e-9
    with pytest.raises(ValueError, match="k_best: k"):
        graph.k_best(0)


def test_bad_scores_stay_with_their_component() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 0.0], [np.nan, 0.0]])
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning):
        first, second = graph.k_best(2)
    assert first.found.tolist() == second.found.tolist() == [True, False]
    assert np.isnan(first.bound[1])


def test_no_contradiction_is_proven_by_rounding() -> None:
    """A sequence over variables twice, whose masks are needed: two assignments more are allowed."""
    mask, places = -3.4e38, [4, 3, 0, 5, 3, 0, 1, 4]
    scores = np.array([1e8, -5e7, -5e7, mask, mask, mask])
    initial, final = [2e8, 5e7], [-1e8, -5e7]
    steps = [mask, 0.0, 1.5e8, 5e7, mask, -1e8, 0.0, 1e8, 1.5e8, 0.0, 1e8, 0.0]
    graph = FactorGraph()
    u = graph.variable_from(scores)
    states = (~u[places]).reshape(4, 2)
    graph.add(Sequence(states, additionals=np.array([*initial, *steps, *final])))
    graph.add(Bits(~u[[2, 1]]))
    tried = judges.binary_vectors(6)
    on = 1.0 - tried[:, places].reshape(-1, 4, 2)
    allowed = tried[(on.sum(axis=2) == 1.0).all(axis=1)]
    ranked = graph.k_best(len(allowed) + 1)
    found = [one.values.tolist() for one in ranked if one.found[0]]
    assert sorted(found) == sorted(allowed.tolist())
    assert not ranked[-1].found[0]
