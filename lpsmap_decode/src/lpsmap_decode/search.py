"""Branch and bound, of anything: nodes, their bounds, and in which order to look at them.

Maximises. What a node is, how it is bounded and how it branches is the `Space`'s. Nodes are looked
at in batches: half of a batch goes on from the newest nodes, which soon ends at an answer; the
others are those with the highest bounds, since they hold the bound of the whole. Where more nodes
are open than memory should hold, all are the newest: a search in depth opens few.
"""

from __future__ import annotations

import abc
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from lpsmap_core import Deadline, SearchProgress

__all__ = [
    "CutShort",
    "Look",
    "NodeBatch",
    "Search",
    "SearchResult",
    "SearchState",
    "Space",
]

Node = TypeVar("Node")
Answer = TypeVar("Answer")

MOST_OPEN = 1_000_000
"""Open nodes beyond which a search goes in depth, by default."""


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
class SearchResult(SearchProgress, Generic[Answer]):
    """What a search found."""

    answer: Answer | None = None
    """The best answer; None if there is none, or none was found in the time given."""
    finished: bool = False
    """Whether it is proved that no answer scores higher, up to the gap asked for."""
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class NodeBatch(Generic[Node]):
    """Nodes that were handed out to be looked at."""

    nodes: Sequence[Node]
    bounds: Sequence[float]
    """Of each node, from the looks at its ancestors."""

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class SearchState(Generic[Node, Answer]):
    """All that a search needs to go on, in another process too."""

    found: SearchResult[Answer]
    """The best answer so far, the bound, and the counts."""
    nodes: Sequence[Node]
    """Those yet to be looked at, the oldest first."""
    bounds: Sequence[float]
    """Of each."""
    given_up: float
    """The highest bound of nodes that were given up since no better answer is below them."""


@dataclass
class _Open(Generic[Node]):
    """Nodes yet to be looked at, which two lists have in their orders.

    What one list gives away the other has still, until it is met there or too much is.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    """By number."""
    newest: list[tuple[float, int]] = field(default_factory=list)
    """Negative bounds and numbers; the newest last."""
    highest: list[tuple[float, int]] = field(default_factory=list)
    """The same as a heap."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    given_up: float = -math.inf
    """The highest bound of nodes that no better answer can be below."""

    def add(self, bound: float, nodes: Sequence[Node]) -> None:
        for node in reversed(nodes):
            entry = (-bound, next(self.numbers))
            self.nodes[entry[1]] = node
            self.newest.append(entry)
            heapq.heappush(self.highest, entry)

    def take(self, n: int, least: float, in_depth: bool) -> list[tuple[float, Node]]:
        """Return up to n nodes with bounds above the least, and forget the others that are met."""
        chosen: list[tuple[float, Node]] = []
        while len(chosen) < n and self.nodes:
            # by turns from both ends
            from_newest = (in_depth or len(chosen) % 2 == 0) and self.newest
            negative, number = self.newest.pop() if from_newest else heapq.heappop(self.highest)
            if number in self.nodes:
                node = self.nodes.pop(number)
                if -negative > least:
                    chosen.append((-negative, node))
                else:
                    self.given_up = max(self.given_up, -negative)
        self._tidy()
        return chosen

    def _tidy(self) -> None:
        most = 2 * len(self.nodes) + 1000
        if len(self.newest) > most:
            self.newest = [entry for entry in self.newest if entry[1] in self.nodes]
        if len(self.highest) > most:
            self.highest = [entry for entry in self.highest if entry[1] in self.nodes]
            heapq.heapify(self.highest)

    def entries(self) -> list[tuple[float, Node]]:
        """Return the bounds and nodes, the oldest first."""
        numbers = sorted((number, -negative) for negative, number in self.highest)
        return [(bound, self.nodes[number]) for number, bound in numbers if number in self.nodes]

    def bound(self) -> float:
        """Return the highest bound of the nodes."""
        while self.highest and self.highest[0][1] not in self.nodes:
            heapq.heappop(self.highest)
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
    most_open
        Open nodes beyond which only the newest are looked at, so that few more are opened.

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
        most_open: int = MOST_OPEN,
    ) -> None:
        self.found: SearchResult[Answer] = SearchResult()
        if start is not None:
            self.found.score, self.found.answer = start
        self._gap, self._most_open = gap, most_open
        self._open: _Open[Node] = _Open()
        self._open.add(bound, [root])
        self._out: list[NodeBatch[Node]] = []
        self._renew_bound()

    @classmethod
    def resumed(
        cls, state: SearchState[Node, Answer], gap: float = 0.0, most_open: int = MOST_OPEN
    ) -> Search[Node, Answer]:
        """Return a search that goes on from a state.

        Parameters
        ----------
        state
            What `state` returned.
        gap, most_open
            As of the search before, or others.
        """
        search = cls.__new__(cls)
        search._gap, search._most_open = gap, most_open
        search._open, search._out = _Open(given_up=state.given_up), []
        search.found = replace(state.found, finished=False, interrupted=False)
        for bound, node in zip(state.bounds, state.nodes, strict=True):
            search._open.add(bound, [node])
        return search

    def state(self) -> SearchState[Node, Answer]:
        """Return all that is needed to go on. Nodes that are out count as yet to be looked at."""
        entries = self._open.entries()
        nodes, bounds = [node for _, node in entries], [bound for bound, _ in entries]
        for batch in self._out:
            nodes += reversed(batch.nodes)
            bounds += reversed(batch.bounds)
        return SearchState(replace(self.found), nodes, bounds, self._open.given_up)

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
        found = self.found
        begin = time.monotonic() - found.seconds
        while not found.finished and not found.interrupted:
            left = math.inf if max_nodes is None else max_nodes - found.n_nodes
            late = deadline is not None and deadline.passed
            if left <= 0 or (late and (found.n_nodes or found.answer is not None)):
                break
            batch = self.take(int(min(space.batch, left)))
            if not batch:
                break
            try:
                looks = space.look(batch.nodes, found.score)
                self.add(batch, looks)
                if isinstance(looks, CutShort):
                    break
                found.seconds = time.monotonic() - begin
                if report is not None:
                    report(found)
            except KeyboardInterrupt:
                found.interrupted = True
        found.seconds = time.monotonic() - begin
        return found

    def take(self, n: int) -> NodeBatch[Node]:
        """Hand out up to n nodes; until `add` is called with their looks, their bounds count.

        If there are none, and no others are out, the search is finished.

        Parameters
        ----------
        n
            The most nodes.
        """
        in_depth = len(self._open.nodes) > self._most_open
        chosen = self._open.take(n, self._least(), in_depth)
        batch = NodeBatch([node for _, node in chosen], [bound for bound, _ in chosen])
        if chosen:
            self._out.append(batch)
        self.found.finished = not self._out
        self._renew_bound()
        return batch

    def add(
        self, batch: NodeBatch[Node], looks: Sequence[Look[Node, Answer]] | CutShort[Answer]
    ) -> None:
        """Take in what was found at nodes that were handed out; batches may come in any order.

        Parameters
        ----------
        batch
            What `take` returned.
        looks
            One for each of its nodes. If there was no time for them, the nodes are open again.
        """
        found, nodes = self.found, self._open
        if isinstance(looks, CutShort):
            self._take_answer(looks.answer, looks.score)
            for bound, node in zip(batch.bounds, batch.nodes, strict=True):
                nodes.add(bound, [node])
        else:
            for bound, look in zip(batch.bounds, looks, strict=True):
                self._take_answer(look.answer, look.score)
                bound = min(bound, look.bound)
                nodes.add(bound, look.children)
                if not look.children:
                    nodes.given_up = max(nodes.given_up, bound)
            found.n_nodes += len(batch)
        self._out.remove(batch)
        self._renew_bound()

    def _renew_bound(self) -> None:
        out = (bound for batch in self._out for bound in batch.bounds)
        nodes = self._open
        self.found.bound = max(nodes.bound(), nodes.given_up, self.found.score, *out)

    def _least(self) -> float:
        """Return what a bound has to exceed for its node to be looked at."""
        found = self.found
        return found.score + (
            0.0 if found.answer is None else self._gap * max(1.0, abs(found.score))
        )

    def _take_answer(self, answer: Answer | None, score: float) -> None:
        if answer is not None and score > self.found.score:
            self.found.answer, self.found.score = answer, score
            self.found.bound = max(self.found.bound, score)
