"""Sentences with tags and heads, and their heads as the target of a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROOT = -1
"""The head of a root word."""

GAP = -100
"""The head of a word whose head is not annotated, and the filling behind a sentence."""


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence, their tags, heads, and relations to the heads."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...] | None
    """Indices of words from 0, -1 for the root, and -100 for a gap, a word without an annotated
    head; None if no word has one. `padded_heads` has a row of gaps then."""
    relations: tuple[str, ...] = ()
    """A label for each word, ``_`` if unknown; empty if the source has no labels."""

    def __len__(self) -> int:
        return len(self.tags)


def padded_heads(
    sentences: Sequence[TaggedSentence],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the heads of a batch of sentences as the target of a loss, and their lengths.

    Gaps and the filling are both -100, PyTorch's `ignore_index`; the lengths tell them apart. So
    give both to the loss: ``criterion(scores, torch.from_numpy(heads),
    lengths=torch.from_numpy(lengths))``. A loss sums over all trees that agree with the heads
    outside the gaps.

    Parameters
    ----------
    sentences
        The sentences.

    Returns
    -------
    heads
        (len(sentences), n) indices of words from 0, -1 for the root, -100 for gaps, and for words
        beyond the length.
    lengths
        (len(sentences),) numbers of words.
    """
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    heads = np.full((len(sentences), max(lengths, default=0)), GAP, dtype=np.int64)
    for row, sentence in zip(heads, sentences, strict=True):
        if sentence.heads is not None:
            row[: len(sentence)] = sentence.heads
    return heads, lengths
