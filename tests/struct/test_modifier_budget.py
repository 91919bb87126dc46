"""Limits on the modifiers of heads: both layouts of trees, batches, lengths, labels, the root."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from lpsmap import Budget, DepTree, FactorGraph, ModifierBudget
from lpsmap_core.api import row_view
from lpsmap_decode import NamedGraph, read_graph, write_graph

N = 4


def arcs_from(u, head, packed):
    """Return the arcs that leave a head (None for the root), picked one by one."""
    n = u.shape[-1]
    words = [m for m in range(n) if m != head]
    if packed:
        columns = [m if head is None else head for m in words]
    else:
        columns = [0 if head is None else head + (head < m) for m in words]
    return u[..., words, columns]


def solved(scores, packed, *make, lengths=None):
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u, packed=packed, lengths=lengths))
    for factor in make:
        graph.add(factor(u))
    solution = graph.solve(tol=1e-10, max_iter=10000)
    assert solution.ok
    return u.value, solution


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_budgets_of_heads_are_those_of_the_arcs_picked_by_hand(packed, batch):
    scores = 2.0 * np.random.default_rng(0).normal(size=(*batch, N, N))
    most = [1, 2, 0, 3]
    by_hand = [lambda u, h=h: Budget(arcs_from(u, h, packed), most[h]) for h in range(N)]
    by_hand.append(lambda u: Budget(arcs_from(u, None, packed), 2))
    expected, _ = solved(scores, packed, *by_hand)
    found, _ = solved(
        scores, packed, lambda u: ModifierBudget(u, most, packed=packed, root_budget=2)
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)
    free, _ = solved(scores, packed)
    assert np.abs(free - expected).max() > 0.1


def head_of(packed, m, column):
    if packed:
        return None if column == m else column
    return None if column == 0 else column - (column <= m)


@pytest.mark.parametrize("packed", [True, False])
def test_the_best_tree_within_budgets_is_that_of_enumeration(packed):
    rng = np.random.default_rng(1)
    for _ in range(5):
        scores = rng.normal(size=(N, N))
        scores[:, 1] += 2.0
        best = -np.inf
        for columns in itertools.product(range(N), repeat=N):
            heads = [head_of(packed, m, c) for m, c in enumerate(columns)]
            if is_tree(heads) and all(heads.count(h) <= 1 for h in range(N)):
                best = max(best, sum(scores[m, c] for m, c in enumerate(columns)))
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, packed=packed))
        graph.add(ModifierBudget(u, 1, packed=packed))
        found = graph.solve_map(exact=True)
        assert found.score[0] == pytest.approx(best, abs=1e-9)


def is_tree(heads):
    for word in range(len(heads)):
        seen, at = set(), word
        while at is not None and at not in seen:
            seen.add(at)
            at = heads[at]
        if at is not None:
            return False
    return True


@pytest.mark.parametrize("packed", [True, False])
def test_lengths_are_those_of_the_trees(packed):
    scores = 2.0 * np.random.default_rng(2).normal(size=(3, 5, 5))
    lengths = [5, 3, 1]
    found, _ = solved(
        scores,
        packed,
        lambda u: ModifierBudget(u, 1, packed=packed, root_budget=[2, 1, 1], lengths=lengths),
        lengths=lengths,
    )
    for b, (n, root) in enumerate(zip(lengths, [2, 1, 1], strict=True)):
        alone, _ = solved(
            scores[b, :n, :n],
            packed,
            lambda u, root=root: ModifierBudget(u, 1, packed=packed, root_budget=root),
        )
        np.testing.assert_allclose(found[b, :n, :n], alone, atol=1e-8)


def test_labels_share_the_budget_of_their_head():
    graph = FactorGraph()
    scores = np.random.default_rng(3).normal(size=(N, N, 2))
    u = graph.variable_from(scores)
    graph.add(DepTree(u, labelled=True))
    graph.add(ModifierBudget(u, 1, labelled=True))
    graph.solve(tol=1e-9)
    marginals = u.value.sum(axis=-1)
    off = ~np.eye(N, dtype=bool)
    assert (marginals * off).sum(axis=0).max() <= 1.0 + 1e-7


def test_factors_are_the_words_and_then_the_root():
    factor = ModifierBudget(FactorGraph().variable((2, 3, 3)), [2, 1, 9], root_budget=1)
    assert factor.batch_shape == (2, 4)
    assert factor.budget.reshape(2, 4).tolist() == [[2, 1, 2, 1]] * 2  # two modifiers at most
    row = row_view(factor, 1)
    assert row.decode(*row.vertex(row.solve_map(np.array([1.0, 2.0]), np.empty(0)))) == {
        "modifiers": [2]
    }
    assert row_view(factor, 7).decode(np.array([0.0, 1.0, 0.0]), np.empty(0)) == {"modifiers": [1]}


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((2, 3), {"budget": 1}, r"shape \(2, 3\); expected equal last two axes"),
        ((3,), {"budget": 1}, r"shape \(3,\); expected equal last two axes"),
        ((3, 2, 2), {"budget": 1, "labelled": True}, "equal axes before the labels"),
        ((2, 3, 3), {"budget": -1}, "budget of head 0 of sentence 0 is -1; expected a whole"),
        ((3, 3), {"budget": [1, 0.5, 2]}, "budget of head 1 is 0.5; expected a whole number"),
        ((3, 3), {"budget": 1, "root_budget": -2}, "budget of the root is -2; expected a whole"),
        ((3, 3), {"budget": [1, 2]}, "budget has shape .*broadcasts to"),
        ((2, 3, 3), {"budget": 1, "lengths": [4, 1]}, r"lengths\[0\] is 4; expected 0 to 3"),
    ],
)
def test_what_does_not_fit_is_refused(shape, arguments, message):
    with pytest.raises(ValueError, match=f"ModifierBudget: .*{message}"):
        ModifierBudget(FactorGraph().variable(shape), **arguments)


def test_the_root_has_a_number_not_a_truth_value():
    with pytest.raises(TypeError, match=r"ModifierBudget: root_budget .*expected"):
        ModifierBudget(FactorGraph().variable((3, 3)), 1, root_budget=True)


@pytest.mark.parametrize("n", [0, 1])
def test_sentences_of_no_words_and_of_one(n):
    for root in (None, 1):
        u, solution = solved(
            np.zeros((2, n, n)), True, lambda u, root=root: ModifierBudget(u, 1, root_budget=root)
        )
        assert u.shape == (2, n, n)
        assert solution.ok


@pytest.mark.parametrize("kind", [DepTree, Budget])
def test_docstrings_lead_to_it(kind):
    """A `Budget` over rows beside a tree never binds, and one over columns counts the root."""
    assert "ModifierBudget" in kind.__doc__


def test_json_keeps_budgets_of_heads(tmp_path):
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(4).normal(size=(2, 3, 3)))
    graph.add(DepTree(u, packed=False, lengths=[3, 2]))
    graph.add(ModifierBudget(u, [2, 1, 1], packed=False, root_budget=1, lengths=[3, 2]))
    path = tmp_path / "trees.json"
    write_graph(NamedGraph(graph, {"u": u}), path)
    assert json.loads(path.read_text())["factors"][1]["type"] == "ModifierBudget"
    again = read_graph(path).graph
    np.testing.assert_array_equal(again.solve_map().objective, graph.solve_map().objective)
