"""Sums over the structures of every structured type that has a hypergraph."""

from __future__ import annotations

import math

import numpy as np
import pytest

import test_alignment
import test_binary_tree
import test_dep_tree
import test_head_automaton
import test_semi_markov
import test_sequence
import test_sequence_distance
from gibbs_checks import check_draws, check_gibbs
from lpsmap import Alignment, BinaryTree, DepTree, FactorGraph, Matching, Sequence, SequenceBudget
from lpsmap_dynamic import DynamicProgram
from lpsmap_dynamic.best_derivation import best_derivations

CASES = {
    "sequence": lambda: test_sequence.case(4, 3, test_sequence.NO_BUDGET),
    "sequence of one": lambda: test_sequence.case(1, 3, test_sequence.NO_BUDGET),
    "budget": lambda: test_sequence.case(4, 3, (2, False)),
    "exact budget": lambda: test_sequence.case(4, 3, (2, True)),
    "distance": lambda: test_sequence_distance.case(3, 4, 2),
    "segments": lambda: test_semi_markov.case(4, 3, 2),
    "segments without transitions": lambda: test_semi_markov.case(4, 3, 2, chained=False),
    "modifiers": lambda: test_head_automaton.case(4),
    "alignment": lambda: test_alignment.case(3, 4),
    "brackets": lambda: test_binary_tree.case(5),
    "labelled brackets": lambda: test_binary_tree.case(3, 2),
    "trees": lambda: test_dep_tree.case(4, True, False),
    "trees of a root": lambda: test_dep_tree.case(4, True, True, packed=False),
    "labelled trees": lambda: test_dep_tree.case(3, True, False, True, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_the_enumeration(name):
    check_gibbs(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_probabilities(name):
    check_draws(CASES[name]())


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda u: Sequence(u(200, 10), np.zeros((10, 10))), 10**200),
        (lambda u: BinaryTree(u(30, 30)), math.comb(58, 29) // 30),
        # noncrossing trees, and those of which the first vertex has one edge
        (lambda u: DepTree(u(20, 20), projective=True), math.comb(60, 20) // 41),
        (lambda u: DepTree(u(20, 20), projective=True, single_root=True), math.comb(58, 19) // 20),
        (
            lambda u: Alignment(u(20, 20)),
            sum(math.comb(19, k) ** 2 * 2**k for k in range(20)),  # Delannoy's number
        ),
        (
            lambda u: SequenceBudget(u(30, 2), np.zeros((2, 2)), 3, force_budget=True),
            math.comb(30, 3),
        ),
    ],
)
def test_counts_are_those_of_combinatorics(make, count):
    graph = FactorGraph()
    factor = graph.add(make(lambda *shape: graph.variable(shape)))
    gibbs = graph.gibbs(factor)
    assert gibbs.count().item() == count
    np.testing.assert_allclose(gibbs.log_partition, math.log(count), rtol=1e-12)
    np.testing.assert_allclose(gibbs.entropy, math.log(count), rtol=1e-12)


def test_ragged_rows_are_the_rows_alone():
    scores = np.random.default_rng(0).standard_normal((4, 5, 5))
    graph, alone = FactorGraph(), []
    trees = graph.add(DepTree(graph.variable_from(scores), projective=True, lengths=[5, 0, 1, 3]))
    gibbs = graph.gibbs(trees)
    for row, n in enumerate((5, 0, 1, 3)):
        single = FactorGraph()
        tree = single.add(DepTree(single.variable_from(scores[row, :n, :n]), projective=True))
        alone.append(single.gibbs(tree).log_partition.item())
        marginals = np.zeros((5, 5))
        marginals[:n, :n] = single.gibbs(tree).marginals
        np.testing.assert_allclose(gibbs.marginals[row], marginals, atol=1e-14)
    np.testing.assert_allclose(gibbs.log_partition, alone, atol=1e-14)
    assert alone[1] == 0.0
    assert gibbs.sample(2, 0)[1].variables.shape == (2, 0, 0)


def test_types_without_sums_say_so():
    graph = FactorGraph()
    matching = graph.add(Matching(graph.variable((3, 3))))
    with pytest.raises(TypeError, match="Matching has no inference over its structures"):
        graph.gibbs(matching)


@pytest.mark.parametrize("name", CASES)
def test_own_oracles_are_those_of_the_hypergraphs(name):
    """The type's kernel and the generic one find structures of equal score."""
    case, rng = CASES[name](), np.random.default_rng(0)
    a = rng.standard_normal((6, case.m.shape[1])) * 10.0 ** rng.integers(-8, 9, (6, 1))
    eta_v = rng.standard_normal((6, case.n.shape[1]))
    graph, _, factor = case.graph(a, eta_v)
    best = graph.gibbs(factor).k_best(1)
    every = a @ case.m.T + eta_v @ case.n.T
    np.testing.assert_allclose(best.scores[:, 0], every.max(axis=1), rtol=1e-12)


def test_the_generic_oracle_serves_ported_types():
    """Solved by the generic kernel, trees have the marginals that their own kernel gives."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((3, 5, 5))
    own, generic = FactorGraph(), FactorGraph()
    u = own.variable_from(scores)
    own.add(DepTree(u, projective=True, lengths=[5, 4, 2]))

    class Generic(DepTree, DynamicProgram):  # which gives the kernel its hypergraphs
        map_kernel = staticmethod(best_derivations)

    v = generic.variable_from(scores)
    generic.add(Generic(v, projective=True, lengths=[5, 4, 2]))
    (row,) = generic.plan().factors
    assert row.function.endswith("best_derivations")
    own.solve()
    generic.solve()
    np.testing.assert_allclose(u.value, v.value, atol=1e-9)
