"""Calls of the earlier library: the same, or refused, never another answer without a word."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
import torch

import lpsmap
from lpsmap import FactorGraph, Pair, PFactorGraph, Sequence, SequenceBudget, TorchFactorGraph


@pytest.mark.parametrize("make", [FactorGraph, TorchFactorGraph])
def test_positional_options_of_solve_map_are_refused(make: type[FactorGraph]) -> None:
    """The earlier library's second one limits the active set; 10 was read as the tolerance."""
    graph = make()
    graph.add(lpsmap.Xor(graph.variable_from([0.1, 0.3])))
    with pytest.raises(TypeError, match="positional"):
        graph.solve_map(100, 10)
    with pytest.raises(TypeError, match="positional"):
        graph.solve(100, 10, 1e-6, 0.1, True, 0, 1)
    assert graph.solve(100, 10, 1e-6, 0.1, True, 0).ok
    assert graph.solve_map(100, max_inner_iter=10).ok


def test_positional_options_of_solve_are_those_of_the_earlier_library() -> None:
    kinds = inspect.signature(FactorGraph.solve).parameters.values()
    names = [p.name for p in kinds if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert names[1:] == ["max_iter", "max_inner_iter", "tol", "step_size", "adapt", "verbose"]


def test_pairs_by_the_earlier_names() -> None:
    scores, w = torch.tensor([0.9, 0.8, 0.1]), torch.tensor([-0.3, 0.2], requires_grad=True)
    found = []
    for named in (False, True):
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        if named:
            graph.add(Pair(vars_i=u[:-1], vars_j=u[1:], additionals=w))
        else:
            graph.add(Pair(u[:-1], u[1:], w))
        graph.solve()
        found.append([u.value.detach(), *torch.autograd.grad(u.value[0], w)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with pytest.raises(TypeError, match="both of first and vars_i; expected one"):
        Pair(u[:-1], u[1:], w, vars_i=u[:-1])
    with pytest.raises(TypeError, match="neither of scores and additionals; expected one"):
        Pair(u[:-1], u[1:])


def test_a_graph_lists_its_variables() -> None:
    graph = FactorGraph()
    blocks = [graph.variable_from([0.2, 0.1]), graph.variable((2, 3))]
    graph.add(lpsmap.Xor(blocks[0]))
    graph.solve()
    assert [u.shape for u in graph.variables] == [(2,), (2, 3)]
    np.testing.assert_array_equal(graph.variables[0].value, blocks[0].value)


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_additionals_of_sequences_in_four_forms(batch: tuple[int, ...], library: object) -> None:
    rng = np.random.default_rng(0)
    length, n_states = 4, 3
    square = rng.normal(size=(n_states, n_states))
    each = np.broadcast_to(square, (*batch, length - 1, n_states, n_states)).copy()
    ends, flat = np.zeros((*batch, n_states)), each.reshape(*batch, -1)
    full = np.concatenate([ends, flat, ends], axis=-1)
    shared = np.broadcast_to(square, (*batch, n_states, n_states)).reshape(*batch, -1)
    once = np.concatenate([ends, shared, ends], axis=-1)  # transitions of all steps
    u = FactorGraph().variable((*batch, length, n_states))
    for form, expected in ((square, once), (each, full), (flat, full), (full, full)):
        for sequence in (
            Sequence(u, additionals=library(form)),  # type: ignore[operator]
            Sequence(u, library(form)),  # type: ignore[operator]
            SequenceBudget(u, library(form), 2),  # type: ignore[operator]
        ):
            np.testing.assert_array_equal(np.asarray(sequence.additionals), expected)
    with pytest.raises(ValueError, match=r"additionals has shape \(\d.*; expected \("):
        Sequence(u, additionals=library(full[..., 1:]))  # type: ignore[operator]


def test_a_graph_of_single_variables_agrees_with_enumeration() -> None:
    """All kinds of factors, one with negations, and a table over variables of several states."""
    rng = np.random.default_rng(3)
    scores, table = rng.normal(size=8), rng.normal(size=(2, 2))
    graph = PFactorGraph()
    x = [graph.create_binary_variable() for _ in range(4)]
    for variable, score in zip(x, scores, strict=False):
        variable.set_log_potential(score)
    y = [graph.create_multi_variable(2) for _ in range(2)]
    for (variable, state), score in zip(itertools.product(y, range(2)), scores[4:], strict=True):
        variable.set_log_potential(state, score)
    graph.create_factor_logic("OR", x[:3], negated=[True, False, True])
    graph.create_factor_logic("IMPLY", [x[0], y[0].get_state(1)])
    graph.create_factor_budget(x, 2)
    graph.create_factor_knapsack(x[1:], [1.0, 2.0, 3.0], 4.0)
    graph.create_factor_pair([x[1], x[3]], 0.8)
    graph.create_factor_dense(y, table.reshape(-1).tolist())
    graph.fix_multi_variables_without_factors()

    def total(a: tuple[int, ...], s: tuple[int, int]) -> float:
        allowed = (
            (not a[0] or a[1] or not a[2])
            and (not a[0] or s[0] == 1)
            and sum(a) <= 2
            and a[1] + 2 * a[2] + 3 * a[3] <= 4
        )
        value = scores[:4] @ np.array(a) + scores[4 + s[0]] + scores[6 + s[1]] + table[s]
        return float(value + 0.8 * a[1] * a[3]) if allowed else -np.inf

    choices = itertools.product(
        itertools.product((0, 1), repeat=4), itertools.product((0, 1), repeat=2)
    )
    best, (a, s) = max((total(a, s), (a, s)) for a, s in choices)
    graph.set_residual_threshold_ad3(1e-8)
    value, posteriors, additionals, status = graph.solve_exact_map_ad3()
    assert value == pytest.approx(best, abs=1e-12)
    assert posteriors == [*a, *np.eye(2)[s[0]], *np.eye(2)[s[1]]]
    assert additionals == [a[1] * a[3], *(np.arange(4) == 2 * s[0] + s[1])]
    assert status == 0
    relaxed = graph.solve_lp_map_ad3()
    assert relaxed[0] >= best - 1e-6
    solved = graph.solve_qp_ad3()
    assert len(solved[1]) == 8
    assert solved[3] in (0, 1)


def test_what_contradicts_has_the_earlier_status() -> None:
    graph = PFactorGraph()
    x = [graph.create_binary_variable() for _ in range(2)]
    graph.create_factor_logic("XOR", x)
    graph.create_factor_logic("XOR", x[:1])
    graph.create_factor_logic("XOR", x[1:])
    with pytest.warns(lpsmap.ConvergenceWarning):
        assert graph.solve_exact_map_ad3()[3] == 2
    with pytest.raises(ValueError, match="factor_type is 'NAND'; expected one of XOR, OR"):
        graph.create_factor_logic("NAND", x)
    with pytest.raises(ValueError, match="got 1 flags for 2 variables"):
        graph.create_factor_logic("XOR", x, negated=[True])
