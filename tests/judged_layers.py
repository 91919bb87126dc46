"""All structures of an instance of a layer, with their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from enumerated_structures import Structures, structures_of
from layer_cases import Case

__all__ = ["Judged"]


class Judged:
    """The structures of one instance of a case, and its scores."""

    def __init__(self, layer: nn.Module, case: Case, scores: Tensor) -> None:
        self.factors = case.factors(layer, case.shape)
        whole = np.zeros((*case.shape, case.shown))
        whole[..., 0] = scores.detach().numpy()
        self.shown, self.eta = case.shown, whole.reshape(-1)
        self.eta_v = [np.asarray(factor.eta_v, dtype=float) for factor in self.factors]
        self.structures: Structures = structures_of(self.eta.size, self.factors)
        self.scores = self.structures.scores(self.eta, self.eta_v)

    @property
    def best(self) -> np.ndarray[Any, Any]:
        """The variables of the best structure."""
        return self.structures.variables[self.scores.argmax()]

    def visible(self, values: np.ndarray[Any, Any], case: Case) -> np.ndarray[Any, Any]:
        """Return the values of the variables that have scores, in the layer's shape."""
        return np.asarray(values.reshape(-1, self.shown)[:, 0].reshape(case.shape))
