"""Dependency trees against enumeration, other algorithms and the quadratic program's judge."""

from __future__ import annotations

import functools
import itertools

import networkx
import numpy as np
import pytest

import judges
from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Scores, Structures
from lpsmap_core.api import build_layout, row_view, slot_values
from lpsmap_factors_struct import DepTree

NOTHING = np.empty(0)

KINDS = [
    pytest.param(projective, single_root, id=f"{'' if projective else 'non'}projective-{roots}")
    for projective in (False, True)
    for single_root, roots in ((False, "multi-root"), (True, "single-root"))
]


@functools.cache
def all_heads(n, projective, single_root):
    heads = judges.tree_heads(n, single_root=single_root)
    if projective:
        heads = [tree for tree in heads if is_projective(tree)]
    return np.array(heads, dtype=np.int64).reshape(len(heads), n)


def is_projective(heads):
    """By its first definition: the words between a head and its dependent descend from the head."""

    def ancestors(word):
        while heads[word] != word:
            yield word
            word = heads[word]
        yield word

    return all(
        head in ancestors(between)
        for word, head in enumerate(heads)
        for between in range(min(word, head) + 1, max(word, head))
    )


def is_tree(heads):
    for word in range(len(heads)):
        steps = 0
        while heads[word] != word:
            word, steps = heads[word], steps + 1
            if steps > len(heads):
                return False
    return True


def heads_of(packed_vertex, n):
    vertex = packed_vertex.reshape(n, n)
    assert (vertex.sum(axis=1) == 1).all()
    return tuple(vertex.argmax(axis=1).tolist())


def to_unpacked(scores):
    """The root's arc first, then the other words' in order."""
    n = scores.shape[-1]
    words = np.arange(n)
    others = np.array([np.delete(words, m) for m in words], dtype=int).reshape(n, n - 1)
    root = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]
    rest = np.take_along_axis(scores, np.broadcast_to(others, (*scores.shape[:-1], n - 1)), axis=-1)
    return np.concatenate([root, rest], axis=-1)


def score_of(scores, heads):
    return scores[np.arange(len(heads)), heads].sum()


def case(n, projective, single_root, packed=True, n_labels=None):
    """All trees of `n` words, with every choice of labels."""
    trees = np.eye(n)[all_heads(n, projective, single_root)]
    if not packed:
        trees = to_unpacked(trees)
    shape, labelled = (n, n), n_labels is not None
    if labelled:
        shape = (n, n, n_labels)
        choices = list(itertools.product(np.eye(n_labels), repeat=n))
        labels = np.array(choices).reshape(-1, 1, n, 1, n_labels)
        trees = (labels * trees[..., None]).reshape(-1, *shape)
    options = {"projective": projective, "single_root": single_root, "labelled": labelled}
    return Case(lambda u, eta_v: DepTree(u, packed, **options), shape, trees)


SIZES = [(n, None) for n in (1, 2, 3, 4, 5)] + [(1, 3), (2, 2), (3, 2), (4, 2)]
"""Numbers of words and of labels."""


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("n", "n_labels"), SIZES)
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_best_tree_is_the_best_of_all(draws, projective, single_root, n, n_labels, packed):
    check_oracle(case(n, projective, single_root, packed, n_labels), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("n", "n_labels"), [*SIZES, (6, None)])
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_best_tree_is_the_best_of_all_in_many_draws(projective, single_root, n, n_labels, packed):
    check_oracle(case(n, projective, single_root, packed, n_labels), SLOW, seed=1)


@pytest.mark.parametrize("n", [7, 12, 25, 40])
@pytest.mark.parametrize("single_root", [False, True])
def test_larger_trees_agree_with_networkx(rng, graph, run_oracle, n, single_root):
    scores = rng.integers(-50, 50, size=(2, n, n)).astype(float)
    factor = DepTree(graph.variable(scores.shape), single_root=single_root)
    found, _ = run_oracle(factor, scores.reshape(-1), NOTHING)
    for row, vertex in enumerate(found):
        arcs = networkx.DiGraph()
        for word, head in itertools.product(range(n), repeat=2):
            is_root = word == head
            # integers, hence exact in spite of the penalty
            weight = scores[row, word, head] - (1e6 if is_root and single_root else 0)
            arcs.add_edge("root" if is_root else head, word, weight=weight)
        tree = networkx.maximum_spanning_arborescence(arcs, preserve_attrs=True)
        best = tree.size("weight") + (1e6 if single_root else 0)
        heads = heads_of(vertex, n)
        assert is_tree(heads)
        assert score_of(scores[row], heads) == best
        assert not single_root or sum(head == word for word, head in enumerate(heads)) == 1


def test_worst_case_of_nested_cycles(graph, run_oracle):
    """Words attract each other the more the closer they are: cycles in cycles, to the end."""
    n = 40
    position = np.cumsum(1.0 + np.arange(n))
    scores = -np.abs(position[:, None] - position)
    np.fill_diagonal(scores, -1e5 - np.arange(n))
    found, _ = run_oracle(DepTree(graph.variable((n, n))), scores.reshape(-1), NOTHING)
    # a minimum spanning tree of points on a line is the chain; the first word has the best root arc
    assert heads_of(found[0], n) == (0, *range(n - 1))


def best_projective(scores, single_root):
    """Plain recursion over spans and all their heads."""
    n = len(scores)

    @functools.cache
    def span(i, j, head):
        return children(i, head, head) + children(head + 1, j, head)

    @functools.cache
    def children(i, j, head):
        """Words i .. j - 1 as neighbouring subtrees of one head."""
        if i == j:
            return 0.0
        return max(subtree(i, k, head) + children(k, j, head) for k in range(i + 1, j + 1))

    @functools.cache
    def subtree(i, j, head):
        return max(
            span(i, j, child) + scores[child, child if head == n else head] for child in range(i, j)
        )

    return subtree(0, n, n) if single_root else children(0, n, n)


@pytest.mark.parametrize("n", [6, 10, 13])
@pytest.mark.parametrize("single_root", [False, True])
def test_larger_projective_trees_agree_with_a_plain_recursion(
    rng, graph, run_oracle, n, single_root
):
    scores = rng.standard_normal((10, n, n))
    scores[5:] = rng.integers(-2, 3, size=(5, n, n))
    factor = DepTree(graph.variable(scores.shape), projective=True, single_root=single_root)
    found, _ = run_oracle(factor, scores.reshape(-1), NOTHING)
    for row, vertex in enumerate(found):
        heads = heads_of(vertex, n)
        assert is_tree(heads)
        assert is_projective(heads)
        best = best_projective(scores[row], single_root)
        assert score_of(scores[row], heads) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_unpacked_is_packed_in_another_order(
    rng, draws, graph, run_oracle, projective, single_root
):
    options = {"projective": projective, "single_root": single_root}
    for n in (1, 2, 6):
        scores = rng.standard_normal((draws // 10, n, n))
        u = graph.variable(scores.shape)
        packed, _ = run_oracle(DepTree(u, **options), scores.reshape(-1), NOTHING)
        factor = DepTree(u, packed=False, **options)
        unpacked, _ = run_oracle(factor, to_unpacked(scores).reshape(-1), NOTHING)
        for one, other, row in zip(packed, unpacked, scores, strict=True):
            assert (to_unpacked(one.reshape(n, n)) == other.reshape(n, n)).all()
            heads = row_view(factor, 0).solve_map(to_unpacked(row), NOTHING)
            assert heads == heads_of(one, n)
            m, extra = row_view(factor, 0).vertex(heads)
            assert (m == other.reshape(n, n)).all()
            assert len(extra) == 0


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_ragged_batch_is_its_sentences(rng, graph, run_oracle, packed, projective, single_root):
    lengths = np.array([[3, 0, 6], [1, 6, 2]])
    scores = rng.standard_normal((2, 3, 6, 6))
    factor = DepTree(
        graph.variable(scores.shape), packed, projective, single_root=single_root, lengths=lengths
    )
    found, _ = run_oracle(factor, slot_values(factor, scores), NOTHING)
    for f, (length, sentence) in enumerate(
        zip(lengths.reshape(-1), scores.reshape(-1, 6, 6), strict=True)
    ):
        alone = DepTree(
            graph.variable((length, length)), packed, projective, single_root=single_root
        )
        heads = row_view(alone, 0).solve_map(sentence[:length, :length], NOTHING)
        assert (found[f] == row_view(alone, 0).vertex(heads)[0].reshape(-1)).all()


def test_oracle_leaves_other_rows_alone(rng, graph):
    scores = rng.standard_normal((3, 4, 4))
    trees = DepTree(graph.variable((3, 4, 4)))
    factors = build_layout(graph.n_variables, [trees]).buckets[0].factors
    entry, value = np.full(12, -7, dtype=np.int32), np.full(12, -7.0)
    size, start = np.full(3, -7), 4 * np.arange(3)
    structures = Structures(start, entry, value, size)
    DepTree.map_kernel(np.array([1]), factors, Scores(scores.reshape(-1), NOTHING), structures)
    assert size.tolist() == [-7, 4, -7]
    assert (entry[:4] == -7).all()
    assert (entry[8:] == -7).all()
    assert (value[4:8] == 1).all()


SMALL = [(4, None, True), (4, None, False), (3, 2, True), (2, 3, False)]
"""Numbers of words and of labels, and whether packed, for what asks a judge."""


@pytest.mark.parametrize(("n", "n_labels", "packed"), SMALL)
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_sparsemap_and_gradients(draws, projective, single_root, n, n_labels, packed):
    trees = case(n, projective, single_root, packed, n_labels)
    check_sparsemap(trees, 1 + draws // 40)
    check_gradients(trees, draws // 10)
    check_probabilities(trees, draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "n_labels", "packed"), SMALL[::2])
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_sparsemap_and_gradients_in_many_draws(projective, single_root, n, n_labels, packed):
    trees = case(n, projective, single_root, packed, n_labels)
    check_sparsemap(trees, SLOW, seed=1)
    check_gradients(trees, SLOW, seed=1)
    check_probabilities(trees, 2 * SLOW, seed=1)


@pytest.mark.parametrize("packed", [True, False])
def test_best_label_of_an_arc_is_part_of_the_tree(rng, packed):
    scores = rng.standard_normal((5, 5, 3))
    graph = FactorGraph()
    labelled = row_view(DepTree(graph.variable(scores.shape), packed, labelled=True), 0)
    plain = row_view(DepTree(graph.variable((5, 5)), packed), 0)
    tree = labelled.solve_map(scores, NOTHING)
    assert tuple(head for head, _ in tree) == plain.solve_map(scores.max(axis=-1), NOTHING)
    decoded = labelled.decode(*labelled.vertex(tree))
    heads = plain.decode(*plain.vertex(tuple(head for head, _ in tree)))["heads"]
    assert decoded == {"heads": heads, "labels": [label for _, label in tree]}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("n", [0, 1, 3, 4])
def test_trees_are_decoded_to_heads(graph, n, packed):
    factor = row_view(DepTree(graph.variable((n, n)), packed), 0)
    for tree in all_heads(n, False, False):
        heads = [-1 if head == word else head for word, head in enumerate(tree.tolist())]
        assert factor.decode(*factor.vertex(tuple(tree.tolist()))) == {"heads": heads}


def test_forbidden_arcs_get_nothing(rng, graph):
    scores = rng.standard_normal((20, 5, 5))
    forbidden = rng.random(scores.shape) < 0.3
    forbidden[:, np.arange(5), np.arange(5)] = False
    u = graph.variable_from(np.where(forbidden, -np.inf, scores))
    graph.add(DepTree(u))
    graph.solve()
    assert np.abs(u.value[forbidden]).max() == 0
    assert np.abs(u.value.sum(axis=-1) - 1).max() <= 1e-9


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("projective", "single_root"), KINDS)
def test_non_finite_scores_end_in_some_answer(rng, graph, projective, single_root):
    """The engine never asks; but a kernel must not leave its memory, or hang, if somebody does."""
    factor = DepTree(graph.variable((9, 9)), projective=projective, single_root=single_root)
    for bad in (-np.inf, np.nan, np.inf):
        for share in (0.1, 0.5, 1.0):
            scores = np.where(rng.random((9, 9)) < share, bad, rng.standard_normal((9, 9)))
            heads = row_view(factor, 0).solve_map(scores, NOTHING)
            assert all(0 <= head < 9 for head in heads)


def test_sentences_of_no_words(rng, graph):
    u = graph.variable_from(rng.standard_normal((2, 3, 3)))
    factor = graph.add(DepTree(u, lengths=[0, 2]))
    graph.solve()
    assert u.value[1, :2, :2].sum() == pytest.approx(2.0)
    assert row_view(factor, 0).solve_map(np.empty((0, 0)), NOTHING) == ()
    assert row_view(factor, 0).vertex(())[0].shape == (0, 0)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4,), {}, "DepTree: variables has shape .4,.; expected at least 2 axes"),
        ((3, 4), {}, "DepTree: variables has shape .3, 4.; expected equal last two axes"),
        ((3, 4, 2), {"labelled": True}, "shape .3, 4, 2.; expected equal axes before the labels"),
        ((3, 3, 0), {"labelled": True}, "shape .3, 3, 0.; expected at least one label"),
        ((3, 3), {"labelled": True}, "shape .3, 3.; expected at least 3 axes"),
        ((2, 3, 3), {"lengths": [1, 4]}, "DepTree: lengths.1. is 4; expected 0 to 3"),
        ((2, 3, 3), {"lengths": [[2, 3], [3, 3]]}, "factor 0 are .2, 3.; expected equal ones"),
        ((2, 3, 3), {"lengths": [-1, 3]}, "DepTree: lengths.0. is -1; expected 0 to 3"),
        ((2, 3, 3), {"lengths": [1]}, "DepTree: lengths has shape .1,.; expected .2,."),
    ],
)
def test_wrong_arguments_are_named(graph, shape, options, message):
    with pytest.raises(ValueError, match=message):
        DepTree(graph.variable(shape), **options)
