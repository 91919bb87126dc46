"""The best assignments of one component, in their order: a search that continues past the best.

Nodes are evaluated in the order of their bounds, until no open node can contain a better assignment
than the best one that is not ranked yet. If the best assignment of a node is known, the node is
split into parts that exclude it (Murty 1968, Lawler 1972).
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from lpsmap_core import Deadline
from lpsmap_core.api import BoolArray
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.exact.next_best import NextBest
from lpsmap_decode.exact.relaxation_search import RelaxationSpace
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.search import Evaluation, Unfinished

__all__ = ["Ranking"]


class Ranking:
    """The best assignments of a component, which are searched for on request.

    Parameters
    ----------
    space
        A function that returns the search space of the component.
    root
        A function that returns the root node.
    limits
        When to stop. Assignments are then ranked without a proof, as far as they are found.
    known
        The two best assignments with their scores, or fewer if there are no more; None if unknown.
    next_best
        Another way to find the next assignment, after as many seconds as the space's `patience`.
    unit
        The unit of the component's scores.

    Attributes
    ----------
    scores, answers
        The assignments ranked so far, the best first.
    """

    def __init__(
        self,
        space: Callable[[], CountSpace | RelaxationSpace],
        root: Callable[[], Any],
        limits: SearchLimits,
        known: Sequence[tuple[float, BoolArray]] | None = None,
        next_best: NextBest | None = None,
        unit: float = 1.0,
    ) -> None:
        self._space, self._root, self._limits = space, root, limits
        self._next_best, self._ceiling, self._unit = next_best, math.inf, unit
        self.scores: list[float] = [score for score, _ in known or ()]
        self.answers: list[BoolArray] = [answer for _, answer in known or ()]
        self.n_nodes, self._patience = 0, Deadline(None)
        self._numbers = itertools.count(0, -1)  # of equal bounds or scores, the newest comes first
        self._nodes: list[tuple[float, int, Any]] | None = None
        self._found: list[tuple[float, int, BoolArray]] = []  # not ranked yet, as a heap
        self._met = {answer.tobytes() for answer in self.answers}
        self._final = None if known is None or len(known) > 1 else -math.inf

    @property
    def bound(self) -> float:
        """An upper bound on all assignments not ranked; ``-inf`` if there are none."""
        if self._final is not None:
            return self._final
        if self._nodes is None:
            return min(self.scores[-1] if self.scores else math.inf, self._ceiling)
        heaps = (self._nodes, self._found)
        highest = max((-heap[0][0] for heap in heaps if heap), default=-math.inf)
        return min(highest, self._ceiling)

    @property
    def by_solver(self) -> bool:
        """Whether a solver's bound was used, which is as rough as its tolerances."""
        return self._ceiling < math.inf

    def close(self) -> None:
        """End the search, and drop its open nodes."""
        self._final = self.bound
        self._nodes, self._found, self._next_best = [], [], None

    def has(self, j: int) -> bool:
        """Search until the assignment of rank `j` is known; return whether there is one."""
        while len(self.scores) <= j and self._rank_next():
            pass
        return len(self.scores) > j

    def _rank_next(self) -> bool:
        """Rank another assignment; return whether one was found.

        It may be better, by up to the gap, than one that was ranked before.
        """
        while self._final is None and not self._is_over() and self._is_open():
            if self._next_best is not None and self._patience.passed:
                self._ask(self._next_best)
                break
            if not self._evaluate():
                break
        if not self._found:
            return False
        negative, _, answer = heapq.heappop(self._found)
        place = bisect.bisect_right(self.scores, negative, key=lambda score: -score)
        self.scores.insert(place, -negative)
        self.answers.insert(place, answer)
        return True

    def _is_over(self) -> bool:
        most = self._limits.max_nodes
        return (most is not None and self.n_nodes >= most) or self._limits.deadline.passed

    def _is_open(self) -> bool:
        """Return whether an open node may contain a better assignment than those found."""
        if not self._nodes:
            return self._nodes is None
        if not self._found:
            return True
        score = -self._found[0][0]
        margin = self._limits.gap * max(self._unit, abs(score))
        return min(-self._nodes[0][0], self._ceiling) > score + margin

    def _ask(self, next_best: NextBest) -> None:
        """Take note of the best assignment besides those ranked, and of the bound of others."""
        start = self._found[0][2] if self._found else None
        answer, score, bound = next_best(self.answers, start)
        self._ceiling = min(self._ceiling, max(bound, score))
        self._meet(answer, score)

    def _evaluate(self) -> bool:
        """Evaluate the open nodes with the highest bounds; return whether there was time."""
        space: Any = self._space()
        if self._nodes is None:
            self._patience = Deadline(space.patience)
            self._nodes = [(-math.inf, next(self._numbers), self._root())]
        batch = [heapq.heappop(self._nodes) for _ in range(min(space.batch, len(self._nodes)))]
        evaluations: Sequence[Evaluation[Any, BoolArray]] | Unfinished[BoolArray]
        try:
            nodes = [node for _, _, node in batch]
            evaluations = space.evaluate(nodes, -math.inf, known=bool(self._met))
        except KeyboardInterrupt:
            self._limits.deadline.end()
            evaluations = Unfinished()
        if isinstance(evaluations, Unfinished):
            for entry in batch:  # keep the nodes open
                heapq.heappush(self._nodes, entry)
            self._meet(evaluations.answer, evaluations.score)
            return False
        self.n_nodes += len(batch)
        for (negative, _, node), evaluation in zip(batch, evaluations, strict=True):
            bound = min(-negative, evaluation.bound)
            self._meet(evaluation.answer, evaluation.score)
            if bound > -math.inf:
                children = [(bound, child) for child in evaluation.children]
                for least, child in reversed(children or [*space.excluding(node, evaluation)]):
                    entry = -min(least, bound), next(self._numbers), child
                    heapq.heappush(self._nodes, entry)
        return True

    def _meet(self, answer: BoolArray | None, score: float) -> None:
        """Take note of an assignment, unless it is known."""
        if answer is not None and score > -math.inf and answer.tobytes() not in self._met:
            self._met.add(answer.tobytes())
            heapq.heappush(self._found, (-score, next(self._numbers), answer))
