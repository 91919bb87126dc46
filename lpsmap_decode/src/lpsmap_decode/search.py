"""Generic branch and bound: open nodes, their bounds, and the order of their evaluation.

The search maximises. A `Space` defines nodes, their bounds and how they branch. Nodes are evaluated
in batches: half of a batch are the newest nodes, which soon lead to an answer; the other half have
the highest bounds, since these determine the bound of the search. If more nodes are open than
memory should hold, the whole batch is the newest nodes: depth-first search opens few.
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

from lpsmap_core import Deadline
from lpsmap_decode.results.search_limits import SearchProgress

__all__ = [
    "Unfinished",
    "Evaluation",
    "NodeBatch",
    "Search",
    "SearchResult",
    "SearchState",
    "Space",
]

Node = TypeVar("Node")
Answer = TypeVar("Answer")

MAX_OPEN = 1_000_000
"""Default number of open nodes beyond which a search is depth-first."""


@dataclass(frozen=True)
class Evaluation(Generic[Node, Answer]):
    """The evaluation of a node."""

    bound: float
    """Upper bound on the answers below the node; ``-inf`` if there are none."""
    children: Sequence[Node] = ()
    """Nodes that together contain all answers of the node, the most promising first."""
    answer: Answer | None = None
    """An answer that the evaluation found."""
    score: float = -math.inf
    """The score of the answer."""


@dataclass(frozen=True)
class Unfinished(Generic[Answer]):
    """An evaluation that the time limit cut short: perhaps an answer, and no bounds."""

    answer: Answer | None = None
    score: float = -math.inf


class Space(abc.ABC, Generic[Node, Answer]):
    """The space to search: how nodes are bounded and branch."""

    batch: int = 1
    """The preferred number of nodes to evaluate together."""

    @abc.abstractmethod
    def evaluate(
        self, nodes: Sequence[Node], score: float
    ) -> Sequence[Evaluation[Node, Answer]] | Unfinished[Answer]:
        """Bound and branch nodes, as far as the time limit allows.

        `score` is the score of the best answer so far.
        """


@dataclass
class SearchResult(SearchProgress, Generic[Answer]):
    """The result of a search."""

    answer: Answer | None = None
    """The best answer; None if none exists or none was found within the limits."""
    finished: bool = False
    """Whether the answer is proved to be optimal, up to the requested gap."""
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class NodeBatch(Generic[Node]):
    """Nodes that were handed out for evaluation."""

    nodes: Sequence[Node]
    bounds: Sequence[float]
    """The bound of each node, from the evaluations of its ancestors."""

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class SearchState(Generic[Node, Answer]):
    """All that is needed to resume a search, also in another process."""

    found: SearchResult[Answer]
    """The best answer so far, the bound, and the counts."""
    nodes: Sequence[Node]
    """The nodes not yet evaluated, the oldest first."""
    bounds: Sequence[float]
    """The bound of each node."""
    given_up: float
    """The highest bound of pruned nodes, which contain no better answer."""


@dataclass
class _OpenNodes(Generic[Node]):
    """Open nodes, in two orders.

    An entry taken from one list stays in the other until it is reached there or the list is
    compacted.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    """By number."""
    newest: list[tuple[float, int]] = field(default_factory=list)
    """Negative bounds and numbers; the newest last."""
    highest: list[tuple[float, int]] = field(default_factory=list)
    """The same as a heap."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    given_up: float = -math.inf
    """The highest bound of pruned nodes, which contain no better answer."""

    def add(self, bound: float, nodes: Sequence[Node]) -> None:
        for node in reversed(nodes):
            entry = (-bound, next(self.numbers))
            self.nodes[entry[1]] = node
            self.newest.append(entry)
            heapq.heappush(self.highest, entry)

    def take(self, n: int, least: float, in_depth: bool) -> list[tuple[float, Node]]:
        """Return up to n nodes with bounds above `least`; prune the nodes passed on the way."""
        chosen: list[tuple[float, Node]] = []
        while len(chosen) < n and self.nodes:
            # alternately from both orders
            from_newest = (in_depth or len(chosen) % 2 == 0) and self.newest
            negative, number = self.newest.pop() if from_newest else heapq.heappop(self.highest)
            if number in self.nodes:
                node = self.nodes.pop(number)
                if -negative > least:
                    chosen.append((-negative, node))
                else:
                    self.given_up = max(self.given_up, -negative)
        self._compact()
        return chosen

    def _compact(self) -> None:
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
    """A search that can be stopped and resumed.

    Parameters
    ----------
    root
        The node that contains all answers.
    gap
        The search ends once the bound is within ``gap * max(1, abs(score))`` of the best score.
    start
        The score of a known answer, and the answer.
    bound
        A known upper bound on the score of all answers.
    most_open
        Number of open nodes beyond which only the newest are evaluated, so that few more are
        opened.

    Attributes
    ----------
    found
        The best answer and bound so far, also if a limit or Ctrl-C stopped the search.
    """

    def __init__(
        self,
        root: Node,
        gap: float = 0.0,
        start: tuple[float, Answer] | None = None,
        bound: float = math.inf,
        most_open: int = MAX_OPEN,
    ) -> None:
        self.found: SearchResult[Answer] = SearchResult()
        if start is not None:
            self.found.score, self.found.answer = start
        self._gap, self._most_open = gap, most_open
        self._open: _OpenNodes[Node] = _OpenNodes()
        self._open.add(bound, [root])
        self._out: list[NodeBatch[Node]] = []
        self._update_bound()

    @classmethod
    def resumed(
        cls, state: SearchState[Node, Answer], gap: float = 0.0, most_open: int = MAX_OPEN
    ) -> Search[Node, Answer]:
        """Return a search that continues from a state.

        Parameters
        ----------
        state
            The result of `state`.
        gap, most_open
            As in `Search`; they may differ from the earlier search.
        """
        search = cls.__new__(cls)
        search._gap, search._most_open = gap, most_open
        search._open, search._out = _OpenNodes(given_up=state.given_up), []
        search.found = replace(state.found, finished=False, interrupted=False)
        for bound, node in zip(state.bounds, state.nodes, strict=True):
            search._open.add(bound, [node])
        return search

    def state(self) -> SearchState[Node, Answer]:
        """Return all that is needed to resume. Nodes under evaluation count as open."""
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
        """Run the search, or continue it.

        Parameters
        ----------
        space
            The space to search.
        max_nodes
            Limit on the total number of evaluated nodes.
        deadline
            When to stop. If it has already passed and no answer is known, one batch is still
            evaluated.
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
                evaluations = space.evaluate(batch.nodes, found.score)
                self.add(batch, evaluations)
                if isinstance(evaluations, Unfinished):
                    break
                found.seconds = time.monotonic() - begin
                if report is not None:
                    report(found)
            except KeyboardInterrupt:
                found.interrupted = True
        found.seconds = time.monotonic() - begin
        return found

    def take(self, n: int) -> NodeBatch[Node]:
        """Hand out up to n nodes; their bounds count until `add` receives their evaluations.

        If no node is left and no batch is under evaluation, the search is finished.

        Parameters
        ----------
        n
            The maximum number of nodes.
        """
        found, least = self.found, self.found.score  # nodes with bounds up to it are pruned
        if found.answer is not None:
            least += self._gap * max(1.0, abs(found.score))
        in_depth = len(self._open.nodes) > self._most_open
        chosen = self._open.take(n, least, in_depth)
        batch = NodeBatch([node for _, node in chosen], [bound for bound, _ in chosen])
        if chosen:
            self._out.append(batch)
        found.finished = not self._out
        self._update_bound()
        return batch

    def add(
        self,
        batch: NodeBatch[Node],
        evaluations: Sequence[Evaluation[Node, Answer]] | Unfinished[Answer],
    ) -> None:
        """Record the evaluation of a batch; batches may return in any order.

        Parameters
        ----------
        batch
            The result of `take`.
        evaluations
            One for each node of the batch. If the evaluation was cut short, the nodes are open
            again.
        """
        found, nodes = self.found, self._open
        if isinstance(evaluations, Unfinished):
            self._take_answer(evaluations.answer, evaluations.score)
            for bound, node in zip(batch.bounds, batch.nodes, strict=True):
                nodes.add(bound, [node])
        else:
            for bound, evaluation in zip(batch.bounds, evaluations, strict=True):
                self._take_answer(evaluation.answer, evaluation.score)
                bound = min(bound, evaluation.bound)
                nodes.add(bound, evaluation.children)
                if not evaluation.children:
                    nodes.given_up = max(nodes.given_up, bound)
            found.n_nodes += len(batch)
        self._out.remove(batch)
        self._update_bound()

    def offer(self, score: float, answer: Answer) -> None:
        """Take an answer that was found elsewhere, if it is better."""
        self._take_answer(answer, score)
        self._update_bound()

    def _update_bound(self) -> None:
        out = (bound for batch in self._out for bound in batch.bounds)
        nodes = self._open
        self.found.bound = max(nodes.bound(), nodes.given_up, self.found.score, *out)

    def _take_answer(self, answer: Answer | None, score: float) -> None:
        if answer is not None and score > self.found.score:
            self.found.answer, self.found.score = answer, score
            self.found.bound = max(self.found.bound, score)
