"""Structures as sets of indices: segments, spans, pairs and subsets."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_torch.built_graph import factor_type
from lpsmap_torch.distributions.positions import lengths_of, present
from lpsmap_torch.distributions.structured_distribution import StructuredDistribution
from lpsmap_torch.forms import Cells, Segments, TreeSpans


class SemiMarkov(StructuredDistribution):
    """Divisions of a sequence into segments with a state each (Sarawagi & Cohen 2004).

    Values are segments, ``(..., L, 3)``: the first position, the one after the last, and the state.

    Parameters
    ----------
    scores
        ``(..., L, D, S)``: ``[..., t, d, s]`` of the segment of state s that begins at position t
        and has ``d + 1`` positions.
    transitions
        Scores of the states of consecutive segments, which broadcast to ``(..., S, S)``; None for
        zeros.
    lengths
        Integers that broadcast to the batch.
    validate_args
        As in `StructuredDistribution`.
    """

    def __init__(
        self,
        scores: Tensor,
        transitions: Tensor | None = None,
        *,
        lengths: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(
            _segmentations,
            scores,
            event_ndim=3,
            form=_segments,
            validate_args=validate_args,
            transitions=transitions,
            lengths=lengths,
        )


def _segments(sizes: tuple[int, ...]) -> Segments:
    return Segments(sizes, sizes[0])


def _segmentations(u: Variables, transitions: Any, lengths: Any) -> Factor:
    ends = lengths_of("SemiMarkov", lengths, u.shape[:-3])
    return factor_type("SemiMarkov")(u, transitions, lengths=ends)


class BinaryTree(StructuredDistribution):
    """Binary trees over the words of a sentence: constituency.

    Values are the ``2 n - 1`` spans of a tree, the first and the last word of each, followed by its
    label if there are any: ``(..., 2 n - 1, 2)`` or ``(..., 2 n - 1, 3)``. A span precedes its
    parts.

    Parameters
    ----------
    scores
        ``(..., n, n)``: ``[..., i, j]`` of the span of words i to j, both included; or
        ``(..., n, n, K)``.
    labelled
        Whether every span has one of `K` labels, on the last axis.
    lengths, mask, validate_args
        As in `Tree`.
    """

    def __init__(
        self,
        scores: Tensor,
        *,
        labelled: bool = False,
        lengths: Any = None,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(
            _binary_trees,
            scores,
            event_ndim=3 if labelled else 2,
            form=_tree_spans,
            validate_args=validate_args,
            labelled=labelled,
            lengths=lengths,
            mask=mask,
        )


def _tree_spans(sizes: tuple[int, ...]) -> TreeSpans:
    return TreeSpans(sizes, max(2 * sizes[0] - 1, 0))


def _binary_trees(u: Variables, labelled: bool, lengths: Any, mask: Any) -> Factor:
    words = present("BinaryTree", u, 3 if labelled else 2, lengths, mask, n_axes=2)
    return factor_type("BinaryTree")(words.variables, labelled, lengths=words.lengths)


class Alignment(StructuredDistribution):
    """Monotone alignments of two sequences: paths from corner to corner.

    Values are the pairs on the path, ``(..., m + n - 1, 2)``. It is the distribution of soft
    dynamic time warping (Cuturi & Blondel 2017).

    Parameters
    ----------
    scores
        ``(..., m, n)`` scores of aligning two elements, such as minus their distance.
    lengths
        Integers that broadcast to ``(..., 2)``, the lengths of both sequences.
    validate_args
        As in `StructuredDistribution`.
    """

    def __init__(
        self, scores: Tensor, *, lengths: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(
            _alignments,
            scores,
            event_ndim=2,
            form=_path,
            validate_args=validate_args,
            lengths=lengths,
        )


def _path(sizes: tuple[int, ...]) -> Cells:
    return Cells(sizes, max(sum(sizes) - 1, 0))


def _alignments(u: Variables, lengths: Any) -> Factor:
    ends = lengths_of("Alignment", lengths, (*u.shape[:-2], 2))
    return factor_type("Alignment")(u, lengths=ends)


class Subset(StructuredDistribution):
    """Subsets of k, or at most k, of n elements.

    Values are the elements in order, ``(..., k)`` for the largest k, with -100 after the last.

    Parameters
    ----------
    scores
        ``(..., n)`` scores of the elements.
    k
        The size of the subsets: integers that broadcast to the batch.
    exact
        Whether subsets have exactly `k` elements, rather than at most `k`.
    lengths, mask
        Which elements take part, as in `Chain`.
    validate_args
        As in `StructuredDistribution`.
    """

    def __init__(
        self,
        scores: Tensor,
        k: Any,
        *,
        exact: bool = True,
        lengths: Any = None,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        k = k.cpu() if isinstance(k, Tensor) else k
        most = int(np.max(np.asarray(k), initial=0))
        super().__init__(
            _subsets,
            scores,
            event_ndim=1,
            form=functools.partial(Cells, most=most),
            validate_args=validate_args,
            k=k,
            exact=exact,
            lengths=lengths,
            mask=mask,
        )


def _subsets(u: Variables, k: Any, exact: bool, lengths: Any, mask: Any) -> Factor:
    items = present("Subset", u, 1, lengths, mask)
    k = np.asarray(k)
    return factor_type("TopK")(items.variables, k, exact, lengths=items.lengths)
