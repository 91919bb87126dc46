"""Decomposable attention and ESIM, with every alignment of the two papers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.nli.data import CLASSES, PADDING, Batch
from lpsmap import ALGORITHM_1
from lpsmap_torch.layers import (
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    SequenceAttention,
)
from valency.model import BiLSTM

FloatArray = NDArray[np.float64]

__all__ = [
    "Alignment",
    "Attention",
    "Classifier",
    "Architecture",
    "Output",
    "Regime",
    "Sizes",
    "make_classifier",
    "within",
]


class Architecture(str, Enum):
    """Decomposable attention (Parikh et al. 2016), or ESIM (Chen et al. 2017)."""

    DECOMPOSABLE = "decomposable"
    ESIM = "esim"


class Alignment(str, Enum):
    """The map from scores of pairs of words to weights."""

    SOFTMAX = "softmax"
    SEQUENCE = "sequence"
    MATCHING = "matching"
    LP_MATCHING = "LP-matching"
    LP_SEQUENCE = "LP-sequence"


class Regime(str, Enum):
    """The limits of the solver: to convergence, or as in the LP-SparseMAP paper."""

    SOLVED = "solved"
    PAPER = "paper"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the networks."""

    word: int = 100
    deviation: float = 0.6
    """Standard deviation of initial embeddings. With larger values, alignments are sparse from the
    start and learn more slowly."""
    hidden: int = 100
    dropout: float = 0.33


class Attention(nn.Module):
    """Attention weights between the words of the premise and the hypothesis, in both directions.

    Parameters
    ----------
    alignment, regime
        The alignment, and its solver regime.
    """

    def __init__(self, alignment: Alignment, regime: Regime) -> None:
        super().__init__()
        options = dict(ALGORITHM_1) if regime is Regime.PAPER else {}
        rescale = regime is Regime.PAPER
        layers: list[nn.Module] = []
        if alignment is Alignment.SEQUENCE:
            layers = [SequenceAttention(**options), SequenceAttention(**options)]
        elif alignment is Alignment.MATCHING:
            layers = [MatchingAttention(**options)]
        elif alignment is Alignment.LP_MATCHING:
            layers = [LPMatchingAttention(rescale, **options)]
        elif alignment is Alignment.LP_SEQUENCE:
            layers = [LPSequenceAttention(rescale, **options)]
        self.layers = nn.ModuleList(layers)

    def forward(self, scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return (size, m, n) weights of the hypothesis's words, and of the premise's.

        Padding has weight zero; both weights are equal for joint alignments.

        Parameters
        ----------
        scores
            (size, m, n) scores.
        lengths
            (size, 2) numbers of words.
        """
        if not self.layers:
            (_, m, n), device = scores.shape, scores.device
            inside = within(lengths[:, 0], m, device)[:, :, None]
            inside = inside & within(lengths[:, 1], n, device)[:, None]
            finite = scores.masked_fill(~inside, torch.finfo(scores.dtype).min)
            rows, columns = (finite.softmax(axis) * inside for axis in (2, 1))
            return rows, columns
        found = self.layers[0](scores, lengths=lengths)
        if len(self.layers) == 1:
            return found, found
        return found, self.layers[1](scores.mT, lengths=lengths.flip(-1)).mT

    def structures(self, scores: Tensor, lengths: Tensor) -> list[list[tuple[float, FloatArray]]]:
        """Return the structures of an alignment of one pair, for every direction that has its own.

        A structure is its probability, the likeliest first, and its (m, n) pairs of words. Softmax
        and alignments of several factors have none.

        Parameters
        ----------
        scores
            (1, m, n) scores.
        lengths
            (1, 2) numbers of words.
        """
        found = []
        for k, layer in enumerate(self.layers):
            if isinstance(layer, LPMatchingAttention | LPSequenceAttention):
                continue
            turned = (scores, lengths) if k == 0 else (scores.mT, lengths.flip(-1))
            solution = layer(turned[0], lengths=turned[1], return_solution=True)
            [own] = solution.structures()
            pairs = [(float(one.probability), one.variables) for one in own]
            found.append([(p, x if k == 0 else x.T) for p, x in pairs])
        return found

    @property
    def transition(self) -> float | None:
        """The learned transition score, or None."""
        layer = self.layers[0] if self.layers else None
        return layer.transition.item() if isinstance(layer, LPSequenceAttention) else None


class Output(NamedTuple):
    """The output of a network for a batch.

    Attributes
    ----------
    classes
        (size, 3) scores of the classes.
    rows, columns
        The alignments; see `Attention.forward`.
    """

    classes: Tensor
    rows: Tensor
    columns: Tensor


class Classifier(nn.Module):
    """A network that aligns two sentences, and classifies their relation.

    Parameters
    ----------
    n_words
        Size of the vocabulary.
    attention
        The attention module.
    sizes
        The sizes of the layers.
    """

    def __init__(self, n_words: int, attention: Attention, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, sizes.word, padding_idx=PADDING)
        with torch.no_grad():
            self.words.weight *= sizes.deviation
        self.attention = attention
        self.dropout = nn.Dropout(sizes.dropout)
        self.aggregate: nn.Module

    def forward(self, batch: Batch) -> Output:
        """Return the output for a batch."""
        of_premise, of_hypothesis = batch.lengths.unbind(1)
        one = self.encoded(self.dropout(self.words(batch.premise)), of_premise)
        other = self.encoded(self.dropout(self.words(batch.hypothesis)), of_hypothesis)
        rows, columns = self.attention(self.scores(one, other), batch.lengths)
        parts = [
            self.summary(one, rows @ other, of_premise),
            self.summary(other, columns.mT @ one, of_hypothesis),
        ]
        return Output(self.aggregate(torch.cat(parts, -1)), rows, columns)

    def pair_scores(self, batch: Batch) -> Tensor:
        """Return the scores of all pairs of words of a batch."""
        words = self.dropout(self.words(batch.premise)), self.dropout(self.words(batch.hypothesis))
        return self.scores(*map(self.encoded, words, batch.lengths.unbind(1)))

    def encoded(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors of words in their sentences."""
        return words

    def scores(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the scores of all pairs of words."""
        return one @ other.mT

    def summary(self, words: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector of a sentence, whose words are aligned with their contexts."""
        raise NotImplementedError


class DecomposableAttention(Classifier):
    """Attend, compare, aggregate (Parikh et al. 2016)."""

    def __init__(self, n_words: int, attention: Attention, sizes: Sizes) -> None:
        super().__init__(n_words, attention, sizes)
        hidden = sizes.hidden
        self.attend = self._layers(sizes.word, hidden)
        self.compare = self._layers(2 * sizes.word, hidden)
        classes = nn.Linear(hidden, len(CLASSES))
        self.aggregate = nn.Sequential(self._layers(2 * hidden, hidden), classes)

    def _layers(self, inputs: int, hidden: int) -> nn.Sequential:
        first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        return nn.Sequential(first, nn.ReLU(), self.dropout, second, nn.ReLU(), self.dropout)

    def scores(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the scores of all pairs of words; each depends only on its two words."""
        return super().scores(self.attend(one), self.attend(other))

    def summary(self, words: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
        """Return the sum of the comparison over words."""
        compared: Tensor = self.compare(torch.cat([words, contexts], -1))
        inside = within(lengths, words.shape[1], words.device)[..., None]
        return (compared * inside).sum(1)


class ESIM(Classifier):
    """Encode by an LSTM, align, compare, compose by an LSTM, pool (Chen et al. 2017)."""

    def __init__(self, n_words: int, attention: Attention, sizes: Sizes) -> None:
        super().__init__(n_words, attention, sizes)
        hidden = sizes.hidden
        self.encoder = BiLSTM(sizes.word, hidden // 2)
        self.compare = nn.Sequential(nn.Linear(4 * hidden, hidden), nn.ReLU(), self.dropout)
        self.composition = BiLSTM(hidden, hidden // 2)
        last, classes = nn.Linear(4 * hidden, hidden), nn.Linear(hidden, len(CLASSES))
        self.aggregate = nn.Sequential(self.dropout, last, nn.Tanh(), self.dropout, classes)

    def encoded(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return the states of an LSTM in both directions."""
        states: Tensor = self.encoder(words, lengths)
        return states

    def summary(self, words: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
        """Return mean and maximum of the states of a second LSTM."""
        both = torch.cat([words, contexts, words - contexts, words * contexts], -1)
        states = self.composition(self.compare(both), lengths)
        inside = within(lengths, words.shape[1], words.device)[..., None]
        mean = (states * inside).sum(1) / inside.sum(1)
        return torch.cat([mean, states.masked_fill(~inside, -torch.inf).amax(1)], -1)


def make_classifier(
    n_words: int, network: Architecture, alignment: Alignment, regime: Regime, sizes: Sizes
) -> Classifier:
    """Return a network with an alignment."""
    made = DecomposableAttention if network is Architecture.DECOMPOSABLE else ESIM
    return made(n_words, Attention(alignment, regime), sizes)


def within(lengths: Tensor, n: int, device: torch.device) -> Tensor:
    """Return (size, n) flags of words on a device, false for padding."""
    there = lengths.to(device, non_blocking=True)  # the CPU need not wait for a GPU
    return torch.arange(n, device=device) < there[:, None]
