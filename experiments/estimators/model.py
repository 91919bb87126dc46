"""Networks whose only view of an instance is a latent structure: their loss, and measurements."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.estimators.variants import ESTIMATORS, Baseline, Variant
from lpsmap_torch.estimators import score_function_loss
from lpsmap_torch.layers import LatentTree, Rationale

__all__ = ["UNLABELLED", "LatentModel", "LatentTask", "accuracy", "objective", "sparsity"]

Batch = TypeVar("Batch")

UNLABELLED = -1
"""The label of places without one."""


class LatentModel(nn.Module, abc.ABC, Generic[Batch]):
    """A network with a layer of latent structures between its scores and its predictions."""

    layer: LatentTree | Rationale

    @abc.abstractmethod
    def scores(self, batch: Batch) -> Tensor:
        """Return the scores that the layer takes, (size, ...)."""

    @abc.abstractmethod
    def lengths(self, batch: Batch) -> Tensor:
        """Return the lengths of the instances for the layer, (size,)."""

    @abc.abstractmethod
    def present(self, batch: Batch) -> Tensor:
        """Return flags like the scores: true outside the padding."""

    @abc.abstractmethod
    def labels(self, batch: Batch) -> Tensor:
        """Return the labels of the places of every instance, (size, places)."""

    @abc.abstractmethod
    def predict(self, batch: Batch, values: Tensor) -> Tensor:
        """Return class scores (..., size, places, classes) for values of the layer.

        Parameters
        ----------
        batch
            The batch.
        values
            (..., *scores.shape) structures or marginals, with any leading axes.
        """

    def costs(self, batch: Batch, values: Tensor) -> Tensor:
        """Return the cross-entropy of every instance, summed over its places, (..., size)."""
        logits, labels = self.predict(batch, values), self.labels(batch)
        labels = labels.expand(logits.shape[:-1])
        each = cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=UNLABELLED, reduction="none"
        )
        return each.reshape(labels.shape).sum(-1)


class LatentTask(Protocol[Batch]):
    """Data, and a network for them."""

    @property
    def dev(self) -> Sequence[Batch]:
        """The batches that select the best model."""

    @property
    def test(self) -> Sequence[Batch]:
        """The test batches."""

    def model(self, temperature: float) -> LatentModel[Batch]:
        """Return a new network whose layer has a temperature."""

    def batches(self, done: float, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield training batches without end, after a share `done` of the training."""


def objective(
    model: LatentModel[Batch], batch: Batch, variant: Variant, score_decay: float
) -> Tensor:
    """Return the training loss: the mean cross-entropy of the labels, and a penalty on scores.

    Parameters
    ----------
    model, batch
        The network and its input.
    variant
        How the gradient passes the structure.
    score_decay
        The weight of the mean square of the scores.
    """
    scores, lengths = model.scores(batch), model.lengths(batch)
    if variant.baseline is Baseline.UNUSED:
        model.layer.estimator = ESTIMATORS[variant.estimator]
        costs = model.costs(batch, model.layer(scores, lengths=lengths))
    else:
        samples = model.layer.sample(scores, variant.samples, lengths=lengths)
        baseline: str | Tensor = variant.baseline.value
        if variant.baseline is Baseline.SELF_CRITICAL:
            with torch.no_grad():
                baseline = model.costs(batch, model.layer.decode(scores, lengths=lengths))
        costs = score_function_loss(
            model.costs(batch, samples.values), samples.log_probabilities, baseline=baseline
        )
    pull = score_decay * scores[model.present(batch)].square().mean()
    return costs.sum() / (model.labels(batch) != UNLABELLED).sum() + pull


@torch.no_grad()
def accuracy(model: LatentModel[Batch], batches: Iterable[Batch], estimator: str) -> float:
    """Return the share of correct labels in percent, with values of an estimator."""
    model.layer.estimator, hits, total = ESTIMATORS[estimator], 0, 0
    for batch in batches:
        values = model.layer(model.scores(batch), lengths=model.lengths(batch))
        labels = model.labels(batch)
        hits += int((model.predict(batch, values).argmax(-1) == labels).sum())
        total += int((labels != UNLABELLED).sum())
    return 100 * hits / total


@torch.no_grad()
def sparsity(
    model: LatentModel[Batch], batches: Iterable[Batch], variant: Variant
) -> dict[str, float | None]:
    """Return the sparsity of the values that a variant has in training.

    Returns
    -------
    dict
        ``nonzero``: the share of the variables with a value above zero, in percent. ``structures``:
        the mean number of structures with weight in an instance; None for all of them.
    """
    model.layer.estimator = ESTIMATORS[variant.estimator]
    nonzero = total = n_structures = n_instances = 0
    for batch in batches:
        scores, lengths = model.scores(batch), model.lengths(batch)
        nonzero += int((model.layer(scores, lengths=lengths) > 0.0).sum())
        total += int(model.present(batch).sum())
        n_instances += len(scores)
        if variant.estimator == "sparsemap":
            found = model.layer.structures(scores, lengths=lengths)
            n_structures += sum(len(found[i].probabilities) for i in range(len(scores)))
    structures = {"sparsemap": n_structures / n_instances, "marginals": None}
    return {
        "nonzero": 100 * nonzero / total,
        "structures": structures.get(variant.estimator, 1.0),
    }
