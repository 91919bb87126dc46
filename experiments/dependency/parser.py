"""The graph-based parser of Kiperwasser & Goldberg (2016), on batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from experiments.dependency.data import UNKNOWN, Batch, Vocabulary
from valency.model import BiLSTM

__all__ = ["Parser", "Scores", "Sizes"]


class Sizes(NamedTuple):
    """Sizes of the network; the defaults are those of Kiperwasser & Goldberg."""

    word: int = 100
    tag: int = 25
    lstm: int = 125
    """Size of the LSTM in each direction."""
    hidden: int = 100
    sibling: int = 25
    """Rank of the scores of siblings."""


class Scores(NamedTuple):
    """Scores of a batch.

    Attributes
    ----------
    arcs
        (size, n, n) as in `DepTree`: [word, head], arcs from the root on the diagonal; with a last
        axis of relations if they are scored.
    siblings
        Scores of consecutive modifiers, [head, inner, outer], words and the root numbered as in
        the network, from the root's 0; for both sides, right first. None in first-order parsers.
    """

    arcs: Tensor
    siblings: tuple[Tensor, Tensor] | None


class Parser(nn.Module):
    """Two layers of bidirectional LSTMs over words and tags, and a perceptron for every arc.

    Parameters
    ----------
    vocabulary
        The vocabulary.
    sizes
        The sizes of the layers.
    labelled
        Whether arcs have a score for every relation.
    siblings
        Whether consecutive modifiers of a head have scores.
    word_dropout
        A word seen c times counts as unknown with probability ``word_dropout / (word_dropout + c)``
        in training.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sizes: Sizes | None = None,
        *,
        labelled: bool = False,
        siblings: bool = False,
        word_dropout: float = 0.25,
    ) -> None:
        super().__init__()
        sizes = sizes or Sizes()
        counts = vocabulary.counts
        self.register_buffer("dropped", word_dropout / (word_dropout + counts), persistent=False)
        self.dropped: Tensor
        self.dropped[:2] = 0.0
        self.words = nn.Embedding(len(counts), sizes.word)
        self.tags = nn.Embedding(len(vocabulary.tags) + 2, sizes.tag)
        self.lower = BiLSTM(sizes.word + sizes.tag, sizes.lstm)
        self.upper = BiLSTM(2 * sizes.lstm, sizes.lstm)
        self.as_head = nn.Linear(2 * sizes.lstm, sizes.hidden)
        self.as_word = nn.Linear(2 * sizes.lstm, sizes.hidden, bias=False)
        self.labelled = labelled
        self.arc = nn.Linear(sizes.hidden, len(vocabulary.relations) + 2 if labelled else 1)
        self.sides = nn.ModuleList(
            SiblingScores(2 * sizes.lstm, sizes.sibling) for _ in range(2 if siblings else 0)
        )

    def forward(self, batch: Batch) -> Scores:
        """Return the scores of a batch."""
        states = self._states(batch)
        heads, words = self.as_head(states), self.as_word(states[:, 1:])
        scores = self.arc((words[:, :, None] + heads[:, None]).tanh())
        if not self.labelled:
            scores = scores.squeeze(-1)
        n = scores.shape[1]
        diagonal = torch.eye(n, dtype=torch.bool)
        if self.labelled:
            diagonal = diagonal[..., None]
        arcs = torch.where(diagonal, scores[:, :, :1], scores[:, :, 1:])
        if not self.sides:
            return Scores(arcs, None)
        right, left = (side(states) for side in self.sides)
        return Scores(arcs, (right, left))

    def _states(self, batch: Batch) -> Tensor:
        words = batch.words
        if self.training:
            words = torch.where(torch.rand(words.shape) < self.dropped[words], UNKNOWN, words)
        inputs = torch.cat([self.words(words), self.tags(batch.tags)], dim=-1)
        lengths = batch.lengths + 1
        states: Tensor = self.upper(self.lower(inputs, lengths), lengths)
        return states


class SiblingScores(nn.Module):
    """Scores ``<a(head) * b(inner), c(outer)>`` of two consecutive modifiers of a head.

    The missing inner modifier of the first, and the missing outer modifier of the last, have
    learned vectors.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.project = nn.Linear(size, 3 * rank)
        self.start = nn.Parameter(torch.randn(rank) / rank)
        self.end = nn.Parameter(torch.randn(rank) / rank)
        nn.init.normal_(self.project.weight, std=size**-0.5)

    def forward(self, states: Tensor) -> Tensor:
        """Return (batch, m, m + 1, m + 1) scores [head, inner, outer] from (batch, m, size) states.

        Inner modifier 0 means none, and the others are shifted by one; outer modifier m means none.
        """
        head, inner, outer = self.project(states).tanh().chunk(3, dim=-1)
        size = len(states)
        inner = torch.cat([self.start.expand(size, 1, -1), inner], dim=1)
        outer = torch.cat([outer, self.end.expand(size, 1, -1)], dim=1)
        return torch.einsum("bhr,bir,bor->bhio", head, inner, outer)
