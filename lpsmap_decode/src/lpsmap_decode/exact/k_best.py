"""The k best assignments of one component: a search that goes on past the best.

Nodes are looked at from the highest bound on, and a node ends when nothing below it can be among
the k best. Where the best assignment of a node is known, the node is cut into parts that exclude it
(Murty 1968, Lawler 1972).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, SearchLimits
from lpsmap_decode.exact.assignments import OPEN, Assignments, Node
from lpsmap_decode.search import CutShort, Look

__all__ = ["Ranked", "k_best"]


class Ranked(NamedTuple):
    """The best assignments that were found, the best first."""

    scores: list[float]
    answers: list[BoolArray]
    bound: float
    """No other assignment scores more; ``-inf`` if there is none."""
    n_nodes: int
    interrupted: bool


def k_best(space: Assignments, root: Node, k: int, limits: SearchLimits) -> Ranked:
    """Find the `k` best assignments of a component.

    Parameters
    ----------
    space
        The component's assignments.
    root
        The node of all of them.
    k
        How many.
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
        looks: Sequence[Look[Node, BoolArray]] | CutShort[BoolArray]
        try:
            looks = space.look([node for _, _, node in batch], -math.inf)
        except KeyboardInterrupt:
            looks, interrupted = CutShort(), True
        if isinstance(looks, CutShort):  # it was cut short: the nodes stay as they are
            nodes += batch
            heapq.heapify(nodes)
            break
        n_nodes += len(batch)
        for (negative, _, node), look in zip(batch, looks, strict=True):
            bound = min(-negative, look.bound)
            if look.answer is not None and look.score > -math.inf:
                key = look.answer.tobytes()
                if key not in met:
                    heapq.heappush(highest, look.score)
                    if len(highest) > k:
                        heapq.heappop(highest)
                met[key] = look.score, look.answer
            if bound > -math.inf:
                for child in look.children or _without(node, look.answer):
                    heapq.heappush(nodes, (-bound, next(numbers), child))
        if len(highest) == k:  # what a bound has to exceed for its node to matter
            least = highest[0] + limits.gap * max(1.0, abs(highest[0]))
    best = sorted(met.values(), key=lambda pair: -pair[0])
    left = [score for score, _ in best[k:]] + [-negative for negative, _, _ in nodes]
    return Ranked(
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
    """Yield parts of a node that have all its assignments among them but one."""
    decided = node.decided.copy()
    for variable in np.flatnonzero(node.decided == OPEN).tolist():
        value = int(answer is not None and answer[variable])
        other = decided.copy()
        other[variable] = 1 - value
        yield node._replace(decided=other)
        decided[variable] = value
