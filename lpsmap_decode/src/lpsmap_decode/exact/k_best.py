"""The k best assignments of one component: a search that continues past the best.

Nodes are evaluated in the order of their bounds, and a node is pruned if it cannot contain one of
the k best assignments. If the best assignment of a node is known, the node is split into parts that
exclude it (Murty 1968, Lawler 1972).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, SearchLimits
from lpsmap_decode.exact.relaxation_search import OPEN, Node, RelaxationSpace
from lpsmap_decode.search import Evaluation, Unfinished

__all__ = ["KBestResult", "k_best"]


class KBestResult(NamedTuple):
    """The best assignments found, the best first."""

    scores: list[float]
    answers: list[BoolArray]
    bound: float
    """An upper bound on all other assignments; ``-inf`` if there is none."""
    n_nodes: int
    interrupted: bool


def k_best(space: RelaxationSpace, root: Node, k: int, limits: SearchLimits) -> KBestResult:
    """Find the `k` best assignments of a component.

    Parameters
    ----------
    space
        The search space of the component.
    root
        The root node.
    k
        The number of assignments.
    limits
        When to stop.
    """
    met: dict[bytes, tuple[float, BoolArray]] = {}
    highest: list[float] = []  # the k highest scores, as a heap
    numbers = itertools.count()
    nodes: list[tuple[float, int, Node]] = [(-math.inf, next(numbers), root)]
    least, n_nodes, interrupted = -math.inf, 0, False
    while k and nodes and not _is_over(limits, n_nodes):
        if -nodes[0][0] <= least:
            break
        batch = [heapq.heappop(nodes) for _ in range(min(space.batch, len(nodes)))]
        evaluations: Sequence[Evaluation[Node, BoolArray]] | Unfinished[BoolArray]
        try:
            batch_nodes = [node for _, _, node in batch]
            evaluations = space.evaluate(batch_nodes, -math.inf, known=bool(met))
        except KeyboardInterrupt:
            evaluations, interrupted = Unfinished(), True
        if isinstance(evaluations, Unfinished):  # keep the nodes open
            nodes += batch
            heapq.heapify(nodes)
            break
        n_nodes += len(batch)
        for (negative, _, node), evaluation in zip(batch, evaluations, strict=True):
            bound = min(-negative, evaluation.bound)
            if evaluation.answer is not None and evaluation.score > -math.inf:
                key = evaluation.answer.tobytes()
                if key not in met:
                    heapq.heappush(highest, evaluation.score)
                    if len(highest) > k:
                        heapq.heappop(highest)
                met[key] = evaluation.score, evaluation.answer
            if bound > -math.inf:
                for child in evaluation.children or _without(node, evaluation.answer):
                    heapq.heappush(nodes, (-bound, next(numbers), child))
        if len(highest) == k:  # nodes with lower bounds are pruned
            least = highest[0] + limits.gap * max(1.0, abs(highest[0]))
    best = sorted(met.values(), key=lambda pair: -pair[0])
    left = [score for score, _ in best[k:]] + [-negative for negative, _, _ in nodes]
    return KBestResult(
        scores=[score for score, _ in best[:k]],
        answers=[answer for _, answer in best[:k]],
        bound=max(left, default=-math.inf),
        n_nodes=n_nodes,
        interrupted=interrupted,
    )


def _is_over(limits: SearchLimits, n_nodes: int) -> bool:
    spent = limits.max_nodes is not None and n_nodes >= limits.max_nodes
    return spent or limits.deadline.passed


def _without(node: Node, answer: BoolArray | None) -> Iterator[Node]:
    """Yield parts of a node that together contain all its assignments but one."""
    decided = node.decided.copy()
    for variable in np.flatnonzero(node.decided == OPEN).tolist():
        value = int(answer is not None and answer[variable])
        other = decided.copy()
        other[variable] = 1 - value
        yield node._replace(decided=other)
        decided[variable] = value
