"""The factor type of the dependency model with valence, against enumeration and the model."""

from __future__ import annotations

import functools
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from checks import Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Variables
from lpsmap_core.testing import Check, parametrize_with_checks
from lpsmap_factors_struct import DepTree
from lpsmap_search import Corpus, DependencyModelWithValence, DMVTree, viterbi
from rules import RULES

TREES = [1, 2, 7, 30, 143]


def decisions_of(arcs: np.ndarray) -> np.ndarray:
    """Return how often each word decides what, from its children."""
    n = len(arcs)
    counts = np.zeros((n, 2, 2, 2))
    for head in range(n):
        for side, others in enumerate((range(head), range(head + 1, n))):
            k = sum(int(arcs[m, head]) for m in others)
            counts[head, side, int(k > 0), 1] = 1.0
            counts[head, side, 0, 0], counts[head, side, 1, 0] = min(k, 1), max(k - 1, 0)
    return counts


@functools.cache
def case(n: int) -> Case:
    """All projective trees of one root word, by trying all heads."""
    tree = SimpleNamespace(packed=True, single_root=True, projective=True)
    found = []
    for heads in itertools.product(range(n), repeat=n):
        arcs = np.zeros((n, n))
        arcs[np.arange(n), list(heads)] = 1.0
        if RULES["DepTree"](tree, arcs > 0.0, np.empty(0)) is not None:
            found.append(arcs)
    decisions = np.array([decisions_of(arcs) for arcs in found])
    return Case(
        lambda u, eta_v: DMVTree(u, eta_v.reshape(*u.shape[:-1], 2, 2, 2)),
        (n, n),
        np.array(found),
        decisions,
    )


@parametrize_with_checks(DMVTree.examples())
@pytest.mark.compiled
def test_protocol(factor: DMVTree, check: Check) -> None:
    check(factor)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_best_tree_is_the_best_of_all(n: int) -> None:
    assert len(case(n).variables) == TREES[n - 1]
    check_oracle(case(n), 20)


@pytest.mark.compiled
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_sparsemap_and_gradients(n: int) -> None:
    check_sparsemap(case(n), 4)
    if n > 1:
        check_gradients(case(n), 10)
        check_probabilities(case(n), 10)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 5])
def test_sparsemap_and_gradients_in_many_draws(n: int) -> None:
    check_oracle(case(n), 500, seed=1)
    check_sparsemap(case(n), 100, seed=1)
    check_gradients(case(n), 200, seed=1)


def test_sums_are_those_of_enumeration() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 4):
        graph, all_trees = FactorGraph(), case(n)
        arcs, decisions = rng.standard_normal((n, n)), rng.standard_normal((n, 2, 2, 2))
        gibbs = graph.gibbs(graph.add(DMVTree(graph.variable_from(arcs), decisions)))
        scores = all_trees.m @ arcs.reshape(-1) + all_trees.n @ decisions.reshape(-1)
        assert gibbs.count() == TREES[n - 1]
        assert gibbs.log_partition == pytest.approx(np.log(np.exp(scores).sum()))
        p = np.exp(scores - gibbs.log_partition)
        assert gibbs.marginals.reshape(-1) == pytest.approx(p @ all_trees.m)
        assert gibbs.additionals.reshape(-1) == pytest.approx(p @ all_trees.n)
        best = [structure.score for structure in gibbs.k_best(3)[0]]
        assert best == pytest.approx(np.sort(scores)[::-1][:3])


def test_without_decisions_it_is_a_projective_tree_of_one_root() -> None:
    scores = np.random.default_rng(1).standard_normal((3, 6, 6))
    values = []
    for make in (
        lambda u: DMVTree(u, np.zeros((3, 6, 2, 2, 2)), lengths=[6, 0, 4]),
        lambda u: DepTree(u, projective=True, single_root=True, lengths=[6, 0, 4]),
    ):
        graph = FactorGraph()
        u: Variables = graph.variable_from(scores)
        graph.add(make(u))
        values.append(graph.solve().values)
    assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_scores_of_the_model() -> None:
    """The best trees are those that the model finds."""
    model, rng = DependencyModelWithValence("abc"), np.random.default_rng(2)
    sentences = ["cab", "a", "bcabba"]
    for _ in range(5):
        scores = rng.standard_normal(model.n_parameters)
        arcs, decisions, lengths = model.tree_scores(sentences, scores)
        assert arcs.shape == (3, 6, 6)
        graph = FactorGraph()
        u = graph.variable_from(arcs)
        graph.add(DMVTree(u, decisions, lengths=lengths))
        solution = graph.solve_map()
        total = float(
            (arcs * u.value).sum() + (decisions.reshape(3, -1) * solution.additionals[0]).sum()
        )
        assert total == pytest.approx(viterbi(Corpus(model, sentences), scores)[0])


def test_scores_of_forbidden_parameters() -> None:
    model = DependencyModelWithValence("ab")
    scores = np.zeros(model.n_parameters)
    scores[model.names.index("root a")] = -np.inf
    arcs, decisions, lengths = model.tree_scores(["ab"], scores)
    graph = FactorGraph()
    u = graph.variable_from(arcs)
    graph.add(DMVTree(u, decisions, lengths=lengths))
    graph.solve()
    assert (u.value == [[[0.0, 1.0], [0.0, 1.0]]]).all()


def test_bad_declarations_are_refused() -> None:
    graph = FactorGraph()
    with pytest.raises(ValueError, match=r"DMVTree: variables has shape \(2, 3\)"):
        DMVTree(graph.variable((2, 3)), np.zeros((2, 2, 2, 2)))
    with pytest.raises(ValueError, match=r"lengths of factor 0 are \(1, 3\); expected equal ones"):
        DMVTree(graph.variable((1, 3, 3)), np.zeros((1, 3, 2, 2, 2)), lengths=[[1, 3]])
    with pytest.raises(ValueError, match="DMVTree: decisions has 8 scores per factor; expected 16"):
        DMVTree(graph.variable((2, 2)), np.zeros((1, 2, 2, 2)))
