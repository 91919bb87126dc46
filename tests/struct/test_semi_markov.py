"""Segmentations against enumeration, a plain recursion and the judge."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import row_view, slot_values
from lpsmap_factors_struct import SemiMarkov


def compositions(length, longest):
    """All ways to write a length as a sum of lengths."""
    if length == 0:
        yield ()
    for first in range(1, min(length, longest) + 1):
        for rest in compositions(length - first, longest):
            yield (first, *rest)


def structure(parts, labels, length, longest, n_states):
    segments = np.zeros((length, longest, n_states))
    starts = np.cumsum((0, *parts))[:-1]
    segments[starts, np.array(parts) - 1, labels] = 1.0
    transitions = np.zeros((n_states, n_states))
    for before, after in itertools.pairwise(labels):
        transitions[before, after] += 1.0
    return segments, transitions


def make(u, eta_v):
    n_states = u.shape[-1]
    return SemiMarkov(u, eta_v.reshape(*eta_v.shape[:-1], n_states, n_states))


def case(length, longest, n_states, chained=True):
    all_ = [
        structure(parts, labels, length, longest, n_states)
        for parts in compositions(length, longest)
        for labels in itertools.product(range(n_states), repeat=len(parts))
    ]
    segments, transitions = (np.array(part) for part in zip(*all_, strict=True))
    shape = (length, longest, n_states)
    if chained:
        return Case(make, shape, segments, transitions)
    return Case(lambda u, eta_v: SemiMarkov(u), shape, segments)


SIZES = [(1, 1, 1), (1, 3, 2), (3, 2, 2), (4, 4, 2), (5, 3, 1), (4, 1, 3), (4, 6, 1)]
"""Lengths, longest segments, numbers of states."""


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize(("length", "longest", "n_states"), SIZES)
def test_best_segmentation_is_the_best_of_all(draws, length, longest, n_states, chained):
    check_oracle(case(length, longest, n_states, chained), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize(("length", "longest", "n_states"), [*SIZES, (6, 3, 2), (5, 5, 2)])
def test_best_segmentation_is_the_best_of_all_in_many_draws(length, longest, n_states, chained):
    check_oracle(case(length, longest, n_states, chained), SLOW, seed=1)


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize(("length", "longest", "n_states"), [(3, 2, 2), (4, 3, 1)])
def test_sparsemap_and_gradients(draws, length, longest, n_states, chained):
    check_sparsemap(case(length, longest, n_states, chained), 1 + draws // 40)
    check_gradients(case(length, longest, n_states, chained), draws // 10)
    check_probabilities(case(length, longest, n_states, chained), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize(("length", "longest", "n_states"), [(3, 2, 2), (4, 3, 1)])
def test_sparsemap_and_gradients_in_many_draws(length, longest, n_states, chained):
    check_sparsemap(case(length, longest, n_states, chained), SLOW, seed=1)
    check_gradients(case(length, longest, n_states, chained), SLOW, seed=1)
    check_probabilities(case(length, longest, n_states, chained), 2 * SLOW, seed=1)


def plain_best(segments, transitions):
    """Return the best score, by a recursion backwards over suffixes."""
    length, longest, n_states = segments.shape

    @functools.cache
    def suffix(t, before):
        if t == length:
            return 0.0
        return max(
            (0.0 if before is None else transitions[before, s])
            + segments[t, d, s]
            + suffix(t + d + 1, s)
            for d in range(min(longest, length - t))
            for s in range(n_states)
        )

    return suffix(0, None)


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize(("length", "longest", "n_states"), [(12, 12, 3), (40, 5, 6), (30, 8, 1)])
def test_longer_segmentations_agree_with_a_plain_recursion(
    rng, graph, run_oracle, length, longest, n_states, chained
):
    scores = rng.standard_normal((4, length, longest, n_states))
    transitions = rng.standard_normal((4, n_states, n_states)) * chained
    u = graph.variable(scores.shape)
    factor = SemiMarkov(u, transitions) if chained else SemiMarkov(u)
    eta_v = transitions.reshape(-1) if chained else np.empty(0)
    found_m, found_n = run_oracle(factor, scores.reshape(-1), eta_v)
    for b, (m, n) in enumerate(zip(found_m, found_n, strict=True)):
        found = m.reshape(scores.shape[1:])
        segments = row_view(factor, b).decode(found, n)["segments"]
        ends = [0, *(end for _, end, _ in segments)]
        assert [begin for begin, _, _ in segments] == ends[:-1]
        assert ends[-1] == length
        again_m, again_n = row_view(factor, b).vertex(tuple(map(tuple, segments)))
        assert (again_m == found).all()
        assert (again_n.reshape(-1) == n).all()
        score = (found * scores[b]).sum() + n @ transitions[b].reshape(-1)[: len(n)]
        assert score == pytest.approx(plain_best(scores[b], transitions[b]), abs=1e-11)


def test_ragged_batch_is_its_sequences(rng, graph, run_oracle):
    shape, lengths = (2, 3, 5, 3, 2), np.array([[5, 0, 1], [3, 4, 2]])
    scores, transitions = rng.standard_normal(shape), rng.standard_normal((2, 2))
    factor = SemiMarkov(graph.variable(shape), transitions, lengths=lengths)
    found_m, found_n = run_oracle(
        factor, slot_values(factor, scores), factor.additionals.reshape(-1)
    )
    for f, (b, c) in enumerate(itertools.product(range(2), range(3))):
        own = scores[b, c, : lengths[b, c]]
        y = row_view(factor, f).solve_map(own, transitions.reshape(-1))
        m, n = row_view(factor, f).vertex(y)
        assert m.shape == own.shape
        assert (found_m[f] == m.reshape(-1)).all()
        assert (found_n[f] == n.reshape(-1)).all()
        score = (m * own).sum() + (n * transitions).sum()
        assert score == pytest.approx(plain_best(own, transitions), abs=1e-12)


def test_segments_that_do_not_fit_are_zero(rng):
    graph = FactorGraph()
    u = graph.variable_from(10.0 + rng.standard_normal((4, 3, 2)))
    graph.add(SemiMarkov(u))
    graph.solve()
    ends = np.arange(4)[:, None] + np.arange(1, 4)
    assert (u.value[ends > 4] == 0.0).all()
    covered = [u.value[(np.arange(4)[:, None] <= t) & (ends > t)].sum() for t in range(4)]
    assert covered == pytest.approx([1.0] * 4)


def test_a_position_without_segments_left_is_infeasible():
    graph = FactorGraph()
    scores = np.zeros((2, 3, 2, 2))
    scores[0, 2] = scores[0, 1, 1] = -np.inf
    graph.add(SemiMarkov(graph.variable_from(scores), np.zeros((2, 2))))
    with pytest.warns(match="contradict"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE, Status.SOLVED]


def test_tensors_stay_differentiable(graph):
    torch = pytest.importorskip("torch")
    transitions = torch.zeros((2, 2), dtype=torch.float64, requires_grad=True)
    factor = SemiMarkov(graph.variable((3, 4, 2, 2)), transitions)
    factor.additionals.sum().backward()
    assert (transitions.grad == 3.0).all()


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((4, 3), {}, r"variables has shape \(4, 3\); expected at least 3 axes"),
        ((4, 0, 2), {}, r"variables has shape \(4, 0, 2\); expected positions, segment lengths"),
        ((4, 3, 0), {}, r"variables has shape \(4, 3, 0\); expected positions, segment lengths"),
        (
            (4, 3, 2),
            {"transitions": np.zeros((3, 3))},
            r"transitions has shape \(3, 3\); expected one that broadcasts to \(2, 2\)",
        ),
        ((5, 4, 3, 2), {"lengths": [1, 2, 3, 4, 5]}, r"lengths\[4\] is 5; expected 0 to 4"),
        ((5, 4, 3, 2), {"lengths": [1, 2]}, r"lengths has shape \(2,\); expected \(5,\)"),
    ],
)
def test_wrong_arguments_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=f"SemiMarkov: .*{message}"):
        SemiMarkov(graph.variable(shape), **arguments)


def test_rows_describe_all_segmentations() -> None:
    """Segments beyond the end are in no row of a position, and must not be free."""
    graph = FactorGraph()
    factor = graph.add(SemiMarkov(graph.variable((2, 3, 2))))
    known = factor.necessary_constraints()
    matrix = np.zeros((len(known.low), 12))
    matrix[known.row, known.column] = known.coefficient
    tried = np.array(list(itertools.product((0, 1), repeat=12)))
    sums = tried @ matrix.T
    meets = ((sums >= known.low) & (sums <= known.high)).all(axis=1)
    # two segments of one of two states each, or one segment
    assert meets.sum() == 2 * 2 + 2
