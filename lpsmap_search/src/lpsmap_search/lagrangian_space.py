"""Boxes of parameters as nodes of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Look, Space
from lpsmap_search.arrays import FloatArray
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.lagrangian import Asked, Bounds, bound_boxes
from lpsmap_search.viterbi import memory_for

__all__ = ["Box", "LagrangianSpace"]


AIM = 0.02
"""Steps aim at this share of the score below the threshold: those that aim at the threshold itself
stop just above it in thousands of boxes."""

NARROW = 1e-9
"""Boxes of this width are not divided: what is left of their gap is rounding, or the constraint's,
whose multiplier leaves one where no structures satisfy it with equality."""


class Box(NamedTuple):
    """A box of parameters, and multipliers to begin with."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds."""
    multipliers: FloatArray
    """(M + 1,) that of the constraint last."""


class LagrangianSpace(Space[Box, FloatArray]):
    """What a search asks about boxes; its answers are counts.

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

    batch = 32

    def __init__(
        self,
        corpus: Corpus,
        gap: float,
        n_steps: int = 40,
        constraint: CountConstraint | None = None,
    ) -> None:
        self._corpus, self._gap, self._n_steps = corpus, gap, n_steps
        self._asked = (
            Asked(np.zeros(corpus.model.n_parameters), 0.0)
            if constraint is None
            else Asked(constraint.weights, constraint.least)
        )
        self._memory = memory_for(corpus.derivations)

    def root(self) -> Box:
        """Return the box of all parameters."""
        n = self._corpus.model.n_parameters
        return Box(np.concatenate([np.zeros(n), np.ones(n)]), np.zeros(n + 1))

    def look(self, nodes: Sequence[Box], score: float) -> list[Look[Box, FloatArray]]:
        """Bound boxes, and halve those whose bound is too high."""
        model = self._corpus.model
        n, size = model.n_parameters, len(nodes)
        boxes = np.stack([node.bounds for node in nodes])
        multipliers = np.stack([node.multipliers for node in nodes])
        results = Bounds(
            np.empty(size),
            np.empty(size, dtype=np.int64),
            np.empty(size),
            np.empty(size, dtype=np.bool_),
            np.empty((size, n)),
            np.empty(size),
        )
        scale = max(1.0, abs(score))
        threshold = score + self._gap * scale
        bound_boxes(
            self._corpus.derivations,
            model.first,
            self._asked,
            boxes,
            multipliers,
            threshold,
            AIM * scale,
            self._n_steps,
            self._memory,
            results,
        )
        looks = []
        for i in range(size):
            children = []
            m, at = int(results.branch[i]), float(results.at[i])
            if results.bound[i] > threshold and boxes[i, n + m] > boxes[i, m] + NARROW:
                below, above = boxes[i].copy(), boxes[i].copy()
                below[n + m] = above[m] = at
                children = [Box(below, multipliers[i]), Box(above, multipliers[i])]
                if not results.lower[i]:
                    children.reverse()
            looks.append(
                Look(
                    float(results.bound[i]),
                    children,
                    results.counts[i] if results.value[i] > score else None,
                    float(results.value[i]),
                )
            )
        return looks
