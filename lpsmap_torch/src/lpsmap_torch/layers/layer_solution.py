"""Estimates for the scores of a layer, and the solutions that layers return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Distributions, Solution, Status
from lpsmap_core.api import kind_of
from lpsmap_torch.built_graph import BuiltGraph
from lpsmap_torch.envelope import values_with_slopes
from lpsmap_torch.estimators import BY_NAME, Estimator
from lpsmap_torch.estimators.estimator import Estimate, SolvedEstimate
from lpsmap_torch.function import attach_probabilities
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


class Samples(NamedTuple):
    """Samples from Gibbs distributions."""

    values: Tensor
    """``(n, *scores.shape)`` zeros and ones; zeros in padding and in infeasible instances."""
    log_probabilities: Tensor
    """``(n, *batch)`` with gradients to all scores."""


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
    built: BuiltGraph = field(repr=False)
    estimate: Estimate = field(repr=False)

    def structures(self) -> Distributions:
        """Return the sparse distribution over structures; see `SparseMAP.structures`.

        Raises
        ------
        TypeError
            If the estimator does not solve.
        """
        return structures_of(self.built, self.estimate, self.marginals.dtype)


def solution_of(built: BuiltGraph, estimate: Estimate, marginals: Tensor) -> LayerSolution:
    """Return all results of an estimate, in the dtype of the marginals that a call returns."""
    items = built.items()
    values, additionals = estimate.slopes(built.graph)
    infeasible = torch.from_numpy(estimate.infeasible)
    known = values
    if infeasible.any():
        known = values.masked_fill(infeasible.to(values.device), 0.0)
    numbers = estimate.objective(items)
    objective = values_with_slopes(built.graph, numbers, known, additionals, items)
    objective = objective.reshape(built.batch) * built.temperature
    solved = torch.from_numpy(estimate.solved(items)).reshape(built.batch)
    return LayerSolution(
        marginals,
        _additionals_of(built, estimate, marginals.dtype),
        objective.to(torch.promote_types(marginals.dtype, torch.float32)),
        solved.to(values.device),
        built,
        estimate,
    )


def _additionals_of(
    built: BuiltGraph, estimate: Estimate, dtype: torch.dtype
) -> Tensor | list[Tensor] | None:
    """Return the marginals of the additionals; see `LayerSolution`."""
    n, additionals = built.n_parameters, estimate.additionals
    if n is None:
        pairs = zip(built.graph._additionals, additionals, strict=True)
        each = [x.reshape(y.shape) for y, x in pairs if x is not None and y is not None]
        return [x.to(dtype) for x in each] or None
    if not n:
        return None
    table = estimate.values.new_zeros(built.n_items * n + 1)
    for i, shared in built.shared():
        rows = additionals[i]
        assert rows is not None
        entries = torch.from_numpy(shared.entries(built.n_items, n)).to(table.device)
        table = table.index_add(0, entries.reshape(-1), rows.reshape(-1).to(table))
    return table[:-1].reshape(*built.batch, n).to(dtype)


def structures_of(built: BuiltGraph, estimate: Estimate, dtype: torch.dtype) -> Distributions:
    """Return the sparse distribution over the structures of a layer, in a dtype."""
    if not isinstance(estimate, SolvedEstimate):
        raise TypeError(
            "structures: the estimator sums over all structures; expected one that solves, such as "
            "SparseMarginals or MAP. Layer.sample draws structures."
        )
    result, shown = estimate.result, built.graph.factors[0]
    without = [(Status.NON_FINITE, Status.INFEASIBLE)] if isinstance(result, Solution) else []
    structures = result.structures(shown, *without)
    scale: Any = built.temperature
    if isinstance(scale, Tensor):
        scale = numbers(scale)
        if scale.ndim:
            of_items = np.broadcast_to(scale, built.batch).reshape(-1)
            item = built.items().of_factors(shown)
            scale = of_items[item[structures.vertices.owner]]
    structures.flat_scores = structures.flat_scores * scale  # those before the division
    return attach_probabilities(structures, estimate.values.to(dtype))
