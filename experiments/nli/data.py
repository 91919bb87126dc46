"""Pairs of sentences as padded batches of numbers."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.batching import batches_by_length, random_subset

__all__ = [
    "CLASSES",
    "CORPORA",
    "Batch",
    "Corpus",
    "Pair",
    "Vocabulary",
    "batches",
    "evaluation_batches",
    "make_batch",
    "tokens",
]

CORPORA = ("snli", "mnli")

CLASSES = ("entailment", "neutral", "contradiction")

HELD_OUT = 0.1
"""Share of the official SNLI dev set that is held out to select the epoch, from its end, since the
pairs of a premise are adjacent. The rest is training data."""

PADDING, UNKNOWN = 0, 1

LONGEST = 50
"""Maximum length of a sentence; longer ones are truncated."""

WORD = re.compile(r"'?\w+|[^\w\s]")


class Pair(NamedTuple):
    """The words of a premise and a hypothesis, and the index of their class."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Corpus:
    """The parts of a corpus."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]

    @classmethod
    def read(cls, data: Path, name: str) -> Corpus:
        """Read a corpus, one of `CORPORA`, below a folder of data sets.

        The training set of SNLI is not included. It is replaced by the pairs that Kaushik et al.
        (2020) selected from it and revised, and most of the official dev set. The second half of
        MultiNLI's matched validation set is its test set, as in Niculae et al. (2018).
        """
        folder = data / "nli"
        if name == "snli":
            official = _read(folder / "snli_dev.tsv.gz")
            n_train = round((1 - HELD_OUT) * len(official))
            train = _read(folder / "cadsnli_train.tsv.gz") + official[:n_train]
            return cls(train, official[n_train:], _read(folder / "snli_test.tsv.gz"))
        held_out = _read(folder / "mnli20k_val.tsv.gz")
        half = len(held_out) // 2
        return cls(_read(folder / "mnli20k_train.tsv.gz"), held_out[:half], held_out[half:])

    def part(self, n_train: int | None, n_dev: int | None, n_test: int | None) -> Corpus:
        """Return a deterministic random subset of a corpus."""
        of_parts = zip((self.train, self.dev, self.test), (n_train, n_dev, n_test), strict=True)
        return Corpus(*(random_subset(part, n) for part, n in of_parts))


def tokens(sentence: str) -> tuple[str, ...]:
    """Return the words of a sentence in lower case, at least one."""
    return tuple(WORD.findall(sentence.lower())[:LONGEST]) or ("",)


def _read(path: Path) -> list[Pair]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        next(file)
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [
        Pair(tokens(premise), tokens(hypothesis), CLASSES.index(label))
        for label, premise, hypothesis in rows
    ]


class Vocabulary:
    """Indices of the words that occur at least twice in training pairs."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        counts = Counter(word for pair in pairs for word in (*pair.premise, *pair.hypothesis))
        known = sorted(word for word, count in counts.items() if count > 1)
        self.words = {word: i for i, word in enumerate(known, start=UNKNOWN + 1)}

    def __len__(self) -> int:
        return len(self.words) + UNKNOWN + 1

    def numbers(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the words of sentences as padded indices."""
        length = max(map(len, sentences))
        rows = [[self.words.get(word, UNKNOWN) for word in sentence] for sentence in sentences]
        return torch.tensor([row + [PADDING] * (length - len(row)) for row in rows])


class Batch(NamedTuple):
    """Padded pairs.

    Attributes
    ----------
    premise, hypothesis
        (size, m) and (size, n) words.
    lengths
        (size, 2) lengths of both.
    labels
        (size,) classes.
    """

    premise: Tensor
    hypothesis: Tensor
    lengths: Tensor
    labels: Tensor


def make_batch(pairs: Sequence[Pair], vocabulary: Vocabulary) -> Batch:
    """Return pairs as indices."""
    return Batch(
        vocabulary.numbers([pair.premise for pair in pairs]),
        vocabulary.numbers([pair.hypothesis for pair in pairs]),
        torch.tensor([[len(pair.premise), len(pair.hypothesis)] for pair in pairs]),
        torch.tensor([pair.label for pair in pairs]),
    )


def batches(
    pairs: Sequence[Pair], vocabulary: Vocabulary, size: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Yield all pairs once in random order, in batches of about equal length."""
    for some in batches_by_length(pairs, _length, size, rng):
        yield make_batch(some, vocabulary)


def evaluation_batches(
    pairs: Sequence[Pair], vocabulary: Vocabulary, size: int = 128
) -> Iterator[Batch]:
    """Yield all pairs in order of length."""
    ordered = sorted(pairs, key=_length)
    for start in range(0, len(ordered), size):
        yield make_batch(ordered[start : start + size], vocabulary)


def _length(pair: Pair) -> tuple[int, int]:
    return len(pair.premise), len(pair.hypothesis)
