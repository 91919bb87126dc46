"""Estimates of the size of a search tree without a complete search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import FloatArray, checked_count
from lpsmap_decode import Evaluation, Unfinished
from lpsmap_search.box_space import BoxSpace
from lpsmap_search.checks import checked_nonnegative, checked_time


@dataclass(frozen=True)
class TreeSize:
    """Estimates from random dives, with their standard errors."""

    n_nodes: float
    """Estimated number of nodes of the tree."""
    n_nodes_error: float
    """Infinite after a single dive."""
    seconds: float
    """Estimated processor time to evaluate all nodes."""
    seconds_error: float
    """Infinite after a single dive."""
    n_dives: int
    """Dives down the tree."""
    n_visited: int
    """Nodes evaluated on the dives; the root is counted once."""
    seconds_per_node: float
    """Mean processor time per evaluated node."""


def tree_size(
    space: BoxSpace[Any],
    score: float,
    *,
    gap: float = 0.01,
    n_dives: int = 100,
    max_time: float | None = None,
    seed: int = 0,
    report: Callable[[TreeSize], None] | None = None,
) -> TreeSize:
    """Estimate the number of nodes and the processor time of a search (Knuth 1975).

    A dive descends from the root to random children, until a node has none. The weight of a visited
    node is the product of the numbers of children above it. The mean over dives is an unbiased
    estimate of the size of the tree. Its variance is high if the tree is unbalanced: rare deep
    dives then contain most of the nodes, and few dives underestimate both the size and the error.
    The tree is that of a search that knows the best answer from the start.

    Parameters
    ----------
    space
        The space, such as `LagrangianSpace`.
    score
        The score of a known answer.
    gap
        The gap of the search: nodes with bounds up to ``score + gap * max(1, abs(score))`` are
        pruned.
    n_dives
        Maximum number of dives, at least 1.
    max_time
        Time limit in seconds, or None; at least one dive is made.
    seed
        The seed of random numbers.
    report
        Called after every dive with the current estimate.

    Raises
    ------
    ValueError
        If an option is out of range, or the score is not finite.
    """
    if not math.isfinite(score):
        raise ValueError(f"score: got {score}; expected the finite score of a known answer.")
    least = score + checked_nonnegative("gap", gap) * max(1.0, abs(score))
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
    """The evaluation of a node, and its processor time."""

    evaluation: Evaluation[Any, Any]
    seconds: float

    @classmethod
    def of(cls, space: BoxSpace[Any], node: Any, score: float) -> _Visit:
        begin = time.process_time()
        evaluations = space.evaluate([node], score)
        if isinstance(evaluations, Unfinished):
            raise RuntimeError(
                "space: ran out of time at a node; remove the time limit of the space."
            )
        return cls(evaluations[0], time.process_time() - begin)


def _dive(
    space: BoxSpace[Any], root: _Visit, scores: tuple[float, float], rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return estimates of nodes and seconds, and both without the root."""
    score, least = scores
    visit, bound, weight = root, root.evaluation.bound, 1.0
    n_nodes, seconds, n_visited, spent = 1.0, root.seconds, 0.0, 0.0
    while bound > least and visit.evaluation.children:
        children = visit.evaluation.children
        weight *= len(children)
        visit = _Visit.of(space, children[int(rng.integers(len(children)))], score)
        n_nodes, seconds = n_nodes + weight, seconds + weight * visit.seconds
        n_visited, spent = n_visited + 1.0, spent + visit.seconds
        bound = min(bound, visit.evaluation.bound)
    return n_nodes, seconds, n_visited, spent


def _estimate(dives: FloatArray, root: _Visit) -> TreeSize:
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
