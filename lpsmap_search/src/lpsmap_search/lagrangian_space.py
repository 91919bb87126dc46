"""The search space of boxes of parameters, bounded by the Lagrangian relaxation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_decode import Evaluation
from lpsmap_search.box_space import Arrays, BoxSpace
from lpsmap_search.branching import Branch, halves
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.lagrangian import Bounds, ConstraintRow, bound_boxes
from lpsmap_search.shares import first_box, totals
from lpsmap_search.viterbi import new_workspace

AIM = 0.02
"""The target of steps is this share of the score below the threshold: with the threshold itself as
the target, thousands of boxes stop just above it."""

MAX_BOXES = 32
"""Maximum number of boxes evaluated together; half of them have the highest bounds."""

MAX_WORK = 30_000_000
"""Maximum number of additions of scores for boxes evaluated together: a tenth of a second."""


class Box(NamedTuple):
    """A box of parameters, and initial multipliers."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds."""
    multipliers: FloatArray
    """(M + 1,) multipliers, that of the constraint last."""


class LagrangianSpace(BoxSpace[Box]):
    """The search space of the Lagrangian relaxation.

    Parameters
    ----------
    corpus, gap, constraint
        As for `BoxSpace`.
    n_steps
        Number of Polyak steps for a box.
    """

    def __init__(
        self,
        corpus: Corpus,
        gap: float,
        *,
        n_steps: int = 20,
        constraint: CountConstraint | None = None,
    ) -> None:
        self._derivations, self._first = corpus.derivations, corpus.model.first
        self._constraint_row = (
            ConstraintRow(np.zeros(corpus.model.n_parameters), 0.0)
            if constraint is None
            else ConstraintRow(constraint.weights, constraint.least)
        )
        self._totals = totals(corpus)
        self._first_box = first_box(corpus, self._totals)
        self._gap, self._n_steps = gap, n_steps
        work = n_steps * len(corpus.derivations.uses)
        self.batch = min(max(MAX_WORK // work, 2), MAX_BOXES)

    def root(self) -> Box:
        """Return the box of all parameters."""
        return Box(self._first_box, np.zeros(len(self._first_box) // 2 + 1))

    def record(self, node: Box) -> Arrays:
        """Return a box as arrays."""
        return node._asdict()

    def node(self, record: Arrays) -> Box:
        """Return the box of a record."""
        return Box(**record)

    def evaluate(self, nodes: Sequence[Box], score: float) -> list[Evaluation[Box, FloatArray]]:
        """Bound boxes, and divide those that are not pruned."""
        boxes = np.stack([node.bounds for node in nodes])
        multipliers = np.stack([node.multipliers for node in nodes])
        size, n = boxes.shape[0], boxes.shape[1] // 2
        results = Bounds(
            np.empty(size),
            np.empty(size, dtype=np.int64),
            np.empty(size),
            np.empty(size),
            np.empty((size, n)),
            np.empty(size),
        )
        scale = max(1.0, abs(score))
        threshold = score + self._gap * scale
        bound_boxes(
            self._derivations,
            self._first,
            self._totals,
            self._constraint_row,
            boxes,
            multipliers,
            threshold,
            AIM * scale,
            self._n_steps,
            new_workspace(self._derivations),
            results,
        )
        return [
            Evaluation(
                float(results.bound[i]),
                _children(boxes[i], multipliers[i], i, results)
                if results.bound[i] > threshold
                else (),
                results.counts[i] if results.value[i] > score else None,
                float(results.value[i]),
            )
            for i in range(size)
        ]


def _children(box: FloatArray, multipliers: FloatArray, i: int, results: Bounds) -> list[Box]:
    branch = Branch(int(results.branch[i]), float(results.below[i]), float(results.above[i]))
    return [Box(half, multipliers) for half in halves(box, branch)]
