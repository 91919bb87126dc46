"""Sequences, with and without a budget, against enumeration, plain Viterbi and the judge."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pytest

from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import ConvergenceWarning, FactorGraph
from lpsmap_core.api import row_view, slot_values
from lpsmap_factors_struct import Sequence, SequenceBudget

NO_BUDGET = None
BUDGETS = [
    pytest.param(NO_BUDGET, id="no-budget"),
    pytest.param((1, False), id="at-most-1"),
    pytest.param((2, False), id="at-most-2"),
    pytest.param((0, False), id="none"),
    pytest.param((2, True), id="exactly-2"),
]


def make(u, transitions, budget, **options):
    if budget is NO_BUDGET:
        return Sequence(u, transitions, **options)
    most, exact = budget
    return SequenceBudget(u, transitions, most, exact, **options)


@functools.cache
def all_paths(length, n_states, budget, counted):
    paths = np.array(list(itertools.product(range(n_states), repeat=length)), dtype=int)
    paths = paths.reshape(-1, length)
    if budget is not NO_BUDGET:
        visits = (paths == counted).sum(axis=1)
        paths = paths[visits == budget[0] if budget[1] else visits <= budget[0]]
    return paths


def all_vertices(length, n_states, budget, counted):
    """By one-hot encoding, with initial and final states around the judge's transitions."""
    m, n = [], []
    for path in all_paths(length, n_states, budget, counted):
        states = np.eye(n_states)[path]
        steps = np.einsum("ti,tj->tij", states[:-1], states[1:])
        m.append(states.reshape(-1))
        n.append(np.concatenate([states[0], steps.reshape(-1), states[-1]]))
    return np.array(m), np.array(n)


def plain_viterbi(states, initial, transitions, final):
    """Return the best score, by a recursion backwards over suffixes."""

    @functools.cache
    def suffix(t, s):
        if t == len(states) - 1:
            return states[t, s] + final[s]
        after = (transitions[t, s, j] + suffix(t + 1, j) for j in range(states.shape[1]))
        return states[t, s] + max(after)

    return max(initial[s] + suffix(0, s) for s in range(states.shape[1]))


def plain_budget(states, initial, transitions, final, budget, exact, counted):
    """Return the best score, by a recursion backwards over suffixes and what is left to spend."""
    length, n_states = states.shape

    @functools.cache
    def suffix(t, s, left):
        left -= s == counted
        if left < 0:
            return -np.inf
        if t == length - 1:
            return -np.inf if exact and left else states[t, s] + final[s]
        after = (transitions[t, s, j] + suffix(t + 1, j, left) for j in range(n_states))
        return states[t, s] + max(after)

    return max(initial[s] + suffix(0, s, budget) for s in range(n_states))


def case(length, n_states, budget):
    counted = n_states // 2
    options = {} if budget is NO_BUDGET else {"counted_state": counted}
    return Case(
        lambda u, eta_v: make(u, None, budget, additionals=eta_v, **options),
        (length, n_states),
        *all_vertices(length, n_states, budget, counted),
    )


POSSIBLE = [
    pytest.param(length, n_states, *budget.values, id=f"{length}-{n_states}-{budget.id}")
    for length, n_states in ((1, 3), (2, 2), (4, 3), (5, 2), (6, 2), (3, 1))
    for budget in BUDGETS
    if len(all_paths(length, n_states, *budget.values, n_states // 2))
]


@pytest.mark.parametrize(("length", "n_states", "budget"), POSSIBLE)
def test_best_sequence_is_the_best_of_all(draws, length, n_states, budget):
    check_oracle(case(length, n_states, budget), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "n_states", "budget"), POSSIBLE)
def test_best_sequence_is_the_best_of_all_in_many_draws(length, n_states, budget):
    check_oracle(case(length, n_states, budget), SLOW, seed=1)


@pytest.mark.parametrize("budget", BUDGETS)
def test_sparsemap_and_gradients(draws, budget):
    check_sparsemap(case(4, 3, budget), 1 + draws // 40)
    check_gradients(case(4, 3, budget), draws // 10)
    check_probabilities(case(4, 3, budget), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
def test_sparsemap_and_gradients_in_many_draws(budget):
    check_sparsemap(case(3, 3, budget), SLOW, seed=1)
    check_gradients(case(3, 3, budget), SLOW, seed=1)
    check_probabilities(case(3, 3, budget), 2 * SLOW, seed=1)


@pytest.mark.parametrize("budget", [NO_BUDGET, (2, False)])
def test_sequences_are_decoded_to_tags(graph, budget):
    factor = row_view(make(graph.variable((4, 3)), np.zeros((3, 3)), budget), 0)
    for path in all_paths(4, 3, budget, 0):
        assert factor.decode(*factor.vertex(tuple(path))) == {"tags": path.tolist()}


@pytest.mark.parametrize("length", [12, 40])
def test_longer_sequences_agree_with_a_plain_recursion(rng, graph, run_oracle, length):
    n_states, batch = 6, 10
    states = rng.standard_normal((batch, length, n_states))
    transitions = rng.standard_normal((batch, length - 1, n_states, n_states))
    initial, final = rng.standard_normal((2, batch, n_states))
    u = graph.variable(states.shape)
    budget, counted = length // 8, rng.integers(0, n_states, size=batch)
    ends = {"initial": initial, "final": final}
    factors = [
        Sequence(u, transitions, **ends),
        SequenceBudget(u, transitions, budget, counted_state=counted, **ends),
        SequenceBudget(u, transitions, 2 * budget, True, counted, **ends),
    ]
    for number, factor in enumerate(factors):
        extra = factor.additionals
        m, n = run_oracle(factor, states.reshape(-1), extra.reshape(-1))
        for b in range(batch):
            scores = states[b], initial[b], transitions[b], final[b]
            best = plain_viterbi(*scores)
            if number:
                limits = (budget, False) if number == 1 else (2 * budget, True)
                best = plain_budget(*scores, *limits, counted[b])
            score = m[b] @ states[b].reshape(-1) + n[b] @ extra[b]
            assert score == pytest.approx(best, abs=1e-11)


@pytest.mark.parametrize("budget", BUDGETS)
def test_ragged_batch_is_its_sequences(rng, graph, run_oracle, budget):
    length, n_states = 6, 3
    lengths = np.array([[3, 4, 6], [2, 6, 5]])
    if budget is NO_BUDGET or not budget[1]:
        lengths[1, :2] = 0, 1
    states = rng.standard_normal((2, 3, length, n_states))
    transitions = rng.standard_normal((length - 1, n_states, n_states))
    final = rng.standard_normal((2, 3, n_states))
    u = graph.variable(states.shape)
    factor = make(u, transitions, budget, final=final, lengths=lengths)
    found_m, found_n = run_oracle(
        factor, slot_values(factor, states), factor.additionals.reshape(-1)
    )
    for f, (b, c) in enumerate(itertools.product(range(2), range(3))):
        size = lengths[b, c]
        if size == 0:
            assert not len(found_m[f])
            assert not found_n[f].any()
            assert row_view(factor, f).solve_map(np.empty((0, n_states)), found_n[f]) == ()
            continue
        alone = make(u[b, c, :size], transitions[: size - 1], budget, final=final[b, c])
        path = row_view(alone, 0).solve_map(states[b, c, :size], alone.additionals)
        assert row_view(factor, f).solve_map(states[b, c, :size], factor.additionals[b, c]) == path
        m, n = row_view(factor, f).vertex(path)
        assert (found_m[f] == m.reshape(-1)).all()
        assert (found_n[f] == n).all()
        # only the transitions between used positions are on
        _, alone_n = row_view(alone, 0).vertex(path)
        inner = n_states + (size - 1) * n_states**2
        assert (n[:inner] == alone_n[:inner]).all()
        assert not n[inner:-n_states].any()
        assert (n[-n_states:] == alone_n[-n_states:]).all()


def test_scores_are_laid_out_flat(rng, graph):
    batch, length, n_states = 4, 4, 2
    u = graph.variable((batch, length, n_states))
    shared, per_step = rng.standard_normal((2, 2)), rng.standard_normal((3, 2, 2))
    initial, final = rng.standard_normal(2), rng.standard_normal((batch, 2))
    for transitions in (shared, per_step):
        flat = Sequence(u, transitions, initial, final).additionals
        assert flat.shape == (batch, 4 + transitions.size)
        assert (flat[:, :2] == initial).all()
        assert (flat[:, 2:-2] == transitions.reshape(-1)).all()
        assert (flat[:, -2:] == final).all()
        assert Sequence(u, flat).additionals is flat
        assert Sequence(u, additionals=flat).additionals is flat
    assert (Sequence(u, [[0, 1], [2, 3]]).additionals[1, 2:6] == [0, 1, 2, 3]).all()
    flat_steps = np.tile(per_step.reshape(-1), (batch, 1))
    assert (Sequence(u, flat_steps).additionals[:, 2:-2] == flat_steps).all()
    single = Sequence(u[:, :1], np.zeros((0, 2, 2)), initial, final).additionals
    assert (single == np.concatenate([np.tile(initial, (batch, 1)), final], axis=1)).all()


def test_flat_scores_of_one_size_are_those_of_their_argument(graph):
    """Those of the transitions of 2 steps are as many as all scores with shared transitions."""
    u, numbers = graph.variable((3, 2)), np.arange(8.0)
    assert Sequence(u, numbers).additionals.tolist() == [0, 0, *range(8), 0, 0]
    assert Sequence(u, additionals=numbers).additionals is numbers


def test_tensors_stay_differentiable(rng, graph):
    torch = pytest.importorskip("torch")
    u = graph.variable((2, 3, 2))
    transitions = torch.tensor(rng.standard_normal((2, 2)), requires_grad=True)
    initial = torch.tensor(rng.standard_normal((2, 2)), requires_grad=True)
    factor = Sequence(u, transitions, initial)
    assert factor.additionals.shape == (2, 8)
    weight = torch.arange(16.0, dtype=torch.float64).reshape(2, 8)
    (factor.additionals * weight).sum().backward()
    assert (initial.grad == weight[:, :2]).all()
    assert (transitions.grad == weight[:, 2:6].reshape(2, 2, 2).sum(axis=0)).all()
    with pytest.raises(TypeError, match="expected arrays of one library"):
        Sequence(u, transitions, initial=np.zeros(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Sequence: got neither of transitions and additionals"),
        (
            {"transitions": np.zeros((2, 2)), "additionals": np.zeros((2, 12))},
            "Sequence: got both of transitions and additionals",
        ),
        (
            {"transitions": np.zeros((2, 3))},
            r"Sequence: transitions has shape \(2, 3\); expected one that broadcasts to "
            r"\(2, 2, 2\)",
        ),
        (
            {"transitions": np.zeros((7, 1, 1, 1, 1))},
            "Sequence: transitions has shape",
        ),
        (
            {"transitions": np.zeros((2, 2)), "initial": np.zeros(3)},
            r"Sequence: initial has shape \(3,\); expected one that broadcasts to \(2, 2\)",
        ),
        (
            {"additionals": np.zeros((2, 11))},
            r"Sequence: additionals has shape \(2, 11\); expected \(2, 12\)",
        ),
        (
            {"additionals": np.zeros((2, 12)), "final": np.zeros(2)},
            "includes initial and final scores",
        ),
        (
            {"transitions": np.zeros((2, 2)), "lengths": [1, 4]},
            r"Sequence: lengths\[1\] is 4; expected 0 to 3",
        ),
    ],
)
def test_wrong_arguments_are_named(graph, arguments, message):
    with pytest.raises(ValueError, match=message):
        Sequence(graph.variable((2, 3, 2)), **arguments)


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((2, 3, 2), {"budget": -1}, "budget of factor 0 is -1; expected a whole number, 0 or more"),
        ((2, 3, 2), {"budget": [1, 1.5]}, "budget of factor 1 is 1.5; expected a whole number"),
        ((2, 3, 2), {"budget": [1, 2, 3]}, r"budget has shape \(3,\); expected"),
        (
            (2, 3, 2),
            {"budget": 1, "counted_state": [0, 2]},
            "counted_state is 2 for factor 1; expected an integer, 0 to 1",
        ),
        (
            (2, 3, 2),
            {"budget": 2, "force_budget": True, "lengths": [3, 1]},
            "budget is 2 for factor 1 with 1 positions and 2 states, which no sequence satisfies",
        ),
        (
            (2, 3, 1),
            {"budget": 2},
            "budget is 2 for factor 0 with 3 positions and 1 states, which no sequence satisfies",
        ),
    ],
)
def test_impossible_budgets_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=f"SequenceBudget: {message}"):
        SequenceBudget(graph.variable(shape), np.zeros((shape[-1], shape[-1])), **arguments)


def test_sequences_need_a_state(graph):
    with pytest.raises(ValueError, match="expected at least one state"):
        Sequence(graph.variable((3, 0)), np.zeros((0, 0)))


def test_a_solution_shares_no_memory_with_scores_and_later_solves(rng):
    def solve(scores, additionals):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Sequence(u, additionals=additionals))
        return graph.solve()

    def everything(solution, d):
        of_scores, of_additionals = solution.vjp(d)
        found = solution.values, *solution.additionals, of_scores, *of_additionals
        return *found, solution.error_bound, *solution.solved.additionals()

    scores, additionals = rng.standard_normal((3, 6, 4)), rng.standard_normal((3, 8 + 5 * 16))
    d = rng.standard_normal(scores.size)
    expected = [x.copy() for x in everything(solve(scores.copy(), additionals.copy()), d)]
    solution = solve(scores, additionals)
    kept, _ = solution.additionals[0], solution.vjp(d)
    scores[:], additionals[:] = rng.standard_normal(scores.shape), 7.0
    for _ in range(3):
        everything(solve(scores, additionals), d)
    for x, y in zip(everything(solution, d), expected, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(kept, expected[1])


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_marginals_and_gradients_of_what_is_not_solved_are_none_of_an_earlier_solve(rng, wrong):
    """The memory of a solve is taken for the next one, and only what is solved writes to it."""

    def solved(scores):
        graph = FactorGraph()
        graph.add(Sequence(graph.variable_from(scores), rng.standard_normal((3, 4, 3, 3))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return graph.solve()

    scores = rng.standard_normal((3, 5, 3))
    d_values = rng.standard_normal(scores.size)
    solved(scores).vjp(d_values)  # leaves its memory behind
    bad = scores.copy()
    bad[1, 0, 0] = wrong
    solution = solved(bad)
    (v,), (d, (d_v,)) = solution.additionals, solution.vjp(d_values)
    assert v[[0, 2]].any(axis=1).all()
    for unknown in (v, d.reshape(scores.shape), d_v):
        assert np.isnan(unknown[1]).all()
