"""The best dependency trees under constraints, by LP-MAP and by the exact search."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import judges
from lpsmap import Budget, DepTree, FactorGraph, Variables
from lpsmap_core import Deadline
from lpsmap_decode import Assignment
from lpsmap_decode.heuristics.portfolio import Portfolio


@pytest.mark.parametrize("autodetect_acyclic", [False, True])
@pytest.mark.parametrize("projective", [False, True])
def test_a_tree_as_the_earlier_library_tests_it(
    autodetect_acyclic: bool, projective: bool, rng: np.random.Generator
) -> None:
    """A tree alone is solved exactly, whatever the option says."""
    n = 4
    scores = rng.normal(size=(n, n))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u, projective=projective))
    assert graph.solve_map(autodetect_acyclic=autodetect_acyclic).ok
    best = max(
        _score(scores, heads) for heads in judges.tree_heads(n) if _allowed(heads, projective)
    )
    assert (scores * u.value).sum() == pytest.approx(best)
    np.testing.assert_array_equal(u.value, u.value.round())


def _score(scores: np.ndarray, heads: tuple[int, ...]) -> float:
    return float(sum(scores[word, head] for word, head in enumerate(heads)))


def _allowed(heads: tuple[int, ...], projective: bool) -> bool:
    """Whether no two arcs cross, where they must not; the root is left of all words."""
    arcs = [tuple(sorted((word, -1 if head == word else head))) for word, head in enumerate(heads)]
    return not projective or not any(a < c < b < d for a, b in arcs for c, d in arcs)


def repeated_words(seed: int, n: int = 20) -> tuple[FactorGraph, Variables]:
    """Return a graph of trees, many of which score the same."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 12, size=n)
    graph = FactorGraph()
    u = graph.variable_from(4.0 * rng.normal(size=(12, 12))[kinds][:, kinds])
    graph.add(DepTree(u, single_root=True))
    graph.add(Budget(u, 3, axis=0, mask=~np.eye(n, dtype=bool)))
    return graph, u


@pytest.mark.parametrize("seed", [1, 4, 24])
def test_words_that_are_there_several_times(seed: int) -> None:
    """The relaxation is amid their trees, and still one is soon proved.

    With 30 iterations for the root, the last two took 130 to 500 nodes.
    """
    (graph, u), n = repeated_words(seed), 20
    found = graph.solve_map(exact=True, max_nodes=50, threads=1)
    assert isinstance(found, Assignment)
    assert found.ok
    heads = u.value.argmax(axis=1)
    assert u.value.sum() == n
    assert (np.bincount(heads[heads != np.arange(n)], minlength=n) <= 3).all()


def test_a_search_that_ends_at_a_number_of_nodes_tries_heuristics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They ran after a round of nodes, but not after the last one."""
    runs, run = [], Portfolio.run

    def counted(self: Portfolio, deadline: Deadline, until_found: bool = False) -> None:
        runs.append(deadline)
        run(self, deadline, until_found)

    monkeypatch.setattr(Portfolio, "run", counted)
    graph, _ = repeated_words(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = graph.solve_map(exact=True, max_nodes=10, threads=1)
    assert isinstance(found, Assignment)
    assert not found.ok
    assert runs
