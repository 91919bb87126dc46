"""Sequences scored by binned distances against enumeration, a plain recursion and the judge."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import row_view, slot_values
from lpsmap_factors_struct import SequenceDistance


def bins(path, n_states, reach):
    """What the steps of a path count as, from the words of the paper: (block, bin) pairs."""
    yield 0, min(path[0] + 1, reach) - 1
    for before, after in itertools.pairwise(path):
        yield 1, max(-reach, min(after - before, reach)) + reach
    yield 2, max(path[-1] - n_states, -reach) + reach


def counts(path, n_states, reach):
    blocks = [np.zeros(reach), np.zeros(2 * reach + 1), np.zeros(reach)]
    for block, place in bins(path, n_states, reach):
        blocks[block][place] += 1
    return np.concatenate(blocks)


def split(scores, reach):
    return scores[..., :reach], scores[..., reach : 3 * reach + 1], scores[..., 3 * reach + 1 :]


def make(u, scores, reach, **options):
    initial, distances, final = split(scores, reach)
    return SequenceDistance(u, distances, initial, final, **options)


def case(length, n_states, reach):
    paths = list(itertools.product(range(n_states), repeat=length))
    return Case(
        lambda u, eta_v: make(u, eta_v, reach),
        (length, n_states),
        np.eye(n_states)[np.array(paths)],
        np.array([counts(path, n_states, reach) for path in paths]),
    )


SIZES = [(1, 1, 1), (1, 4, 2), (2, 3, 1), (4, 3, 2), (3, 5, 2), (4, 4, 1), (6, 2, 3), (5, 3, 1)]
"""Lengths, numbers of states, distances from which on steps share a bin."""


@pytest.mark.parametrize(("length", "n_states", "reach"), SIZES)
def test_best_sequence_is_the_best_of_all(draws, length, n_states, reach):
    check_oracle(case(length, n_states, reach), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "n_states", "reach"), [*SIZES, (6, 3, 2), (3, 6, 2)])
def test_best_sequence_is_the_best_of_all_in_many_draws(length, n_states, reach):
    check_oracle(case(length, n_states, reach), SLOW, seed=1)


@pytest.mark.parametrize(("length", "n_states", "reach"), [(3, 3, 1), (2, 4, 2), (4, 2, 1)])
def test_sparsemap_and_gradients(draws, length, n_states, reach):
    check_sparsemap(case(length, n_states, reach), 1 + draws // 40)
    check_gradients(case(length, n_states, reach), draws // 10)
    check_probabilities(case(length, n_states, reach), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "n_states", "reach"), [(3, 3, 1), (2, 4, 2)])
def test_sparsemap_and_gradients_in_many_draws(length, n_states, reach):
    check_sparsemap(case(length, n_states, reach), SLOW, seed=1)
    check_gradients(case(length, n_states, reach), SLOW, seed=1)
    check_probabilities(case(length, n_states, reach), 2 * SLOW, seed=1)


def plain_best(states, scores, reach):
    """Return the best score, by a recursion backwards over suffixes."""
    length, n_states = states.shape
    blocks = split(scores, reach)

    @functools.cache
    def suffix(t, s):
        if t == length - 1:
            return states[t, s] + blocks[2][max(s - n_states, -reach) + reach]
        after = (
            blocks[1][max(-reach, min(j - s, reach)) + reach] + suffix(t + 1, j)
            for j in range(n_states)
        )
        return states[t, s] + max(after)

    return max(blocks[0][min(s + 1, reach) - 1] + suffix(0, s) for s in range(n_states))


@pytest.mark.parametrize(("length", "n_states", "reach"), [(12, 20, 2), (40, 7, 9), (25, 25, 4)])
def test_longer_sequences_agree_with_a_plain_recursion(
    rng, graph, run_oracle, length, n_states, reach
):
    states = rng.standard_normal((5, length, n_states))
    scores = rng.standard_normal((5, 4 * reach + 1))
    found_m, found_n = run_oracle(
        make(graph.variable(states.shape), scores, reach), states.reshape(-1), scores.reshape(-1)
    )
    for b, (m, n) in enumerate(zip(found_m, found_n, strict=True)):
        path = m.reshape(length, n_states).argmax(axis=-1)
        assert (n == counts(path.tolist(), n_states, reach)).all()
        best = plain_best(states[b], scores[b], reach)
        assert m @ states[b].reshape(-1) + n @ scores[b] == pytest.approx(best, abs=1e-11)


def test_ragged_batch_is_its_sequences(rng, graph, run_oracle):
    shape, reach = (2, 3, 5, 4), 2
    lengths = np.array([[[5, 4], [2, 3], [1, 1]], [[0, 2], [4, 1], [3, 4]]])
    states, scores = rng.standard_normal(shape), rng.standard_normal((2, 3, 4 * reach + 1))
    factor = make(graph.variable(shape), scores, reach, lengths=lengths)
    found_m, found_n = run_oracle(factor, slot_values(factor, states), scores.reshape(-1))
    for f, (b, c) in enumerate(itertools.product(range(2), range(3))):
        length, n_states = lengths[b, c]
        own = states[b, c, :length, :n_states]
        path = row_view(factor, f).solve_map(own, scores[b, c])
        m, n = row_view(factor, f).vertex(path)
        assert m.shape == own.shape
        assert (found_m[f] == m.reshape(-1)).all()
        assert (found_n[f] == n).all()
        if length == 0:
            assert not n.any()
            continue
        assert (n == counts(path, n_states, reach)).all()
        best = plain_best(own, scores[b, c], reach)
        assert (m * own).sum() + n @ scores[b, c] == pytest.approx(best, abs=1e-11)
        assert row_view(factor, f).decode(m, n) == {"tags": list(path)}


def test_one_length_is_of_positions(graph):
    u = graph.variable((2, 3, 4))
    lengths = SequenceDistance(u, np.zeros(3), lengths=[2, 3]).lengths
    assert lengths.tolist() == [[2, 4], [3, 4]]


def test_scores_left_out_are_zeros(rng, graph):
    u = graph.variable((2, 3, 4))
    distances, final = rng.standard_normal(5), rng.standard_normal((2, 2))
    expected = np.concatenate([np.zeros((2, 2)), np.tile(distances, (2, 1)), final], axis=1)
    assert (SequenceDistance(u, distances.tolist(), final=final).additionals == expected).all()


def test_a_forbidden_bin_makes_steps_monotone(rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((6, 5)))
    factor = graph.add(SequenceDistance(u, [-np.inf, 0.0, 0.0]))
    graph.solve()
    counted = graph.additionals_of(factor)
    assert counted[1] == 0.0
    assert counted[1:4].sum() == pytest.approx(5.0)
    places = u.value @ np.arange(5)
    assert (np.diff(places) > -1e-9).all()


def test_a_position_without_states_left_is_infeasible():
    graph = FactorGraph()
    scores = np.zeros((2, 3, 4))
    scores[0, 1] = -np.inf
    graph.add(SequenceDistance(graph.variable_from(scores), np.zeros(3)))
    with pytest.warns(match="contradict"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE, Status.SOLVED]


def test_tensors_stay_differentiable(graph):
    torch = pytest.importorskip("torch")
    distances = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    factor = SequenceDistance(graph.variable((2, 3, 4)), distances)
    factor.additionals.sum().backward()
    assert (distances.grad == 2.0).all()


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((3,), {"distances": np.zeros(3)}, r"variables has shape \(3,\); expected at least 2 axes"),
        ((3, 0), {"distances": np.zeros(3)}, r"shape \(3, 0\); expected at least one state"),
        (
            (2, 3, 4),
            {"distances": np.zeros(3), "lengths": [[2, 4], [2, 0]]},
            "factor 1 has no states; expected at least one state",
        ),
        ((3, 4), {"distances": np.zeros(4)}, r"distances has shape \(4,\); expected an odd number"),
        ((3, 4), {"distances": np.zeros(1)}, r"distances has shape \(1,\); expected an odd number"),
        ((3, 4), {"distances": 1.0}, r"distances has shape \(\); expected an odd number"),
        (
            (2, 3, 4),
            {"distances": np.zeros((3, 5))},
            r"distances has shape \(3, 5\); expected one that broadcasts to \(2, 5\)",
        ),
        (
            (3, 4),
            {"distances": np.zeros(5), "final": np.zeros(3)},
            r"final has shape \(3,\); expected one that broadcasts to \(2,\)",
        ),
        (
            (2, 3, 4),
            {"distances": np.zeros(5), "lengths": [1, 4]},
            r"lengths\[1\] is 4; expected 0 to 3",
        ),
    ],
)
def test_wrong_arguments_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=f"SequenceDistance: .*{message}"):
        SequenceDistance(graph.variable(shape), **arguments)
