"""Padded mini-batches of expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valency.expressions import (
    MAX_ARGUMENTS,
    MIN_ARGUMENTS,
    VOCABULARY,
    Expression,
    argument_counts,
    gold_heads,
)

N_CLASSES = MAX_ARGUMENTS - MIN_ARGUMENTS + 1
UNLABELLED = -1  # class of tokens other than operators, and of padding


@dataclass(frozen=True)
class Batch:
    """`size` expressions, longest first, padded to `length` tokens; int64 tensors.

    Attributes
    ----------
    tokens, heads, labels : Tensor (size, length)
        Vocabulary index, gold head (the top token is its own head), class (arguments - 2, or -1).
    lengths : Tensor (size,)
    """

    tokens: Tensor
    heads: Tensor
    labels: Tensor
    lengths: Tensor

    @property
    def valid(self) -> Tensor:
        """Bool (size, length): which tokens are not padding."""
        return torch.arange(self.tokens.shape[1]) < self.lengths[:, None]


class Corpus:
    """Expressions as padded arrays, from which batches are cut."""

    def __init__(self, expressions: list[Expression]) -> None:
        self.expressions = expressions
        self.lengths = np.array([len(e) for e in expressions])
        index = {token: i for i, token in enumerate(VOCABULARY)}
        self._tokens = self._pad([[index[token] for token in e] for e in expressions], fill=0)
        self._heads = self._pad([gold_heads(e) for e in expressions], fill=0)
        counts = self._pad([argument_counts(e) for e in expressions], fill=0)
        self._labels = np.where(counts > 0, counts - MIN_ARGUMENTS, UNLABELLED).astype(np.int8)

    def __len__(self) -> int:
        return len(self.expressions)

    def _pad(self, rows: list[list[int]], fill: int) -> NDArray[np.int8]:
        padded = np.full((len(rows), self.lengths.max(initial=0)), fill, dtype=np.int8)
        padded[np.arange(padded.shape[1]) < self.lengths[:, None]] = np.concatenate(rows)
        return padded

    def batch(self, rows: NDArray[np.intp]) -> Batch:
        """The given expressions, longest first."""
        rows = rows[np.argsort(-self.lengths[rows], kind="stable")]
        longest = self.lengths[rows[0]]

        def cut(padded: NDArray[np.int8]) -> Tensor:
            return torch.from_numpy(padded[rows, :longest].astype(np.int64))

        return Batch(
            tokens=cut(self._tokens),
            heads=cut(self._heads),
            labels=cut(self._labels),
            lengths=torch.from_numpy(self.lengths[rows]),
        )

    def in_order_of_length(self, batch_size: int) -> Iterator[Batch]:
        """All expressions once, sorted by length: for evaluation."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            yield self.batch(order[start : start + batch_size])

    def up_to(self, max_tokens: int) -> Corpus:
        """The expressions of at most `max_tokens` tokens."""
        return Corpus([e for e in self.expressions if len(e) <= max_tokens])

    def epoch(self, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """All expressions once in random batches, long and short ones together.

        Short expressions have only small counts: batches of one length would push all counts in the
        same direction.
        """
        order = rng.permutation(len(self))
        for start in range(0, len(order), batch_size):
            yield self.batch(order[start : start + batch_size])
