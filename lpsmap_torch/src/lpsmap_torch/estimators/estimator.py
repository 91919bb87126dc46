"""The interface of estimators, and of their results."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Solution, Status
from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_dynamic import Items, infeasible_variables
from lpsmap_torch.graph import TorchFactorGraph


class Estimate(abc.ABC):
    """The result of an estimator: values of all variables and additionals of a graph.

    Parameters
    ----------
    values
        (n_variables,) the values, with the estimator's gradients to all scores.
    additionals
        For every declaration, the values of its additionals; None without additionals.
    """

    def __init__(self, values: Tensor, additionals: list[Tensor | None]) -> None:
        self.values, self.additionals = values, additionals

    def slopes(self, graph: TorchFactorGraph) -> tuple[Tensor, list[Tensor | None]]:
        """Return the derivatives of the objective in the scores, like values and additionals."""
        return self.values, self.additionals

    @property
    @abc.abstractmethod
    def infeasible(self) -> BoolArray:
        """(n_variables,) flags of variables of components without a structure."""

    @abc.abstractmethod
    def objective(self, items: Items) -> FloatArray:
        """Return the (n_items,) objectives of `items` that the estimator maximises or attains."""

    @abc.abstractmethod
    def solved(self, items: Items) -> BoolArray:
        """Return (n_items,) flags of the items whose values can be relied upon."""


class Estimator(abc.ABC):
    """Maps a graph with scores to values of its variables, with gradients to the scores."""

    @abc.abstractmethod
    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> Estimate:
        """Return the estimate for the current scores of a graph.

        Parameters
        ----------
        graph
            The graph, which belongs to the estimate from now on.
        options
            Options of `FactorGraph.solve`, for estimators that solve.
        """


class SolvedEstimate(Estimate):
    """An estimate by a solve, with or without the quadratic term, with its result."""

    def __init__(
        self, values: Tensor, additionals: list[Tensor | None], result: Solution | Any
    ) -> None:
        super().__init__(values, additionals)
        self.result = result

    @property
    def infeasible(self) -> BoolArray:
        """(n_variables,) flags of variables of components without a structure."""
        return infeasible_variables(self.result)

    def objective(self, items: Items) -> FloatArray:
        """Return the maxima of the items: of the relaxation, or the scores of assignments.

        They are -inf for items without a structure.
        """
        result = self.result
        if isinstance(result, Solution):
            of_component = np.where(result.status == Status.INFEASIBLE, -np.inf, result.objective)
        else:
            of_component = result.score
        return items.sums(items.of_component, of_component)

    def solved(self, items: Items) -> BoolArray:
        """Return flags of items whose solve converged, or whose assignment is proved the best."""
        result = self.result
        if isinstance(result, Solution):
            wrong = np.array([not status.ok for status in result.status.tolist()], dtype=bool)
        else:
            wrong = ~(result.proved & result.found)
        n_wrong = items.sums(items.of_component, wrong.astype(np.float64))
        return np.asarray(n_wrong == 0.0)


def has_gradients(graph: TorchFactorGraph) -> bool:
    """Return whether results of the graph can be differentiated."""
    scores = [*graph._scores, *(x for x in graph._additionals if x is not None)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in scores)


class SparseMarginals(Estimator):
    """The sparse marginals of SparseMAP and LP-SparseMAP, with their exact derivatives.

    ``argmax_mu <scores, mu> - 1/2 ||mu||^2`` (Niculae et al. 2018; Niculae & Martins 2020). The
    default of all layers, by the name ``"sparsemap"``.
    """

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> SolvedEstimate:
        """Return the marginals; see `Estimator.estimate`."""
        solution = graph.solve(**options)
        return SolvedEstimate(graph._values, graph._nu, solution)

    def __repr__(self) -> str:
        return "SparseMarginals()"
