"""Estimates from Gibbs distributions."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, FloatArray, IntArray, slot_values
from lpsmap_torch.estimators.estimator import Estimate
from lpsmap_torch.gibbs import TorchGibbs
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.items import Items

__all__ = ["GibbsEstimate", "distributions_of", "on_variables"]


class GibbsEstimate(Estimate):
    """An estimate from the Gibbs distributions of all factors of a graph.

    Parameters
    ----------
    values, additionals
        As in `Estimate`.
    distributions
        The distributions of every declaration.
    """

    def __init__(
        self, values: Tensor, additionals: list[Tensor | None], distributions: list[TorchGibbs]
    ) -> None:
        super().__init__(values, additionals)
        self._distributions = distributions

    @property
    def infeasible(self) -> BoolArray:
        """(n_variables,) flags of variables of factors without a structure."""
        flags = np.zeros(len(self.values), dtype=bool)
        for gibbs, log_z in zip(self._distributions, self._log_partitions, strict=True):
            slots = np.repeat(np.isneginf(log_z), np.diff(gibbs.factor.offsets))
            flags[slot_values(gibbs.factor, gibbs.factor.variables.index)[slots]] = True
        return flags

    def objective(self, items: Items) -> FloatArray:
        """Return the log-partition functions of the items."""
        total = np.zeros(items.n_items)
        for gibbs, log_z in zip(self._distributions, self._log_partitions, strict=True):
            total += items.sums(items.of_factors(gibbs.factor), log_z)
        return total

    def solved(self, items: Items) -> BoolArray:
        """Return flags of the items with a structure: their sums are exact."""
        return np.isfinite(self.objective(items))

    @functools.cached_property
    def _log_partitions(self) -> list[FloatArray]:
        return [np.add(*gibbs._log_partition) for gibbs in self._distributions]


def distributions_of(graph: TorchFactorGraph) -> list[TorchGibbs]:
    """Return the Gibbs distributions of every declaration of a graph.

    Raises
    ------
    TypeError
        If a type has no log-partition function.
    ValueError
        If two factors share a variable.
    """
    used = [np.unique(_indices(factor)) for factor in graph.factors]
    counts = np.bincount(np.concatenate([*used, np.empty(0, np.int64)]).astype(np.int64))
    if counts.size and counts.max() > 1:
        raise ValueError(
            "estimator: factors share variables, and sums over their common structures are not "
            "available; expected one factor per instance. SparseMarginals and MAP support any "
            "graph."
        )
    return [graph.gibbs(factor) for factor in graph.factors]


def on_variables(factor: Factor, slots: Tensor, n_variables: int) -> Tensor:
    """Return the values of all variables, given those of the slots of a declaration.

    Parameters
    ----------
    factor
        The declaration.
    slots
        ``(..., n_slots)`` values with the negations of the declaration.
    n_variables
        The number of variables of the graph; those in no slot get zero.
    """
    negated = torch.from_numpy(slot_values(factor, factor.variables.negated).copy())
    index = torch.from_numpy(_indices(factor).copy())
    values = torch.where(negated, 1.0 - slots, slots)
    return slots.new_zeros(*slots.shape[:-1], n_variables).index_copy(-1, index, values)


def _indices(factor: Factor) -> IntArray:
    index: IntArray = slot_values(factor, factor.variables.index)
    return index
