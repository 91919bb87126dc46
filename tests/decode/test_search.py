"""Branch and bound on a problem of its own: the largest of a function on an interval."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence

import numpy as np
import pytest

from lpsmap_decode import SearchProgress
from lpsmap_decode.search import (
    Evaluation,
    NodeBatch,
    Search,
    SearchResult,
    Space,
    Unfinished,
)
from lpsmap_jit.deadlines import Deadline

Interval = tuple[float, float]

STEEPEST = 13.0
"""The function's slope is nowhere larger."""


def height(x: float) -> float:
    return math.sin(10.0 * x) + 3.0 * x * (1.0 - x)


class Intervals(Space[Interval, float]):
    """Halves intervals; a slope that is nowhere exceeded bounds them."""

    batch = 4

    def __init__(self, stop_after: int | None = None, cut_after: int | None = None) -> None:
        self.evaluated: list[Interval] = []
        self._stop_after, self._cut_after = stop_after, cut_after

    def evaluate(
        self, nodes: Sequence[Interval], score: float
    ) -> Sequence[Evaluation[Interval, float]] | Unfinished[float]:
        self.evaluated += nodes
        if self._stop_after is not None and len(self.evaluated) > self._stop_after:
            raise KeyboardInterrupt
        if self._cut_after is not None and len(self.evaluated) > self._cut_after:
            return Unfinished(0.5, height(0.5))
        return [self._one(low, high) for low, high in nodes]

    def _one(self, low: float, high: float) -> Evaluation[Interval, float]:
        middle = 0.5 * (low + high)
        bound = height(middle) + STEEPEST * 0.5 * (high - low)
        return Evaluation(bound, [(low, middle), (middle, high)], middle, height(middle))


BEST = max(height(x) for x in np.linspace(0.0, 1.0, 100_001).tolist())


def test_the_best_is_found_and_bounded() -> None:
    found = Search((0.0, 1.0), gap=1e-4).run(Intervals())
    assert found.finished
    assert found.score <= BEST + 1e-9 <= found.bound + 2e-9
    assert found.bound - found.score <= 1e-4 * max(1.0, found.score) + 1e-12
    assert found.answer is not None
    assert height(found.answer) == found.score


def test_nothing_below_the_best_is_looked_at_twice() -> None:
    space = Intervals()
    found = Search((0.0, 1.0), gap=1e-3).run(space)
    assert len(set(space.evaluated)) == len(space.evaluated) == found.n_nodes


def test_a_start_saves_nodes() -> None:
    plain = Search((0.0, 1.0), gap=1e-3).run(Intervals())
    assert plain.answer is not None
    warm = Search((0.0, 1.0), 1e-3, (plain.score, plain.answer)).run(Intervals())
    assert warm.score == plain.score
    assert warm.n_nodes <= plain.n_nodes


def test_a_bound_that_is_known_ends_it() -> None:
    """Where an answer reaches it, nothing is evaluated."""
    found = Search("any", start=(2.0, "answer"), bound=2.0).run(Unseen())
    assert (found.finished, found.n_nodes, found.bound) == (True, 0, 2.0)


def test_a_bound_that_is_known_holds_before_the_first_look() -> None:
    search = Search("any", start=(1.0, "answer"), bound=2.0)
    assert search.found.bound == 2.0
    found = search.run(Unseen(), deadline=Deadline(0.0))
    assert (found.finished, found.n_nodes, found.score, found.bound) == (False, 0, 1.0, 2.0)
    assert Search("any").found.bound == math.inf


class Unseen(Space[str, str]):
    """A space whose nodes must not be evaluated."""

    def evaluate(self, nodes: Sequence[str], score: float) -> Sequence[Evaluation[str, str]]:
        raise AssertionError(nodes)


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (Intervals(), {"max_nodes": 10}),
        (Intervals(), {"deadline": Deadline(0.0)}),
        (Intervals(stop_after=10), {}),
        (Intervals(cut_after=10), {}),
    ],
    ids=["nodes", "time", "Ctrl-C", "an unfinished evaluation"],
)
def test_whatever_ends_it_the_bound_holds(space: Intervals, options: dict[str, float]) -> None:
    found: SearchResult[float] = Search((0.0, 1.0)).run(space, **options)
    assert not found.finished
    assert found.n_nodes <= 10
    assert found.interrupted == (space._stop_after is not None)
    assert found.score <= BEST <= found.bound


def test_a_search_goes_on_where_it_stopped() -> None:
    space, expected = Intervals(), Search((0.0, 1.0), gap=1e-3).run(Intervals())
    search: Search[Interval, float] = Search((0.0, 1.0), gap=1e-3)
    found, most = search.found, 0
    while not found.finished:
        most += 5
        search.run(space, max_nodes=most)
        assert found.n_nodes <= most
        assert found.score <= BEST <= found.bound
    assert len(set(space.evaluated)) == len(space.evaluated) == found.n_nodes
    assert found.score == pytest.approx(expected.score, abs=2e-3)


def test_looks_may_come_in_any_order() -> None:
    """As with several processes; the bound holds all the time."""
    rng, space = np.random.default_rng(0), Intervals()
    search: Search[Interval, float] = Search((0.0, 1.0), gap=1e-3)
    out: list[NodeBatch[Interval]] = []
    while not search.found.finished:
        batch = search.take(3)
        out += [batch] if batch else []
        while out and (len(out) == 4 or not batch):
            known = out.pop(rng.integers(len(out)))
            cut_short = rng.random() < 0.2
            search.add(known, Unfinished() if cut_short else space.evaluate(known.nodes, 0.0))
            batch = known
            assert search.found.score <= BEST <= search.found.bound
    assert search.found.bound - search.found.score <= 1e-3 * search.found.score
    assert search.found.n_nodes <= len(space.evaluated) <= 1000


def test_a_state_goes_on_elsewhere() -> None:
    """Nodes under evaluation are evaluated again."""
    space = Intervals()
    search: Search[Interval, float] = Search((0.0, 1.0), gap=1e-3)
    search.run(space, max_nodes=30)
    lost, before = search.take(5), search.found.bound
    other = Search.resumed(pickle.loads(pickle.dumps(search.state())), gap=1e-3)
    assert other.take(1) and other.found.bound == before
    other = Search.resumed(search.state(), gap=1e-3)
    found = other.run(space)
    assert found.finished
    assert found.score <= BEST <= found.bound <= found.score * (1.0 + 1e-3)
    assert set(lost.nodes) <= set(space.evaluated)
    assert found.n_nodes == len(space.evaluated)
    assert search.found.n_nodes == 30


def test_nodes_that_were_looked_at_are_forgotten() -> None:
    """Of a search that only goes deeper, whatever it met at the other end of its lists."""

    class Deep(Space[float, float]):
        def evaluate(
            self, nodes: Sequence[float], score: float
        ) -> Sequence[Evaluation[float, float]]:
            return [Evaluation(1.0 + 1.0 / (1.0 + node), [node + 1.0]) for node in nodes]

    search: Search[float, float] = Search(0.0)
    search.run(Deep(), max_nodes=5000)
    assert len(pickle.dumps(search._open)) < 100_000


def test_a_search_goes_in_depth_where_too_much_is_open() -> None:
    """Half of every batch is of the highest bounds, which opens nodes without end."""

    def most(search: Search[Interval, float]) -> int:
        open_nodes = []
        search.run(Intervals(), report=lambda _: open_nodes.append(len(search._open.nodes)))
        assert search.found.finished
        assert search.found.score == pytest.approx(BEST, abs=1e-6)
        return max(open_nodes)

    assert most(Search((0.0, 1.0), gap=1e-6)) > 300
    assert most(Search((0.0, 1.0), gap=1e-6, most_open=50)) < 150
    begun: Search[Interval, float] = Search((0.0, 1.0), gap=1e-6, most_open=50)
    begun.run(Intervals(), max_nodes=100)
    assert most(Search.resumed(begun.state(), 1e-6, most_open=50)) < 150


def test_progress_is_reported_and_may_stop_it() -> None:
    seen: list[tuple[float, float, int]] = []

    def report(how_far: SearchProgress) -> None:
        seen.append((how_far.score, how_far.bound, how_far.n_nodes))
        if len(seen) == 5:
            raise KeyboardInterrupt

    found = Search((0.0, 1.0)).run(Intervals(), report=report)
    assert found.interrupted
    scores, bounds, counts = zip(*seen, strict=True)
    assert list(scores) == sorted(scores)
    assert list(bounds) == sorted(bounds, reverse=True)
    assert list(counts) == sorted(counts)
    assert found.answer is not None


def test_a_space_of_nothing() -> None:
    class Nothing(Space[int, int]):
        def evaluate(self, nodes: Sequence[int], score: float) -> Sequence[Evaluation[int, int]]:
            return [Evaluation(-math.inf) for _ in nodes]

    found: SearchResult[int] = Search(0).run(Nothing())
    assert found.finished
    assert found.answer is None
    assert found.bound == -math.inf
