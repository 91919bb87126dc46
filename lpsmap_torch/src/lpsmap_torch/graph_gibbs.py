"""The Gibbs distribution of a graph as a differentiable function of the scores."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_core.api import FloatArray
from lpsmap_dynamic import GraphGibbs
from lpsmap_torch.gibbs import attach_beliefs, finite_or_zero, tensor

__all__ = ["TorchGraphGibbs"]


class TorchGraphGibbs(GraphGibbs):
    """The Gibbs distribution of a whole graph of trees of factors, as tensors.

    ``log_partition``, ``entropy``, ``value_of`` and ``additionals_of`` carry gradients to all
    scores, as do the log-probabilities of samples and of given assignments. Log-partition functions
    also have second derivatives, since the marginals are their gradients.

    Parameters
    ----------
    graph
        A `TorchFactorGraph`.
    """

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self._blocks, self._additional_scores = list(graph._scores), list(graph._additionals)
        self._like = functools.reduce(torch.promote_types, [x.dtype for x in self._blocks])
        self._device = self._blocks[0].device

    @property
    def log_partition(self) -> Tensor:
        """``(n_components,)`` the log-partition functions, ``log Z``, of the components."""
        return self._cast(self._tensors[0][:-1])

    @property
    def entropy(self) -> Tensor:
        """``(n_components,)`` entropies of the components, in nats."""
        return self._cast(self._tensors[1][:-1])

    def value_of(self, variables: Variables) -> Tensor:
        """Return the probabilities that the variables of a view are on, in its shape."""
        m = self._tensors[2][tensor(self._checked(variables).index)]
        return self._cast(torch.where(tensor(variables.negated), 1.0 - m, m))

    def additionals_of(self, factor: Factor) -> Tensor:
        """Return the expected counts of a declaration's additionals, shaped like their scores."""
        return self._cast(self._tensors[3][self._additionals(factor)].reshape(self._shape(factor)))

    def kl(self, other: TorchGraphGibbs) -> Tensor:
        """Return the ``(n_components,)`` Kullback-Leibler divergences to another distribution.

        Parameters
        ----------
        other
            The distribution of a graph that differs in its scores only.
        """
        divergence = other._tensors[0] - self._tensors[0]
        for m, owner, own, others in zip(
            self._tensors[2:],
            (self._owner, self._owner_v),
            self._flat_scores,
            other._flat_scores,
            strict=True,
        ):
            gain = torch.where(m > 0.0, own - others, 0.0)
            divergence = divergence.index_add(0, tensor(owner), m * gain)
        return self._cast(divergence[:-1])

    @functools.cached_property
    @torch.enable_grad()  # the first use may be a sample without gradients
    def _flat_scores(self) -> tuple[Tensor, Tensor]:
        """Scores of all variables and additionals, flat on the host."""
        blocks = [_flat(block) for block in self._blocks]
        additionals = [_flat(block) for block in self._additional_scores if block is not None]
        return torch.cat(blocks), torch.cat([torch.empty(0, dtype=torch.float64), *additionals])

    @functools.cached_property
    @torch.enable_grad()
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        constant = torch.zeros(self._forest.n_components + 1, dtype=torch.float64)
        return attach_beliefs(self, *self._flat_scores, constant)

    def _log_probabilities(self, values: FloatArray, additionals: FloatArray) -> Tensor:
        exact = tensor(super()._log_probabilities(values, additionals))
        score = -self._tensors[0].expand(len(values), -1)
        owners = self._owner, self._owner_v
        for x, eta, owner in zip((values, additionals), self._flat_scores, owners, strict=True):
            used = tensor(np.where(np.isnan(x), 0.0, x))
            score = score.index_add(1, tensor(owner), used * finite_or_zero(eta))
        moves = (score - score.detach())[:, :-1]  # zeros that carry the gradient
        return self._cast(exact + torch.where(exact.isfinite(), moves, 0.0))

    def _convert(self, numbers: FloatArray) -> Tensor:
        return self._cast(tensor(numbers))

    def _cast(self, numbers: Tensor) -> Tensor:
        return numbers.to(dtype=self._like, device=self._device, copy=True)


def _flat(block: Tensor) -> Tensor:
    return block.to(device="cpu", dtype=torch.float64).reshape(-1)
