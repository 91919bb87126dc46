"""Rationales on SNLI: the class of a pair from a few words of its hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from experiments.estimators.model import LatentModel
from experiments.nli.data import (
    CLASSES,
    PADDING,
    Batch,
    Vocabulary,
    batches,
    evaluation_batches,
)
from experiments.nli.rows import read_corpus
from lpsmap_torch.layers import Rationale
from valency.model import BiLSTM

__all__ = ["RationaleModel", "RationaleTask"]

BUDGET = 3
"""The maximum number of chosen words."""


class RationaleModel(LatentModel[Batch]):
    """A selector with an LSTM in both directions, and a classifier of the chosen words.

    The classifier sees the sum of the embeddings of the words, weighted by the values of the layer,
    and shares no parameters with the selector.

    Parameters
    ----------
    n_words
        The size of the vocabulary.
    temperature
        The temperature of the layer.
    size
        The size of embeddings and hidden layers.
    """

    def __init__(self, n_words: int, temperature: float, size: int) -> None:
        super().__init__()
        self.read = nn.Embedding(n_words, size, padding_idx=PADDING)
        self.encoder = BiLSTM(size, size // 2)
        self.select = nn.Linear(size, 1)
        self.layer = Rationale(BUDGET, threads=1, temperature=temperature)
        self.see = nn.Embedding(n_words, size, padding_idx=PADDING)
        self.classify = nn.Sequential(
            nn.Dropout(0.3), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, len(CLASSES))
        )

    def scores(self, batch: Batch) -> Tensor:
        """Return the scores of choosing words."""
        states = self.encoder(self.read(batch.hypothesis), self.lengths(batch))
        found: Tensor = self.select(states)[..., 0]
        return found

    def lengths(self, batch: Batch) -> Tensor:
        """Return the numbers of words."""
        return batch.lengths[:, 1]

    def present(self, batch: Batch) -> Tensor:
        """Return flags of the words."""
        return torch.arange(batch.hypothesis.shape[1]) < self.lengths(batch)[:, None]

    def labels(self, batch: Batch) -> Tensor:
        """Return the class of every pair, its only place."""
        return batch.labels[:, None]

    def predict(self, batch: Batch, values: Tensor) -> Tensor:
        """Return class scores of every pair."""
        seen = (values[..., None, :] @ self.see(batch.hypothesis)) / BUDGET
        found: Tensor = self.classify(seen)
        return found


class RationaleTask:
    """Training, dev and test pairs.

    Parameters
    ----------
    data
        Folder of the data sets.
    sizes
        Numbers of pairs for training, dev and test; None for all of the test.
    """

    def __init__(self, data: Path, sizes: tuple[int, int, int | None]) -> None:
        corpus = read_corpus(data, "snli").part(*sizes)
        self.training, self.vocabulary = corpus.train, Vocabulary(corpus.train)
        self.dev = list(evaluation_batches(corpus.dev, self.vocabulary))
        self.test = list(evaluation_batches(corpus.test, self.vocabulary))

    def model(self, temperature: float) -> RationaleModel:
        """Return a new network."""
        return RationaleModel(len(self.vocabulary), temperature, size=50)

    def batches(self, done: float, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield batches without end."""
        epochs = (batches(self.training, self.vocabulary, size, rng) for _ in repeat(None))
        return chain.from_iterable(epochs)
