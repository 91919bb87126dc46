"""Sentences of a treebank as padded batches of numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.batching import batches_by_length, random_subset
from lpsmap_search import TaggedSentence, padded_heads, read_conllu

__all__ = ["Batch", "Treebank", "Vocabulary", "batches", "evaluation_batches", "make_batch"]

FOLDERS = {"en": "en_ewt", "vi": "vi_vtb"}

NUMBER = re.compile(r"[0-9]+|[0-9]+\.[0-9]+|[0-9]+[0-9,]+")

UNKNOWN, ROOT = 0, 1

PUNCTUATION = "PUNCT"


@dataclass(frozen=True)
class Treebank:
    """The parts of a treebank."""

    train: list[TaggedSentence]
    dev: list[TaggedSentence]
    test: list[TaggedSentence]

    @classmethod
    def read(cls, data: Path, language: str) -> Treebank:
        """Read the treebank of a language, "en" or "vi", below a folder of data sets."""
        folder = data / "ud" / FOLDERS[language]
        train, dev, test = (
            list(read_conllu(folder / f"{part}.conllu.gz", punctuation=True))
            for part in ("train", "dev", "test")
        )
        return cls(train, dev, test)

    def part(self, n_train: int | None, n_dev: int | None, n_test: int | None) -> Treebank:
        """Return a deterministic random subset of a treebank."""
        of_parts = zip((self.train, self.dev, self.test), (n_train, n_dev, n_test), strict=True)
        return Treebank(*(random_subset(part, n) for part, n in of_parts))


class Vocabulary:
    """Indices of the words, tags and relations of training sentences.

    Words are in lower case and numbers are one word, as in Kiperwasser & Goldberg (2016).

    Attributes
    ----------
    words, tags, relations
        The index of each; 0 is unknown, and 1 the root token.
    counts
        (len(words) + 2,) the count of each word.
    """

    def __init__(self, sentences: Sequence[TaggedSentence]) -> None:
        seen = Counter(normal(word) for s in sentences for word in s.words)
        self.words = {word: i for i, word in enumerate(seen, start=2)}
        self.counts = torch.tensor([0.0, 0.0, *seen.values()])
        self.tags = _numbered(tag for s in sentences for tag in s.tags)
        self.relations = _numbered(universal(r) for s in sentences for r in s.relations)


def normal(word: str) -> str:
    """Return the normal form of a word in the vocabulary."""
    return "<number>" if NUMBER.fullmatch(word) else word.lower()


def universal(relation: str) -> str:
    """Return a relation without its subtype: nmod for nmod:poss."""
    return relation.split(":")[0]


def _numbered(names: Iterator[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(sorted(set(names)), start=2)}


@dataclass(frozen=True)
class Batch:
    """Padded sentences; the root token comes first in words and tags.

    Attributes
    ----------
    words, tags
        (size, length + 1)
    lengths
        (size,) without the root.
    heads
        (size, length) from 0, -1 for the root, -100 beyond the length.
    relations
        (size, length) 0 for relations not seen in training.
    counted
        (size, length) which words are not punctuation.
    """

    words: Tensor
    tags: Tensor
    lengths: Tensor
    heads: Tensor
    relations: Tensor
    counted: Tensor


def make_batch(sentences: Sequence[TaggedSentence], vocabulary: Vocabulary) -> Batch:
    """Return sentences as indices."""
    length = max(map(len, sentences))

    def padded(rows: Sequence[Sequence[int]], fill: int, first: Sequence[int] = ()) -> Tensor:
        return torch.tensor([[*first, *row, *[fill] * (length - len(row))] for row in rows])

    def numbers(names: Sequence[str], known: dict[str, int]) -> list[int]:
        return [known.get(name, UNKNOWN) for name in names]

    words = [numbers(list(map(normal, s.words)), vocabulary.words) for s in sentences]
    tags = [numbers(s.tags, vocabulary.tags) for s in sentences]
    relations = [
        numbers(list(map(universal, s.relations)), vocabulary.relations) for s in sentences
    ]
    heads, lengths = map(torch.from_numpy, padded_heads(sentences))
    return Batch(
        words=padded(words, UNKNOWN, [ROOT]),
        tags=padded(tags, UNKNOWN, [ROOT]),
        lengths=lengths,
        heads=heads,
        relations=padded(relations, UNKNOWN),
        counted=padded([[tag != PUNCTUATION for tag in s.tags] for s in sentences], 0).bool(),
    )


def batches(
    sentences: Sequence[TaggedSentence], vocabulary: Vocabulary, size: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Yield all sentences once in random order, in batches of about equal length."""
    for some in batches_by_length(sentences, len, size, rng):
        yield make_batch(some, vocabulary)


def evaluation_batches(
    sentences: Sequence[TaggedSentence], vocabulary: Vocabulary, size: int = 32
) -> Iterator[tuple[list[TaggedSentence], Batch]]:
    """Yield all sentences in order of length, with their batches."""
    ordered = sorted(sentences, key=len)
    for start in range(0, len(ordered), size):
        some = ordered[start : start + size]
        yield some, make_batch(some, vocabulary)
