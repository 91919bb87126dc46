"""The dependency model with valence."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search.half_spans import LEFT, RIGHT, half_spans
from lpsmap_search.symbols import SymbolModel, checked_symbols

_SIDES = {LEFT: "left", RIGHT: "right"}


class DependencyModelWithValence(SymbolModel):
    """Projective dependency trees over tags (Klein & Manning 2004).

    The root generates the tag of the root word. On each side, every word decides whether to
    generate another child or stop, depending on its tag and on whether it already has a child on
    that side; the tag of a child depends on the tag of the head and the side.

    Parameters
    ----------
    tags
        The T tags, in the order of their indices.

    Raises
    ------
    ValueError
        If there are no tags, or a tag is repeated.

    Notes
    -----
    There are ``2 T^2 + 9 T`` parameters in ``6 T + 1`` blocks: the tags of the root; the tags of
    left children of each tag, then of right children; then continue and stop, for the left and
    right side, for heads without and with a child on that side, and for each tag.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = checked_symbols("tags", tags)
        sides = [_SIDES[side] for side in (LEFT, RIGHT)]
        blocks = [[f"root {tag}" for tag in self.tags]]
        blocks += [
            [f"{head} {side} {child}" for child in self.tags]
            for side in sides
            for head in self.tags
        ]
        blocks += [
            [f"{tag} {side} {valence} {what}" for what in ("continue", "stop")]
            for side in sides
            for valence in ("no child", "child")
            for tag in self.tags
        ]
        super().__init__(blocks, self.tags)

    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of all projective trees with one root word."""
        n, tag = len(sentence), np.array(sentence, dtype=np.int64)
        spans = half_spans(n)
        item, left, right, head, child, first = spans.attach.T
        side = np.where(child < head, LEFT, RIGHT)
        used = [self._child(side, tag[head], tag[child]), self._decision(side, first, tag[head], 0)]
        tails = np.stack([left, right], axis=1)
        build.edges(item, tails, child * n + head, np.stack(used, axis=1))
        build.edges(spans.join[:, 0], spans.join[:, 1:])
        item, tail, head, side, first = spans.stop.T
        build.edges(item, tail, additionals=self._decision(side, first, tag[head], 1))
        item, left, right, word = spans.root.T
        build.edges(item, np.stack([left, right], axis=1), word * n + word, tag[word])
        return spans.goal

    def variables_shape(self, sentence: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a sentence's arcs, with the layout of `DMVTree`."""
        return len(sentence), len(sentence)

    def arcs(self, heads: Mapping[str, Collection[str]]) -> IntArray:
        """Return the parameters of arcs between tags on both sides, and of arcs from the root.

        Parameters
        ----------
        heads
            For each tag of a head, or ``"root"``, the tags of its dependents. Unknown tags are
            ignored.
        """
        number = {tag: i for i, tag in enumerate(self.tags)}
        numbers = [number[tag] for tag in heads.get("root", ()) if tag in number]
        for head in heads.keys() & number.keys():
            child = np.array([number[tag] for tag in heads[head] if tag in number], dtype=np.int64)
            for side in (LEFT, RIGHT):
                numbers += self._child(
                    np.full_like(child, side), np.full_like(child, number[head]), child
                ).tolist()
        return np.array(sorted(numbers), dtype=np.int64)

    def tree_scores(
        self, sentences: Sequence[Sequence[str]], scores: FloatArray
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the arguments of `DMVTree` for sentences, given scores of the parameters.

        Parameters
        ----------
        sentences
            S sequences of tags.
        scores
            (M,) scores of the parameters, such as their logarithms; -inf allowed.

        Returns
        -------
        arcs
            (S, n, n) scores of the arcs, where n is the length of the longest sentence; zeros
            beyond a sentence.
        decisions
            (S, n, 2, 2, 2) scores of the decisions, zeros beyond a sentence.
        lengths
            (S,) lengths of the sentences.
        """
        rows = [np.array(self.encode(sentence), dtype=np.int64) for sentence in sentences]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        n = int(lengths.max(initial=0))
        tag = np.zeros((len(rows), n), dtype=np.int64)
        for padded, row in zip(tag, rows, strict=True):
            padded[: len(row)] = row
        word = np.arange(n)
        side = np.where(word[:, None] < word, LEFT, RIGHT)  # [child, head]
        arcs = scores[self._child(side, tag[:, None, :], tag[:, :, None])]
        arcs[:, word, word] = scores[tag]
        sides, valences, stops = np.indices((2, 2, 2))
        tags = tag[:, :, None, None, None]
        decisions = scores[self._decision(sides, 1 - valences, tags, stops)]
        beyond = word >= lengths[:, None]
        arcs[beyond] = decisions[beyond] = 0.0
        arcs.swapaxes(1, 2)[beyond] = 0.0
        return arcs, decisions, lengths

    def _child(self, side: IntArray, head: IntArray, child: IntArray) -> IntArray:
        t = len(self.tags)
        return t + (side * t + head) * t + child

    def _decision(
        self, side: IntArray, first: IntArray, head: IntArray, stops: IntArray | int
    ) -> IntArray:
        t = len(self.tags)
        return t + 2 * t * t + ((side * 2 + 1 - first) * t + head) * 2 + stops
