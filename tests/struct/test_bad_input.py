"""Trees and sequences of no words or one, masked rows, impossible budgets: the documented answer.

Wrong shapes and arguments are named in errors; see the tests of each factor.
"""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core import ConvergenceWarning, FactorGraph, Status
from lpsmap_factors_struct import DepTree, Sequence, SequenceBudget

TREES = [
    pytest.param({"projective": projective, "single_root": single_root, "packed": packed})
    for projective in (False, True)
    for single_root in (False, True)
    for packed in (False, True)
]
NO_STEPS = np.zeros((2, 2))
SEQUENCES = [
    pytest.param(lambda u, **o: Sequence(u, NO_STEPS, **o), id="sequence"),
    pytest.param(lambda u, **o: SequenceBudget(u, NO_STEPS, 1, **o), id="at most 1"),
    pytest.param(lambda u, **o: SequenceBudget(u, NO_STEPS, [0, 1], True, **o), id="exactly"),
]
"""Exactly none in the first of a batch of two, exactly one in the second."""


@pytest.mark.parametrize("options", TREES)
def test_sentences_of_no_words_and_of_one(rng, graph, options):
    u = graph.variable_from(rng.standard_normal((3, 3, 3)))
    factor = graph.add(DepTree(u, lengths=[0, 1, 3], **options))
    solution = graph.solve()
    assert solution.ok
    assert u.value[1, 0, 0] == 1.0  # the only tree of one word hangs it from the root
    assert u.value[2].sum(axis=1) == pytest.approx(np.ones(3))
    decoded = factor.row(1).decode(*factor.row(1).vertex((0,)))
    assert decoded == {"heads": [-1]}
    grad, _ = solution.vjp(np.ones(27))
    assert grad.reshape(3, 3, 3)[1, 0, 0] == 0.0


@pytest.mark.parametrize("options", TREES)
@pytest.mark.parametrize("n", [0, 1])
def test_a_single_sentence_of_no_words_or_of_one(graph, options, n):
    u = graph.variable((n, n))
    graph.add(DepTree(u, **options))
    assert graph.solve().ok
    assert u.value.tolist() == [[1.0]] * n


@pytest.mark.parametrize("options", TREES)
def test_a_word_without_allowed_heads(rng, graph, options):
    scores = rng.standard_normal((2, 4, 4))
    scores[0, 2] = -np.inf
    u = graph.variable_from(scores)
    graph.add(DepTree(u, **options))
    with pytest.warns(ConvergenceWarning, match="constraints contradict each other"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE, Status.SOLVED]
    assert u.value[1].sum(axis=1) == pytest.approx(np.ones(4))
    assert np.isfinite(solution.vjp(np.ones(32))[0]).all()


def test_two_words_that_have_only_the_root_cannot_share_a_single_root(rng):
    scores = rng.standard_normal((3, 3))
    scores[:2] = np.where(np.eye(2, 3, dtype=bool), scores[:2], -np.inf)
    for single_root in (False, True):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, single_root=single_root))
        if single_root:
            with pytest.warns(ConvergenceWarning, match="contradict"):
                assert graph.solve().status.tolist() == [Status.INFEASIBLE]
        else:
            assert graph.solve().ok
            assert u.value[:2, :2].tolist() == np.eye(2).tolist()


@pytest.mark.parametrize("make", SEQUENCES)
def test_sequences_of_no_positions_and_of_one(rng, graph, make):
    u = graph.variable_from(rng.standard_normal((2, 3, 2)))
    graph.add(make(u, lengths=[0, 1]))
    solution = graph.solve()
    assert solution.ok
    assert u.value[1, 0].sum() == pytest.approx(1.0)
    assert solution.additionals[0][0].tolist() == [0.0] * 12  # nothing is used of no positions
    alone = FactorGraph()
    v = alone.variable((2, 0, 2))
    if make is not SEQUENCES[2].values[0]:
        alone.add(make(v))
        assert alone.solve().ok


@pytest.mark.parametrize("make", SEQUENCES)
def test_a_position_without_allowed_states(rng, graph, make):
    scores = rng.standard_normal((2, 3, 2))
    scores[0, 1] = -np.inf
    u = graph.variable_from(scores)
    graph.add(make(u))
    with pytest.warns(ConvergenceWarning, match="constraints contradict each other"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE, Status.SOLVED]
    assert u.value[1].sum(axis=1) == pytest.approx(np.ones(3))


@pytest.mark.parametrize(("budget", "forced", "allowed"), [(1, True, []), (1, False, [0, 1])])
def test_a_budget_that_the_scores_forbid(rng, graph, budget, forced, allowed):
    """Nothing to spend it on; or too many positions at which nothing else is allowed."""
    scores = rng.standard_normal((3, 2))
    scores[:, 0] = -np.inf
    scores[allowed] = scores[allowed][:, ::-1]
    u = graph.variable_from(scores)
    graph.add(SequenceBudget(u, NO_STEPS, budget, forced))
    with pytest.warns(ConvergenceWarning, match="contradict"):
        assert graph.solve().status.tolist() == [Status.INFEASIBLE]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_named(rng, graph, bad):
    scores = rng.standard_normal((4, 4))
    scores[1, 2] = bad
    graph.add(DepTree(graph.variable_from(scores)))
    with pytest.raises(ValueError, match=r"holds (nan|inf) at \[1, 2\]"):
        graph.solve()


@pytest.mark.parametrize("factor", [DepTree, lambda u: Sequence(u, NO_STEPS)])
def test_variables_are_asked_for(factor):
    with pytest.raises(TypeError, match="expected Variables"):
        factor(np.zeros((2, 2)))
