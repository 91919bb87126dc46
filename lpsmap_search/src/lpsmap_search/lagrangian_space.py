"""Boxes of parameters as nodes of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_decode import Look
from lpsmap_search.arrays import FloatArray
from lpsmap_search.box_space import Arrays, BoxSpace, stacked, unstacked
from lpsmap_search.branching import Branch, halves
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.lagrangian import Asked, Bounds, bound_boxes
from lpsmap_search.shares import first_box, totals
from lpsmap_search.viterbi import memory_for

__all__ = ["Box", "LagrangianSpace"]


AIM = 0.02
"""Steps aim at this share of the score below the threshold: those that aim at the threshold itself
stop just above it in thousands of boxes."""

MOST_BOXES = 32
"""That are looked at together; half of them are those of the highest bounds."""

MOST_WORK = 30_000_000
"""Scores that are added for boxes that are looked at together: a tenth of a second."""


class Box(NamedTuple):
    """A box of parameters, and multipliers to begin with."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds."""
    multipliers: FloatArray
    """(M + 1,) that of the constraint last."""


class LagrangianSpace(BoxSpace[Box]):
    """What a search asks about boxes; its answers are counts.

    It can be pickled, and looked at from many threads.

    Parameters
    ----------
    corpus
        The sentences.
    gap
        Of the search.
    n_steps
        Polyak steps for a box.
    constraint
        What counts satisfy, or None. The bounds cover unequal structures for equal sentences.
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
        self._asked = (
            Asked(np.zeros(corpus.model.n_parameters), 0.0)
            if constraint is None
            else Asked(constraint.weights, constraint.least)
        )
        self._totals = totals(corpus)
        self._first_box = first_box(corpus, self._totals)
        self._gap, self._n_steps = gap, n_steps
        work = n_steps * len(corpus.derivations.uses)
        self.batch = min(max(MOST_WORK // work, 2), MOST_BOXES)

    def root(self) -> Box:
        """Return the box of all parameters."""
        return Box(self._first_box, np.zeros(len(self._first_box) // 2 + 1))

    def pack(self, nodes: Sequence[Box]) -> Arrays:
        """Return boxes as arrays."""
        return stacked(nodes)

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Box]:
        """Return the boxes that `pack` was given."""
        return unstacked(self.root(), arrays)

    def look(self, nodes: Sequence[Box], score: float) -> list[Look[Box, FloatArray]]:
        """Bound boxes, and divide those whose bound is too high."""
        boxes = np.stack([node.bounds for node in nodes])
        multipliers = np.stack([node.multipliers for node in nodes])
        size, n = boxes.shape[0], boxes.shape[1] // 2
        results = Bounds(
            np.empty(size),
            np.empty(size, dtype=np.int64),
            np.empty(size),
            np.empty(size),
            np.empty(size, dtype=np.bool_),
            np.empty((size, n)),
            np.empty(size),
        )
        scale = max(1.0, abs(score))
        threshold = score + self._gap * scale
        bound_boxes(
            self._derivations,
            self._first,
            self._totals,
            self._asked,
            boxes,
            multipliers,
            threshold,
            AIM * scale,
            self._n_steps,
            memory_for(self._derivations),
            results,
        )
        return [
            Look(
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
    branch = Branch(
        int(results.branch[i]),
        float(results.below[i]),
        float(results.above[i]),
        bool(results.lower[i]),
    )
    return [Box(half, multipliers) for half in halves(box, branch)]
