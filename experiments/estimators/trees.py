"""Latent trees on ListOps: the number of arguments of every operator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from torch import Tensor
from torch.nn.functional import leaky_relu

from experiments.estimators.model import LatentModel
from experiments.listops.rows import corpora
from valency.batches import Batch
from valency.model import Inference, Structure, ValencyTagger, arcs_with_root, word_scores

__all__ = ["TreeModel", "TreeTask"]


class TreeModel(LatentModel[Batch]):
    """The tagger of the demo: a label depends only on the number of modifiers of its token.

    The scores of arcs have a leaky ReLU: a ReLU dies where an estimator lowers all scores at first.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.tagger = ValencyTagger(Structure.TREE, Inference(threads=1))
        self.layer = self.tagger.tree
        self.layer.temperature = temperature

    def scores(self, batch: Batch) -> Tensor:
        """Return the scores of arcs between all tokens but the first, the root."""
        tagger = self.tagger
        states = tagger.encoder(tagger.embedding(batch.tokens), batch.lengths)
        return word_scores(leaky_relu(tagger.as_modifier(states), 0.2) @ tagger.as_head(states).mT)

    def lengths(self, batch: Batch) -> Tensor:
        """Return the numbers of tokens but the first."""
        return batch.lengths - 1

    def present(self, batch: Batch) -> Tensor:
        """Return flags of the arcs between tokens."""
        words = batch.valid[:, 1:]
        return words[:, :, None] & words[:, None, :]

    def labels(self, batch: Batch) -> Tensor:
        """Return the classes of operators."""
        return batch.labels

    def predict(self, batch: Batch, values: Tensor) -> Tensor:
        """Return class scores of all tokens."""
        return self.tagger.tag(arcs_with_root(values))


class TreeTask:
    """Training, validation and test expressions.

    Parameters
    ----------
    data
        Folder of the data sets.
    sizes
        Numbers of expressions for training, validation and test; None for all of the test.
    curriculum
        Maximum lengths of expressions in equal parts of the training.
    """

    def __init__(
        self, data: Path, sizes: tuple[int, int, int | None], curriculum: tuple[int, ...]
    ) -> None:
        training, dev, test = corpora(data, sizes, curriculum[-1])
        self.parts = [training.up_to(most) for most in curriculum]
        self.dev = list(dev.in_order_of_length(128))
        self.test = list(test.in_order_of_length(128))

    def model(self, temperature: float) -> TreeModel:
        """Return a new network."""
        return TreeModel(temperature)

    def batches(self, done: float, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield batches without end, after a share of the training."""
        part = self.parts[int(done * len(self.parts))]
        return chain.from_iterable(part.epoch(size, rng) for _ in repeat(None))
