"""Estimates for the scores of a layer, and the solutions that layers return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Distributions, Solution, Status
from lpsmap_core.api import cached_property, kind_of
from lpsmap_dynamic import Items
from lpsmap_torch.built_graph import BuiltGraph
from lpsmap_torch.envelope import with_slopes
from lpsmap_torch.estimators import BY_NAME, Estimator
from lpsmap_torch.estimators.estimator import Estimate, SolvedEstimate
from lpsmap_torch.function import attach_probabilities
from lpsmap_torch.temperature import Temperature
from lpsmap_torch.tensors import numbers


def checked_estimator(name: str, estimator: Any) -> Estimator:
    """Return an estimator, given one or its name."""
    names = ", ".join(map(repr, BY_NAME))
    if isinstance(estimator, str):
        if estimator not in BY_NAME:
            raise ValueError(f"{name} is {estimator!r}; expected one of {names}, or an Estimator.")
        return BY_NAME[estimator]()
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"{name} is {kind_of(estimator)}; expected one of {names}, or an object of "
            "lpsmap_torch.estimators."
        )
    return estimator


class Problem(NamedTuple):
    """The graph of a layer for a batch, scored and divided by the temperature."""

    built: BuiltGraph
    batch: tuple[int, ...]
    temperature: Temperature
    """Broadcasts to the batch."""
    n_parameters: int | None
    """The number of parameters of an instance; None for the graph of a function."""


class Samples(NamedTuple):
    """Samples from Gibbs distributions."""

    values: Tensor
    """``(n, *scores.shape)`` zeros and ones; zeros in padding and in infeasible instances."""
    log_probabilities: Tensor
    """``(n, *batch)`` with gradients to all scores."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """The estimate for a problem."""

    problem: Problem
    estimate: Estimate

    @property
    def additionals(self) -> Tensor | list[Tensor] | None:
        """Values of the additionals; see `LayerSolution`."""
        built, n = self.problem.built, self.problem.n_parameters
        additionals = self.estimate.additionals
        if n is None:
            pairs = zip(built.graph._additionals, additionals, strict=True)
            each = [x.reshape(y.shape) for y, x in pairs if x is not None and y is not None]
            return each or None
        if not n:
            return None
        table = self.estimate.values.new_zeros(built.n_items * n + 1)
        for i, shared in built.shared():
            rows = additionals[i]
            assert rows is not None
            entries = torch.from_numpy(shared.entries(built.n_items, n)).to(table.device)
            table = table.index_add(0, entries.reshape(-1), rows.reshape(-1).to(table))
        return table[:-1].reshape(*self.problem.batch, n)

    @property
    def objective(self) -> Tensor:
        """The objectives of the instances, with gradients; -inf without a structure."""
        graph, estimate = self.problem.built.graph, self.estimate
        values, infeasible = estimate.values, torch.from_numpy(estimate.infeasible)
        if infeasible.any():
            values = values.masked_fill(infeasible.to(values.device), 0.0)
        numbers = estimate.objective(self._items)
        objective = with_slopes(graph, numbers, values, estimate.additionals, self._items)
        return objective.reshape(self.problem.batch) * self.problem.temperature

    @property
    def solved(self) -> Tensor:
        """Flags of the instances whose values can be relied upon."""
        flags = torch.from_numpy(self.estimate.solved(self._items))
        return flags.reshape(self.problem.batch).to(self.estimate.values.device)

    def structures(self, dtype: torch.dtype) -> Distributions:
        """Return the sparse distribution over the structures of the layer, in a dtype."""
        estimate, values = self.estimate, self.estimate.values.to(dtype)
        if not isinstance(estimate, SolvedEstimate):
            raise TypeError(
                "structures: the estimator sums over all structures; expected one that solves, "
                "such as SparseMarginals or MAP. Layer.sample draws structures."
            )
        result, shown = estimate.result, self.problem.built.graph.factors[0]
        without = [(Status.NON_FINITE, Status.INFEASIBLE)] if isinstance(result, Solution) else []
        structures = result.structures(shown, *without)
        scale: Any = self.problem.temperature
        if isinstance(scale, Tensor):
            scale = numbers(scale)
            if scale.ndim:
                of_items = np.broadcast_to(scale, self.problem.batch).reshape(-1)
                scale = of_items[self._items.of_factors(shown)[structures.vertices.owner]]
        structures.flat_scores = structures.flat_scores * scale  # those before the division
        return attach_probabilities(structures, values)

    def solution(self, marginals: Tensor) -> LayerSolution:
        """Return all results, in the dtype of the marginals that a call returns."""
        additionals, dtype = self.additionals, marginals.dtype
        if isinstance(additionals, list):
            additionals = [x.to(dtype) for x in additionals]
        elif additionals is not None:
            additionals = additionals.to(dtype)
        objective = self.objective.to(torch.promote_types(dtype, torch.float32))
        return LayerSolution(marginals, additionals, objective, self.solved, self)

    @cached_property
    def _items(self) -> Items:
        return self.problem.built.items()


@dataclass(frozen=True, eq=False)
class LayerSolution:
    """The result of a call of a layer with ``return_solution=True``, from a single solve.

    `lpsmap_torch.losses.sparsemap_loss` takes it, for the SparseMAP loss of the same solve.

    Attributes
    ----------
    marginals
        Like the scores: what the layer returns without ``return_solution``.
    additionals
        Marginals of the additionals: of a layer, summed by the parameters that score them, in
        their shape with the axes of the batch first, such as expected numbers of transitions. Of a
        function, a list with those of every factor, in the shape of their scores. None without
        additionals.
    objective
        ``(*batch,)`` what the estimator attains, with gradients: the maximum ``<scores, mu> - T/2
        ||mu||^2`` of SparseMAP, the score of the best structure, or for Gibbs marginals and samples
        the log-partition function ``T log Z``. Scores of additionals are included.
    solved
        ``(*batch,)`` flags of the instances whose values can be relied upon: the solve converged,
        or the structure is proved the best.
    """

    marginals: Tensor
    additionals: Tensor | list[Tensor] | None
    objective: Tensor
    solved: Tensor
    estimated: Estimated = field(repr=False)

    def structures(self) -> Distributions:
        """Return the sparse distribution over structures; see `SparseMAP.structures`.

        Raises
        ------
        TypeError
            If the estimator does not solve.
        """
        return self.estimated.structures(self.marginals.dtype)
