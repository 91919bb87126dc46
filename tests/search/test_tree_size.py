"""Knuth's estimate of the size of search trees, against searches that end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from brute_force import best_likelihood
from lpsmap_decode import Evaluation, Search, Space, Unfinished
from lpsmap_search import Corpus, DependencyModelWithValence, TreeSize, tree_size
from lpsmap_search.lagrangian_space import LagrangianSpace


class Uneven(Space[int, int]):
    """Nodes are depths: the first child of a node goes two steps down, and the second one."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def root(self) -> int:
        return 0

    def evaluate(self, nodes: Sequence[int], score: float) -> list[Evaluation[int, int]]:
        return [
            Evaluation(1.0, (node + 2, node + 1)) if node < self.depth else Evaluation(0.0)
            for node in nodes
        ]


def test_estimates_of_an_uneven_tree_have_its_size_as_mean() -> None:
    space = Uneven(8)
    exact = Search(space.root(), 0.0, (0.0, 0)).run(space).n_nodes
    found = tree_size(space, 0.0, gap=0.0, n_dives=3000, seed=1)
    assert 0.0 < found.n_nodes_error < 0.05 * exact
    assert found.n_nodes == pytest.approx(exact, abs=5.0 * found.n_nodes_error)
    assert found.n_dives == 3000
    # a dive takes steps of one or two levels, from the root that all of them share
    assert 4 * 3000 < found.n_visited <= 8 * 3000 + 1


def paper_space(corpus: Corpus, gap: float) -> Space[Any, Any]:
    pytest.importorskip("highspy")
    from lpsmap_search.paper import McCormickOptions, McCormickSpace

    return McCormickSpace(corpus, gap, McCormickOptions(products="objective"))


def chord_space(corpus: Corpus, gap: float) -> Space[Any, Any]:
    pytest.importorskip("highspy")
    from lpsmap_search.chord_space import ChordSpace

    return ChordSpace(corpus, gap)


@pytest.mark.parametrize(
    ("make", "sentences"),
    [
        (LagrangianSpace, ["aab", "abb", "ba"]),
        (chord_space, ["aab", "abb", "ba"]),
        (paper_space, ["ba", "aa"]),
    ],
    ids=["lagrangian", "chord", "paper"],
)
def test_estimates_agree_with_searches_that_end(make: Any, sentences: list[str]) -> None:
    """The search begins with the best answer, so that it prunes as the dives do."""
    corpus, gap, n_dives = Corpus(DependencyModelWithValence("ab"), sentences), 0.05, 100
    best, space = best_likelihood(corpus), make(corpus, gap)
    answer = np.zeros(corpus.model.n_parameters)
    search: Search[Any, Any] = Search(space.root(), gap, (best, answer), bound=0.0)
    exact = search.run(space)
    size, mean, square = dive_moments(space, space.root(), (best, best - gap * min(best, -1.0)))
    assert exact.finished
    assert size == exact.n_nodes >= 20
    assert mean == pytest.approx(size, rel=1e-12)
    found = tree_size(space, best, gap=gap, n_dives=n_dives, seed=2)
    # the draws are the same in every run
    error = 4.0 * math.sqrt((square - mean * mean) / n_dives)
    assert found.n_nodes == pytest.approx(size, abs=error)
    assert 0.0 < error < 2.0 * size
    assert found.seconds > 0.0 and found.seconds_per_node > 0.0


def dive_moments(
    space: Any, node: Any, scores: tuple[float, float], bound: float = math.inf
) -> tuple[int, float, float]:
    """Return the size of a tree, and what dives give as its mean and square, by a full walk."""
    [evaluation] = space.evaluate([node], scores[0])
    bound = min(bound, evaluation.bound)
    if bound <= scores[1] or not evaluation.children:
        return 1, 1.0, 1.0
    below = [dive_moments(space, child, scores, bound) for child in evaluation.children]
    k, mean, square = len(below), *(np.mean([x[i] for x in below]) for i in (1, 2))
    return 1 + sum(x[0] for x in below), 1.0 + k * mean, 1.0 + 2 * k * mean + k * k * square


def test_a_limit_of_time_leaves_one_dive_and_reports_it() -> None:
    seen: list[TreeSize] = []
    found = tree_size(Uneven(4), 0.0, gap=0.0, max_time=0.0, report=seen.append)
    assert seen == [found]
    assert found.n_dives == 1 and found.n_nodes_error == np.inf


def test_the_same_seed_dives_the_same_way() -> None:
    one, two, other = (tree_size(Uneven(9), 0.0, n_dives=5, seed=seed) for seed in (0, 0, 1))
    assert one.n_nodes == two.n_nodes != other.n_nodes


def test_bad_options_are_refused() -> None:
    for options, message in (
        ({"n_dives": 0}, "n_dives: got 0"),
        ({"gap": -1.0}, "gap: got -1.0"),
        ({"max_time": -1.0}, "max_time: got -1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            tree_size(Uneven(2), 0.0, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="score: got -inf"):
        tree_size(Uneven(2), -np.inf)


def test_a_space_that_runs_out_of_time_is_named() -> None:
    class Late(Uneven):
        def evaluate(self, nodes: Sequence[int], score: float) -> Any:
            return Unfinished[int]()

    with pytest.raises(RuntimeError, match="ran out of time at a node"):
        tree_size(Late(3), 0.0)
