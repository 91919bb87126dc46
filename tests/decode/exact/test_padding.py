"""Variables beyond lengths: off in every answer. Entries outside a mask, and others, are free."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import Budget, DepTree, FactorGraph, Sequence, Xor

SCORES = np.array([[1.0, 2.0, 5.0], [0.3, 0.2, 3.0]])
INSIDE = np.array([[True, True, False], [True, False, False]])


def padded() -> tuple[FactorGraph, Xor]:
    graph = FactorGraph()
    return graph, graph.add(Xor(graph.variable_from(SCORES), lengths=[2, 1]))


def test_padding_is_off_in_every_answer() -> None:
    graph, factor = padded()
    u, best = factor.variables, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    for temperature in (1.0, 9.0):
        graph.solve(temperature=temperature)
        assert not u.value[~INSIDE].any()
    assert graph.solve().decode().value_of(u).tolist() == best
    graph.solve_map()
    assert u.value.tolist() == best
    found = graph.solve_map(exact=True)
    assert u.value.tolist() == best
    assert found.ok
    assert found.total == pytest.approx(2.3)
    samples = graph.gibbs().sample(20, seed=0).values.reshape(20, 2, 3)
    assert not samples[:, ~INSIDE].any()


def test_the_k_best_differ_within_the_lengths() -> None:
    graph, factor = padded()
    found = graph.k_best(9)
    assert [entry.total for entry in found] == pytest.approx([2.3, 1.3])
    assert not any(entry.value_of(factor.variables)[~INSIDE].any() for entry in found)


def test_padding_has_no_gradient_and_may_hold_anything() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.where(INSIDE, SCORES, [[0.0, 0.0, np.nan], [0.0, np.inf, 0.5]]))
    graph.add(Xor(u, lengths=[2, 1]))
    solution = graph.solve()
    assert not u.value[~INSIDE].any()
    gradient, _ = solution.vjp(np.ones(6))
    assert not gradient.reshape(2, 3)[~INSIDE].any()
    assert graph.solve_map(exact=True).ok


def test_a_factor_over_the_padding_of_another_has_it() -> None:
    graph, factor = padded()
    graph.add(Budget(factor.variables[:, 2], 1))
    graph.solve_map(exact=True)
    assert factor.variables.value[:, 2].tolist() == [1.0, 0.0]


def test_tags_and_heads_beyond_the_lengths_are_off() -> None:
    for kind, arguments in ((Sequence, (np.eye(4),)), (DepTree, ())):
        graph = FactorGraph()
        u = graph.variable_from(np.ones((2, 4, 4)))
        graph.add(kind(u, *arguments, lengths=[4, 2]))
        graph.solve_map(exact=True)
        assert u.value[0].sum(axis=-1).tolist() == [1.0] * 4
        assert u.value[1].sum() == 2.0


def test_a_table_of_numbers_can_be_filled_with_any() -> None:
    graph = FactorGraph()
    u = graph.variable_from([3.0, 1.0, 2.0])
    members = np.array([[1, 2, 0], [2, 0, 0]])  # 0 fills the rows, and is free
    graph.add(Budget(u[members], 1, lengths=[2, 1]))
    graph.solve_map(exact=True)
    assert u.value.tolist() == [1.0, 0.0, 1.0]


def test_what_masks_leave_out_is_free() -> None:
    graph = FactorGraph()
    u = graph.variable_from(SCORES)
    graph.add(Xor(u, mask=INSIDE))
    graph.solve_map(exact=True)
    assert u.value[~INSIDE].all()
