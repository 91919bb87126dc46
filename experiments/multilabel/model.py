"""Scores of labels and of pairs of labels, losses, and predicted label sets."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from experiments.limits import limited_on_purpose
from experiments.multilabel.data import Examples
from lpsmap import ALGORITHM_1, FactorGraph, Pair, Variables
from lpsmap_decode import Assignment
from lpsmap_torch.losses import MarginSparseMAPLoss, SparseMAPLoss, StructuredHingeLoss

__all__ = ["Loss", "Regime", "Tagger", "at_least_one", "example_f1", "round_marginals"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


TOLERANCE = 1e-6
"""Tolerance of solved inference."""


class Loss(str, Enum):
    """The rows of Table 4, and a margin loss."""

    UNSTRUCTURED = "unstructured"
    HINGE = "hinge"
    SPARSEMAP = "sparsemap"
    MARGIN_SPARSEMAP = "m-sparsemap"


class Regime(str, Enum):
    """The limits of LP-MAP and LP-SparseMAP."""

    SOLVED = "solved"
    CUT = "cut"

    @property
    def options(self) -> dict[str, Any]:
        """Options of the solver; the paper's are plain ADMM of 100 iterations at step size .1."""
        if self is Regime.CUT:
            return {**ALGORITHM_1, "max_iter": 100, "tol": TOLERANCE, "step_size": 0.1}
        return {"max_iter": 10_000, "tol": TOLERANCE}


class Tagger(nn.Module):
    """A perceptron with two hidden layers for the labels, and a score for every pair of labels.

    Parameters
    ----------
    sizes
        Numbers of features, of units in both hidden layers, and of labels.
    loss, regime
        The loss and solver regime of training and prediction.
    glorot
        Whether the layers are initialised by Glorot & Bengio (2010), rather than as PyTorch does.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        loss: Loss,
        regime: Regime = Regime.SOLVED,
        *,
        glorot: bool = False,
    ) -> None:
        super().__init__()
        n_features, hidden, n_labels = sizes
        self.labels = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_labels),
        )
        if glorot:
            self.labels.apply(_initialise)
        self.loss_kind, self.regime = loss, regime
        self._first, self._second = np.triu_indices(n_labels, k=1)
        n_pairs = 0 if loss is Loss.UNSTRUCTURED else len(self._first)
        self.pairs = nn.Parameter(torch.zeros(n_pairs))
        criteria: dict[Loss, Callable[..., nn.Module]] = {
            Loss.HINGE: StructuredHingeLoss,
            Loss.SPARSEMAP: SparseMAPLoss,
            Loss.MARGIN_SPARSEMAP: MarginSparseMAPLoss,
        }
        made = criteria.get(loss)
        self._criterion = made(self._factors, **regime.options) if made else None

    def _factors(self, u: Variables, *, pairs: Any) -> Pair:
        """Return a factor for every pair of labels of every example."""
        return Pair(u[:, self._first], u[:, self._second], pairs)

    def loss(self, examples: Examples) -> Tensor:
        """Return the mean loss of examples."""
        scores = self.labels(examples.features)
        if self._criterion is None:
            losses = binary_cross_entropy_with_logits(scores, examples.labels, reduction="none")
            return losses.sum(dim=1).mean()
        with limited_on_purpose(self.regime is Regime.CUT):
            value: Tensor = self._criterion(scores, examples.labels, pairs=self.pairs)
        return value

    @torch.no_grad()
    def rounded(self, examples: Examples) -> tuple[FloatArray, FloatArray]:
        """Return rounded label sets and their marginals, by the inference of the loss."""
        raw = self.labels(examples.features).double()
        scores = raw.numpy()
        if self.loss_kind is Loss.UNSTRUCTURED:
            return at_least_one(scores > 0.0, scores), np.asarray(raw.sigmoid())
        graph, u = self._graph(scores)
        with limited_on_purpose(self.regime is Regime.CUT):
            if self.loss_kind is Loss.HINGE:
                graph.solve_map(**self.regime.options)
            else:
                graph.solve(**self.regime.options)
        marginals = np.asarray(u.value)
        return round_marginals(marginals, scores), marginals

    @torch.no_grad()
    def best(
        self, examples: Examples, seconds: float, *, regularised: bool = False
    ) -> tuple[FloatArray, float]:
        """Return the best label sets, and the share of examples with a proof.

        Parameters
        ----------
        examples
            The examples.
        seconds
            Mean time limit of the search per example.
        regularised
            Whether the score of a set includes LP-SparseMAP's regulariser, minus half of the
            squared norm: one half less for every label.
        """
        scores = self.labels(examples.features).double().numpy() - 0.5 * regularised
        graph, u = self._graph(scores)
        with limited_on_purpose():
            found = graph.solve_map(exact=True, max_time=seconds * len(examples))
        assert isinstance(found, Assignment)
        return at_least_one(np.asarray(u.value) > 0.5, scores), float(np.mean(found.proved))

    def _graph(self, scores: FloatArray) -> tuple[FactorGraph, Variables]:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(self._factors(u, pairs=self.pairs.double().numpy()))
        return graph, u


def _initialise(layer: nn.Module) -> None:
    """Initialise a layer by Glorot & Bengio (2010)."""
    if isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


def at_least_one(found: BoolArray, scores: FloatArray) -> FloatArray:
    """Return label sets as zeros and ones; empty ones get the label of the highest score."""
    sets = found.astype(np.float64)
    empty = np.flatnonzero(~found.any(axis=1))
    sets[empty, scores[empty].argmax(axis=1)] = 1.0
    return sets


def round_marginals(marginals: FloatArray, scores: FloatArray) -> FloatArray:
    """Return label sets: the labels with marginals above 1/2, or the one with the largest.

    The highest score decides among equal marginals: those of LP-MAP are often all zero.
    """
    largest = marginals > marginals.max(axis=1, keepdims=True) - TOLERANCE
    return at_least_one(marginals > 0.5, np.where(largest, scores, -np.inf))


def example_f1(found: FloatArray, gold: FloatArray) -> float:
    """Return the mean over examples of F1 of the label sets, in percent; 100 if both are empty."""
    both, either = (found * gold).sum(axis=1), found.sum(axis=1) + gold.sum(axis=1)
    f1 = np.divide(2 * both, either, out=np.ones(len(both)), where=either > 0)
    return float(100 * f1.mean())
