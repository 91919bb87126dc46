"""A factor type: dependency trees with scores for the decisions of heads."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, LinearConstraints, Variables
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import (
    DynamicProgram,
    HypergraphBuilder,
    Row,
    check_square,
    one_of_each_group,
)
from lpsmap_search.half_spans import LEFT, RIGHT, half_spans

DECISIONS = 8
"""Decisions of a word: on two sides, without and with a child there, continue or stop."""


class DMVTree(DynamicProgram):
    """Projective dependency trees with one root word, with the decisions of the valence model.

    In the dependency model with valence (Klein & Manning 2004), every word decides on each side
    whether to generate another child or stop, depending on whether it already has a child on that
    side. The variables are the tree's arcs, as in ``DepTree(projective=True, single_root=True)``;
    the additionals count its decisions. The oracle is a dynamic program in O(n^3) without states
    for the valence.

    Parameters
    ----------
    variables
        Arcs, of shape ``(..., n, n)``: ``[..., m, h]`` is the arc from word h to word m, and the
        diagonal ``[..., m, m]`` the arc from the root to m.
    decisions
        Scores of shape ``(..., n, 2, 2, 2)``: ``[..., h, side, valence, stops]`` for every decision
        of word h on its left (side 0) or right (1), without a child there (valence 0) or with one
        (1), to continue (0) or stop (1).
    lengths
        Integers in the shape of the leading axes: sentence b covers ``[b, :lengths[b],
        :lengths[b]]``, and the decisions of its first ``lengths[b]`` words. An empty sentence has
        the empty tree.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If the arcs are not square, the number of decisions does not match, or a length is negative
        or exceeds `n`.

    Notes
    -----
    With k children on a side, a word continues once without a child and k - 1 times with one, and
    stops with one; without children it stops without a child. The arcs therefore determine the
    decisions. `DependencyModelWithValence.tree_scores` computes the scores from parameters of the
    model.
    """

    variables_ndim = 2
    length_axes = (0, 1)

    def __init__(
        self, variables: Variables, decisions: Any, *, lengths: npt.ArrayLike | None = None
    ) -> None:
        super().__init__(variables, decisions, lengths=lengths)
        check_square(self, "one row for every word, with an arc from every other word and the root")
        rows = self.event_shape[0]
        if self.n_additionals != DECISIONS * rows:
            raise ValueError(
                f"DMVTree: decisions has {self.n_additionals} scores per factor; expected "
                f"{DECISIONS * rows}: shape (..., {rows}, 2, 2, 2)."
            )

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every word has one head."""
        return one_of_each_group(self, np.rint(np.sqrt(np.diff(self.offsets))))

    @property
    def decisions(self) -> Any:
        """The scores of the decisions, (..., n, 2, 2, 2)."""
        return self.additionals.reshape((*self.batch_shape, self.event_shape[0], 2, 2, 2))

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of a sentence, and return its goal."""
        n = row.event_shape[0]
        if n == 0:
            build.edge(0)
            return 0
        spans = half_spans(n)
        item, left, right, head, child, first = spans.attach.T
        takes = _decision(head, np.where(child < head, LEFT, RIGHT), 1 - first, 0)
        build.edges(item, np.stack([left, right], axis=1), child * n + head, takes)
        build.edges(spans.join[:, 0], spans.join[:, 1:])
        item, tail, head, side, none = spans.stop.T
        build.edges(item, tail, additionals=_decision(head, side, 1 - none, 1))
        item, left, right, word = spans.root.T
        build.edges(item, np.stack([left, right], axis=1), word * n + word)
        return spans.goal

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"heads": [...]}``, indices of words from 0, -1 for the root.

        Examples
        --------
        >>> from lpsmap import FactorGraph
        >>> from lpsmap_search import DMVTree
        >>> tree = DMVTree(FactorGraph().variable((2, 2)), np.zeros((2, 2, 2, 2)))
        >>> tree.decode(np.array([[1, 0], [1, 0]]), np.empty(0))
        {'heads': [-1, 0]}
        """
        words = np.arange(len(variables))
        heads = np.asarray(variables).argmax(axis=-1) if len(words) else words
        return {"heads": np.where(heads == words, -1, heads).tolist()}

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 3)), np.zeros((3, 2, 2, 2))),
            cls(graph.variable((3, 4, 4)), np.zeros((3, 4, 2, 2, 2)), lengths=[4, 0, 2]),
            cls(graph.variable((2, 1, 1)), np.zeros((2, 1, 2, 2, 2)), lengths=[1, 0]),
        ]


def _decision(head: IntArray, side: IntArray, valence: IntArray, stops: int) -> IntArray:
    return ((head * 2 + side) * 2 + valence) * 2 + stops
