"""The Gibbs distribution of a graph as a differentiable function of the scores."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_dynamic import GraphGibbs
from lpsmap_torch.gibbs_function import attach_beliefs, tensor

__all__ = ["TorchGraphGibbs"]


class TorchGraphGibbs(GraphGibbs):
    """The Gibbs distribution of a whole graph of trees of factors, as tensors.

    ``log_partition``, ``entropy``, ``value_of`` and ``additionals_of`` carry gradients to all
    scores. Log-partition functions also have second derivatives, since the marginals are their
    gradients.

    Parameters
    ----------
    graph
        A `TorchFactorGraph`.
    """

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self._blocks, self._given = list(graph._scores), list(graph._additionals)
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

    @functools.cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        blocks = [_flat(block) for block in self._blocks]
        given = [_flat(block) for block in self._given if block is not None]
        constant = torch.zeros(self._forest.n_components + 1, dtype=torch.float64)
        eta_v = torch.cat([constant[:0], *given])
        return attach_beliefs(self, torch.cat(blocks), eta_v, constant)

    def _cast(self, found: Tensor) -> Tensor:
        return found.to(dtype=self._like, device=self._device, copy=True)


def _flat(block: Tensor) -> Tensor:
    return block.to(device="cpu", dtype=torch.float64).reshape(-1)
