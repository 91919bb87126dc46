"""Trees and sequences of no words or one, masked rows, impossible budgets: the documented answer.

Wrong shapes and arguments are named in errors; see the tests of each factor.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from lpsmap_core import ConvergenceWarning, Factor, FactorGraph, Status
from lpsmap_core.api import row_values, row_view, slot_values, slots_of
from lpsmap_factors_struct import (
    BinaryTree,
    DepTree,
    HeadAutomaton,
    Matching,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    TopK,
)

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
    decoded = row_view(factor, 1).decode(*row_view(factor, 1).vertex((0,)))
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
    assert not solution.additionals[0][0].any()  # nothing is used of no positions
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


# -------------------------------------------------------------------- counts and switches

HUGE = [sys.maxsize, 2**63, 10**400, 1e300, np.uint64(2**64 - 1)]


@pytest.mark.parametrize("count", HUGE)
def test_more_than_there_are_is_all(rng, count):
    """Counts beyond 64 bits, or almost, overflowed in kernels, and the answers were wrong."""
    scores, steps = rng.standard_normal((3, 4)), rng.standard_normal((4, 4))
    for make in (
        lambda u, k: TopK(u, k, exact=False, lengths=[4, 2, 0]),
        lambda u, k: SequenceBudget(u, steps, k),
    ):
        values = []
        for k in (count, 4):
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(make(u, k))
            assert graph.solve().ok
            values.append(u.value)
        np.testing.assert_array_equal(*values)
    assert TopK(u, count, exact=False, lengths=[4, 2, 0]).k.tolist() == [4, 2, 0]
    with pytest.raises(ValueError, match="TopK: k is .* of 4 elements; expected 0 to 4"):
        TopK(u, count)
    with pytest.raises(ValueError, match="counted_state is .*; expected an integer, 0 to 3"):
        SequenceBudget(u, steps, 1, counted_state=count)
    with pytest.raises(ValueError, match="budget is .* which no sequence satisfies"):
        SequenceBudget(u, steps, count, force_budget=True)


@pytest.mark.parametrize("count", ["2", 2 + 0j, True, None, np.ma.masked_array([1, 2, 3], 1)])
def test_counts_are_whole_numbers(graph, count):
    u, steps = graph.variable((3, 4)), np.zeros((4, 4))
    with pytest.raises(TypeError, match="TopK: k"):
        TopK(u, count)
    with pytest.raises(TypeError, match="SequenceBudget: budget"):
        SequenceBudget(u[None], steps, count)
    with pytest.raises(TypeError, match="SequenceBudget: counted_state"):
        SequenceBudget(u[None], steps, 1, counted_state=count)


@pytest.mark.parametrize("switch", ["no", 2, [True, False], None])
def test_switches_are_truth_values(graph, switch):
    u = graph.variable((4, 4))
    for name, make in {
        "TopK: exact": lambda: TopK(u, 2, switch),
        "SequenceBudget: force_budget": lambda: SequenceBudget(u, np.zeros((4, 4)), 1, switch),
        "DepTree: packed": lambda: DepTree(u, switch),
        "DepTree: projective": lambda: DepTree(u, projective=switch),
        "DepTree: single_root": lambda: DepTree(u, single_root=switch),
        "DepTree: labelled": lambda: DepTree(u, labelled=switch),
        "BinaryTree: labelled": lambda: BinaryTree(u, switch),
    }.items():
        with pytest.raises(TypeError, match=f"{name}: got .*expected .*True or False"):
            make()


def test_a_word_of_several_is_one_of_them(graph):
    for full in (True, np.array(["rows", "none"])):
        with pytest.raises(ValueError, match="Matching: full is .*; expected 'rows'"):
            Matching(graph.variable((3, 3)), full=full)


@pytest.mark.parametrize(
    "steps", [np.zeros((4, 4)) + 1j, "x", np.ma.masked_array(np.zeros((4, 4)), np.eye(4))]
)
def test_additionals_are_real_numbers(graph, steps):
    u = graph.variable((3, 4))
    for name, make in {
        "Sequence: transitions": lambda: Sequence(u, steps),
        "SequenceDistance: distances": lambda: SequenceDistance(u, steps),
        "HeadAutomaton: siblings": lambda: HeadAutomaton(u, steps),
        "SemiMarkov: transitions": lambda: SemiMarkov(u.reshape(3, 1, 4), steps),
    }.items():
        with pytest.raises(TypeError, match=name):
            make()


# -------------------------------------------------------------------- entries that are not used

WITH_UNUSED = {
    "BinaryTree": lambda g: BinaryTree(g.variable((3, 4, 4)), lengths=[4, 1, 3]),
    "labelled BinaryTree": lambda g: BinaryTree(g.variable((3, 3, 2)), labelled=True),
    "SemiMarkov": lambda g: SemiMarkov(
        g.variable((4, 4, 3, 2)), np.zeros((2, 2)), lengths=[4, 1, 0, 2]
    ),
    "SemiMarkov alone": lambda g: SemiMarkov(g.variable((3, 2, 2))),
    "Sequence": lambda g: Sequence(g.variable((3, 4, 2)), np.zeros((2, 2)), lengths=[4, 0, 1]),
    "SequenceBudget": lambda g: SequenceBudget(
        g.variable((2, 4, 2)), np.zeros((3, 2, 2)), 4, lengths=[2, 3]
    ),
    "SequenceDistance": lambda g: SequenceDistance(
        g.variable((2, 4, 4)), np.zeros(5), lengths=[0, 4]
    ),
    "HeadAutomaton": lambda g: HeadAutomaton(
        g.variable((3, 4)), np.zeros((5, 5)), lengths=[4, 0, 2]
    ),
}


def declared(make) -> tuple[FactorGraph, Factor]:
    graph = FactorGraph()
    return graph, graph.add(make(graph))


@pytest.mark.parametrize("name", WITH_UNUSED)
def test_unused_entries_are_those_of_no_structure(rng, name):
    _, factor = declared(WITH_UNUSED[name])
    slots, additionals = factor.unused()
    slots = np.zeros(factor.variables.shape, bool) if slots is None else slots
    shape = (factor.n_factors, factor.n_additionals)
    additionals = np.zeros(shape, bool) if additionals is None else additionals
    assert slots.shape == factor.variables.shape
    assert additionals.shape == shape
    assert slots.any() or additionals.any()
    never, used = slot_values(factor, slots), np.zeros(factor.offsets[-1], bool)
    for i in range(factor.n_factors):
        row, mine, on = (
            row_view(factor, i),
            slots_of(factor, i),
            np.zeros(factor.n_additionals, bool),
        )
        for _ in range(600):
            eta_u = row_values(factor, i, rng.standard_normal(mine.stop - mine.start))
            eta_v = 3.0 * rng.standard_normal(factor.n_additionals)
            m, n = row.vertex(row.solve_map(eta_u, eta_v))
            used[mine] |= np.reshape(m, -1) > 0
            on |= np.reshape(n, -1) > 0
        np.testing.assert_array_equal(~on, additionals[i])
        assert not (on & additionals[i]).any()
    np.testing.assert_array_equal(~used, never)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", WITH_UNUSED)
def test_what_is_not_used_may_hold_anything(rng, name, bad):
    values = []
    for replaced in (False, True):
        graph, factor = declared(WITH_UNUSED[name])
        draw = np.random.default_rng(0)
        slots, unused = factor.unused()
        scores = draw.standard_normal(factor.variables.shape)
        extra = draw.standard_normal((factor.n_factors, factor.n_additionals))
        if replaced and slots is not None:
            scores[slots & (True if factor.keep is None else factor.keep)] = bad
        if replaced and unused is not None:
            extra[unused] = bad
        graph.rescore(factor.variables, scores)
        if factor.n_additionals:
            graph.rescore(factor, extra.reshape(factor.additionals.shape))
        solution = graph.solve()
        inside = solution.layout.component >= 0
        gradients, _ = solution.vjp(np.ones(graph.n_variables))
        values.append([solution.values[inside], gradients[inside], *solution.additionals])
        assert solution.ok
        assert np.isfinite(solution.objective).all()
        if replaced and factor.n_additionals:
            assert np.isnan(extra[unused]).all() or np.isinf(extra[unused]).all()
    for plain, with_bad in zip(*values, strict=True):
        np.testing.assert_array_equal(plain, with_bad)


def test_a_score_that_another_factor_uses_is_looked_at(graph):
    scores = np.zeros((3, 3))
    scores[1, 0] = np.nan
    u = graph.variable_from(scores)
    graph.add(BinaryTree(u))
    assert graph.solve().ok
    assert u.value[1, 0] == 0.0
    scores[0, 1] = np.nan
    graph.rescore(u, scores)
    with pytest.raises(ValueError, match=r"holds nan at \[0, 1\]"):
        graph.solve()
