"""Branch and bound, of anything: nodes, their bounds, and in which order to look at them.

Maximises. What a node is, how it is bounded and how it branches is the `Space`'s. Nodes are looked
at in batches: half of a batch goes on from the newest nodes, which soon ends at an answer; the
others are those with the highest bounds, since they hold the bound of the whole.
"""

from __future__ import annotations

import abc
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lpsmap_core.kernels.deadlines import Deadline

__all__ = ["CutShort", "Look", "Search", "SearchProgress", "SearchResult", "Space"]

Node = TypeVar("Node")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Look(Generic[Node, Answer]):
    """What a look at a node found."""

    bound: float
    """No answer below the node scores higher; ``-inf`` if there is none."""
    children: Sequence[Node] = ()
    """Nodes that have all its answers among them, the most promising first."""
    answer: Answer | None = None
    """An answer met on the way."""
    score: float = -math.inf
    """What it scores."""


@dataclass(frozen=True)
class CutShort(Generic[Answer]):
    """What a look has when the time is up before it is done: perhaps an answer, and no bounds."""

    answer: Answer | None = None
    score: float = -math.inf


class Space(abc.ABC, Generic[Node, Answer]):
    """What is searched."""

    batch: int = 1
    """As many nodes as are best looked at together."""

    @abc.abstractmethod
    def look(
        self, nodes: Sequence[Node], score: float
    ) -> Sequence[Look[Node, Answer]] | CutShort[Answer]:
        """Bound nodes and branch, as far as there is time.

        `score` is that of the best answer so far.
        """


@dataclass
class SearchProgress:
    """How far a search is."""

    score: float = -math.inf
    """Of the best answer so far."""
    bound: float = math.inf
    """No answer scores higher."""
    n_nodes: int = 0
    seconds: float = 0.0


@dataclass
class SearchResult(SearchProgress, Generic[Answer]):
    """What a search found."""

    answer: Answer | None = None
    """The best answer; None if there is none, or none was found in the time given."""
    finished: bool = False
    """Whether it is proved that no answer scores higher, up to the gap asked for."""
    interrupted: bool = False


@dataclass
class _Open(Generic[Node]):
    """Nodes yet to be looked at."""

    newest: list[tuple[float, int, Node]] = field(default_factory=list)
    highest: list[tuple[float, int, Node]] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    given_up: float = -math.inf
    """The highest bound of nodes that no better answer can be below."""

    def add(self, bound: float, nodes: Sequence[Node]) -> None:
        for node in reversed(nodes):
            entry = (-bound, next(self.numbers), node)
            self.newest.append(entry)
            heapq.heappush(self.highest, entry)

    def take(self, n: int, least: float) -> list[tuple[float, Node]]:
        """Return up to n nodes with bounds above the least, and forget the others that are met."""
        chosen: list[tuple[float, Node]] = []
        while len(chosen) < n and self.highest:
            # by turns from both ends, each of which may hold what the other gave away
            from_newest = len(chosen) % 2 == 0 and self.newest
            entry = self.newest.pop() if from_newest else heapq.heappop(self.highest)
            negative, number, node = entry
            if number in self.taken:
                self.taken.discard(number)
                continue
            self.taken.add(number)
            if -negative > least:
                chosen.append((-negative, node))
            else:
                self.given_up = max(self.given_up, -negative)
        return chosen

    def bound(self) -> float:
        """Return the highest bound of the nodes."""
        while self.highest and self.highest[0][1] in self.taken:
            self.taken.discard(heapq.heappop(self.highest)[1])
        return -self.highest[0][0] if self.highest else -math.inf


class Search(Generic[Node, Answer]):
    """A search, which can be stopped and gone on with.

    Parameters
    ----------
    root
        The node that has all answers below it.
    gap
        The search ends once the bound is within ``gap * max(1, abs(score))`` of the best score.
    start
        The score of an answer that is known, and the answer.
    bound
        No answer scores higher, if that is known.

    Attributes
    ----------
    found
        The best answer so far, and the bound, also where a limit, or Ctrl-C, stopped the search.
    """

    def __init__(
        self,
        root: Node,
        gap: float = 0.0,
        start: tuple[float, Answer] | None = None,
        bound: float = math.inf,
    ) -> None:
        self.found: SearchResult[Answer] = SearchResult()
        if start is not None:
            self.found.score, self.found.answer = start
        self._gap = gap
        self._open: _Open[Node] = _Open()
        self._open.add(bound, [root])

    def run(
        self,
        space: Space[Node, Answer],
        *,
        max_nodes: int | None = None,
        deadline: Deadline | None = None,
        report: Callable[[SearchProgress], None] | None = None,
    ) -> SearchResult[Answer]:
        """Search on.

        Parameters
        ----------
        space
            What is searched.
        max_nodes
            Limit of all nodes that were looked at.
        deadline
            When to stop. If it has passed already, and no answer is known, there still is one look.
        report
            Called after every batch.
        """
        found, nodes = self.found, self._open
        begin = time.monotonic() - found.seconds
        while not found.finished and not found.interrupted:
            left = math.inf if max_nodes is None else max_nodes - found.n_nodes
            late = deadline is not None and deadline.passed
            if left <= 0 or (late and (found.n_nodes or found.answer is not None)):
                break
            batch = nodes.take(int(min(space.batch, left)), self._least())
            # which holds if the look is cut short: nothing of it counts then
            highest = max((bound for bound, _ in batch), default=-math.inf)
            found.bound = max(nodes.bound(), nodes.given_up, found.score, highest)
            if not batch:
                found.finished = True
                break
            try:
                looks = space.look([node for _, node in batch], found.score)
                if isinstance(looks, CutShort):
                    self._take_back(batch, looks)
                    break
                self._take_in(batch, looks)
                found.seconds = time.monotonic() - begin
                if report is not None:
                    report(found)
            except KeyboardInterrupt:
                found.interrupted = True
        found.seconds = time.monotonic() - begin
        return found

    def _least(self) -> float:
        """Return what a bound has to exceed for its node to be looked at."""
        found = self.found
        return found.score + (
            0.0 if found.answer is None else self._gap * max(1.0, abs(found.score))
        )

    def _take_in(
        self, batch: Sequence[tuple[float, Node]], looks: Sequence[Look[Node, Answer]]
    ) -> None:
        found, nodes = self.found, self._open
        for (bound, _), look in zip(batch, looks, strict=True):
            self._take_answer(look.answer, look.score)
            bound = min(bound, look.bound)
            nodes.add(bound, look.children)
            if not look.children:
                nodes.given_up = max(nodes.given_up, bound)
        found.n_nodes += len(batch)
        found.bound = max(nodes.bound(), nodes.given_up, found.score)

    def _take_back(self, batch: Sequence[tuple[float, Node]], looks: CutShort[Answer]) -> None:
        self._take_answer(looks.answer, looks.score)
        for bound, node in batch:
            self._open.add(bound, [node])

    def _take_answer(self, answer: Answer | None, score: float) -> None:
        if answer is not None and score > self.found.score:
            self.found.answer, self.found.score = answer, score
            self.found.bound = max(self.found.bound, score)
