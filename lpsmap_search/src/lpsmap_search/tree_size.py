"""Estimates of how large a search tree is, without a search of all of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from lpsmap_core import Deadline
from lpsmap_decode import CutShort, Look
from lpsmap_search.arrays import FloatTable
from lpsmap_search.checks import checked_count, checked_number, checked_time

__all__ = ["RootedSpace", "TreeSize", "tree_size"]


class RootedSpace(Protocol):
    """A `Space` that knows the node with all answers below it."""

    def root(self) -> Any:
        """Return the root."""
        ...

    def look(self, nodes: Any, score: float) -> Any:
        """Bound nodes and branch; see `lpsmap_decode.Space`."""
        ...


@dataclass(frozen=True)
class TreeSize:
    """Estimates from random dives, with their standard errors."""

    n_nodes: float
    """Of the tree."""
    n_nodes_error: float
    """Infinite after a single dive."""
    seconds: float
    """Processor time that looks at all nodes take."""
    seconds_error: float
    """Infinite after a single dive."""
    n_dives: int
    """Dives down the tree."""
    n_visited: int
    """Nodes that were looked at on the dives; the root once."""
    seconds_per_node: float
    """Mean processor time of a look, over the nodes visited."""


def tree_size(
    space: RootedSpace,
    score: float,
    *,
    gap: float = 0.01,
    n_dives: int = 100,
    max_time: float | None = None,
    seed: int = 0,
    report: Callable[[TreeSize], None] | None = None,
) -> TreeSize:
    """Estimate how many nodes a search looks at, and how long that takes (Knuth 1975).

    A dive goes from the root to a random child of each node, until a node has none. A node that it
    meets stands for as many as the numbers of children above it multiply to. The mean over dives is
    the size of the tree, without bias. Its variance is high where the tree is lopsided: then rare
    deep dives have most of the nodes, and few dives give too small an estimate, with too small an
    error. The tree is the one of a search that knows the best answer from the beginning.

    Parameters
    ----------
    space
        What is searched, such as `LagrangianSpace`, with a method ``root()``.
    score
        Of the answer that is known.
    gap
        Of the search: nodes with bounds up to ``score + gap * max(1, abs(score))`` are pruned.
    n_dives
        The most dives, at least 1.
    max_time
        Limit of the seconds, or None; there is at least one dive.
    seed
        Of the random numbers.
    report
        Called after every dive with the estimate so far.

    Raises
    ------
    ValueError
        If an option is out of range, or the score is not finite.
    """
    if not math.isfinite(score):
        raise ValueError(f"score: got {score}; expected that of a known answer, a finite number.")
    least = score + checked_number("gap", gap) * max(1.0, abs(score))
    n_dives = checked_count("n_dives", n_dives)
    deadline = Deadline(checked_time(max_time))
    rng = np.random.default_rng(seed)
    root = _Visit.of(space, space.root(), score)
    dives = np.zeros((0, 4))
    while len(dives) < n_dives and not (len(dives) and deadline.passed):
        dives = np.append(dives, [_dive(space, root, (score, least), rng)], axis=0)
        if report is not None:
            report(_estimate(dives, root))
    return _estimate(dives, root)


class _Visit(NamedTuple):
    """A look at a node, and the processor time that it took."""

    look: Look[Any, Any]
    seconds: float

    @classmethod
    def of(cls, space: RootedSpace, node: Any, score: float) -> _Visit:
        begin = time.process_time()
        looks = space.look([node], score)
        if isinstance(looks, CutShort):
            raise RuntimeError("space: ran out of time at a node; give it no limit of its own.")
        return cls(looks[0], time.process_time() - begin)


def _dive(
    space: RootedSpace, root: _Visit, scores: tuple[float, float], rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return estimates of the nodes and the seconds, and both as they were below the root."""
    score, least = scores
    visit, bound, weight = root, root.look.bound, 1.0
    n_nodes, seconds, n_visited, spent = 1.0, root.seconds, 0.0, 0.0
    while bound > least and visit.look.children:
        children = visit.look.children
        weight *= len(children)
        visit = _Visit.of(space, children[int(rng.integers(len(children)))], score)
        n_nodes, seconds = n_nodes + weight, seconds + weight * visit.seconds
        n_visited, spent = n_visited + 1.0, spent + visit.seconds
        bound = min(bound, visit.look.bound)
    return n_nodes, seconds, n_visited, spent


def _estimate(dives: FloatTable, root: _Visit) -> TreeSize:
    n = len(dives)
    mean = dives.mean(axis=0)
    error = dives.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.full(4, math.inf)
    n_visited = 1 + round(float(dives[:, 2].sum()))
    return TreeSize(
        float(mean[0]),
        float(error[0]),
        float(mean[1]),
        float(error[1]),
        n,
        n_visited,
        (root.seconds + float(dives[:, 3].sum())) / n_visited,
    )
