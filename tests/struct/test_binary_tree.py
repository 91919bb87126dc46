"""Binary trees against enumeration, a plain recursion and the judge."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import row_view, slot_values
from lpsmap_factors_struct import BinaryTree

NOTHING = np.empty(0)


def bracketings(i, j):
    """All sets of spans of binary trees over words i to j."""
    if i == j:
        yield ((i, j),)
    for k in range(i, j):
        for left, right in itertools.product(bracketings(i, k), bracketings(k + 1, j)):
            yield ((i, j), *left, *right)


@functools.cache
def case(n, n_labels=None):
    """All trees of `n` words, with every choice of labels."""
    labelled = n_labels is not None
    shape = (n, n, n_labels) if labelled else (n, n)
    trees = []
    for spans in bracketings(0, n - 1):
        for labels in itertools.product(range(n_labels or 1), repeat=2 * n - 1):
            tree = np.zeros((n, n, n_labels or 1))
            for (i, j), label in zip(spans, labels, strict=True):
                tree[i, j, label] = 1.0
            trees.append(tree.reshape(shape))
    return Case(lambda u, eta_v: BinaryTree(u, labelled), shape, np.array(trees))


SIZES = [(n, None) for n in (1, 2, 3, 4, 5)] + [(1, 3), (2, 2), (3, 2)]
"""Numbers of words and of labels."""


@pytest.mark.parametrize(("n", "n_labels"), SIZES)
def test_best_tree_is_the_best_of_all(draws, n, n_labels):
    check_oracle(case(n, n_labels), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "n_labels"), [*SIZES, (6, None), (4, 2)])
def test_best_tree_is_the_best_of_all_in_many_draws(n, n_labels):
    check_oracle(case(n, n_labels), SLOW, seed=1)


@pytest.mark.parametrize(("n", "n_labels"), [(2, None), (4, None), (5, None), (3, 2)])
def test_sparsemap_and_gradients(draws, n, n_labels):
    check_sparsemap(case(n, n_labels), 1 + draws // 40)
    check_gradients(case(n, n_labels), draws // 10)
    check_probabilities(case(n, n_labels), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "n_labels"), [(4, None), (5, None), (3, 2)])
def test_sparsemap_and_gradients_in_many_draws(n, n_labels):
    check_sparsemap(case(n, n_labels), SLOW, seed=1)
    check_gradients(case(n, n_labels), SLOW, seed=1)
    check_probabilities(case(n, n_labels), 2 * SLOW, seed=1)


def plain_best(scores):
    """Return the best score, by a recursion over spans."""
    best_label = scores.reshape(*scores.shape[:2], -1).max(axis=-1)

    @functools.cache
    def inside(i, j):
        if i == j:
            return best_label[i, j]
        return best_label[i, j] + max(inside(i, k) + inside(k + 1, j) for k in range(i, j))

    return inside(0, len(scores) - 1)


def is_tree(spans, n):
    """Whether spans in the order of `decode` are a binary tree: each splits into the next ones."""
    rest = [tuple(span) for span in spans][::-1]

    def parse(i, j):
        if not rest or rest.pop() != (i, j):
            return False
        if i == j:
            return True
        middle = rest[-1][1]
        return parse(i, middle) and parse(middle + 1, j)

    return parse(0, n - 1) and not rest


@pytest.mark.parametrize("n_labels", [None, 3])
@pytest.mark.parametrize("n", [7, 12, 25, 40])
def test_larger_trees_agree_with_a_plain_recursion(rng, graph, run_oracle, n, n_labels):
    shape = (n, n) if n_labels is None else (n, n, n_labels)
    scores = rng.standard_normal((3, *shape))
    factor = BinaryTree(graph.variable(scores.shape), labelled=n_labels is not None)
    found, _ = run_oracle(factor, scores.reshape(-1), NOTHING)
    for b, m in enumerate(found):
        spans = row_view(factor, b).decode(m.reshape(shape), NOTHING)["spans"]
        assert is_tree(spans, n)
        assert len(spans) == 2 * n - 1
        assert m @ scores[b].reshape(-1) == pytest.approx(plain_best(scores[b]), abs=1e-11)


@pytest.mark.parametrize(
    "crossing",
    [
        pytest.param([(0, 2), (2, 4)], id="neighbours"),
        pytest.param([(0, 2), (1, 3), (2, 4), (3, 4), (1, 4)], id="many"),
    ],
)
def test_large_scores_that_contradict_each_other(graph, run_oracle, crossing):
    scores = np.zeros((5, 5))
    for span, weight in zip(crossing, (1e6, 1.1e6, 1.2e6, 1.3e6, 1.4e6), strict=False):
        scores[span] = weight
    [m], _ = run_oracle(BinaryTree(graph.variable((5, 5))), scores.reshape(-1), NOTHING)
    assert m @ scores.reshape(-1) == plain_best(scores)


def test_ragged_batch_is_its_sentences(rng, graph, run_oracle):
    shape, lengths = (2, 3, 5, 5, 2), np.array([[5, 0, 1], [3, 4, 2]])
    scores = rng.standard_normal(shape)
    factor = BinaryTree(graph.variable(shape), labelled=True, lengths=lengths)
    found, _ = run_oracle(factor, slot_values(factor, scores), NOTHING)
    for f, (b, c) in enumerate(itertools.product(range(2), range(3))):
        n = lengths[b, c]
        own = scores[b, c, :n, :n]
        m, _ = row_view(factor, f).vertex(row_view(factor, f).solve_map(own, NOTHING))
        assert m.shape == own.shape
        assert (found[f] == m.reshape(-1)).all()
        assert (m * own).sum() == pytest.approx(plain_best(own) if n else 0.0, abs=1e-12)


def test_labels_come_with_their_spans(graph):
    factor = BinaryTree(graph.variable((2, 2, 3)), labelled=True)
    y = ((0, 1, 2), (0, 0, 1), (1, 1, 0))
    variables, _ = factor.vertex(y)
    assert factor.decode(variables, NOTHING) == {
        "spans": [[0, 1], [0, 0], [1, 1]],
        "labels": [2, 1, 0],
    }


def test_spans_that_end_before_they_begin_are_zero(rng):
    graph = FactorGraph()
    u = graph.variable_from(10.0 + rng.standard_normal((4, 4)))
    graph.add(BinaryTree(u))
    graph.solve()
    assert (np.tril(u.value, -1) == 0.0).all()
    assert (u.value.diagonal() == 1.0).all()
    assert u.value.sum() == pytest.approx(7.0)


def test_a_sentence_without_trees_left_is_infeasible():
    graph = FactorGraph()
    scores = np.zeros((2, 3, 3))
    scores[0, 0] = -np.inf
    graph.add(BinaryTree(graph.variable_from(scores)))
    with pytest.warns(match="contradict"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE, Status.SOLVED]


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((3,), {}, r"variables has shape \(3,\); expected at least 2 axes"),
        ((3, 4), {}, r"variables has shape \(3, 4\); expected equal last two axes"),
        (
            (3, 4, 2),
            {"labelled": True},
            r"\(3, 4, 2\); expected equal axes before the labels",
        ),
        ((3, 3, 0), {"labelled": True}, r"shape \(3, 3, 0\); expected at least one label"),
        ((2, 3, 3), {"lengths": [1, 4]}, r"lengths\[1\] is 4; expected 0 to 3"),
        ((2, 3, 3), {"lengths": [[3, 3], [3, 2]]}, r"factor 1 are \(3, 2\); expected equal ones"),
    ],
)
def test_wrong_arguments_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=f"BinaryTree: .*{message}"):
        BinaryTree(graph.variable(shape), **arguments)
