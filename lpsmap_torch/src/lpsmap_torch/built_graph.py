"""Graphs over the scores of a batch, built by a function or a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_core.api import BoolArray, Items, Labels, check_accepted, in_factors
from lpsmap_torch.estimators.estimator import Estimate, SolvedEstimate
from lpsmap_torch.graph import TorchFactorGraph, values_of

__all__ = ["BuiltGraph", "Factors", "built_by"]

Factors: TypeAlias = Callable[..., Factor | Sequence[Factor]]
"""A function that returns factors over variables, like a factor type: ``factors(u,
**arguments)``."""


class BuiltGraph(NamedTuple):
    """A graph over the scores of a batch.

    Attributes
    ----------
    graph
        The graph, with scores that carry gradients.
    variables
        The variables of the scores, in their shape.
    place
        Returns scores of the whole block of variables, given those of `variables`; padding has
        zeros.
    n_items
        The number of items of the batch, which have no weights if one of their components is
        infeasible.
    padding
        Flags of the scores that do not count, in their shape.
    """

    graph: TorchFactorGraph
    variables: Variables
    place: Callable[[Tensor], Tensor]
    n_items: int
    padding: BoolArray

    def rescore(self, scores: Tensor) -> None:
        """Replace the scores, such as by those with a margin.

        Parameters
        ----------
        scores
            In the shape of `variables`.
        """
        self.graph.rescore(self.graph.blocks[0], self.place(scores))

    def shown(self, estimate: Estimate) -> Tensor:
        """Return the values of the scores; zeros in padding and infeasible items.

        Parameters
        ----------
        estimate
            Values of all variables of the graph.
        """
        nothing, infeasible = self.padding.copy(), estimate.infeasible[self.variables.index]
        if infeasible.any():
            of_item = infeasible.reshape(self.n_items, -1).any(axis=1)
            nothing |= np.repeat(of_item, nothing.size // self.n_items).reshape(nothing.shape)
        return self._without(nothing, estimate.values)

    def shown_samples(self, samples: Tensor) -> Tensor:
        """Return (n, n_variables) samples in the shape of the scores; zeros in padding."""
        return self._without(self.padding, samples)

    def _without(self, nothing: BoolArray, values: Tensor) -> Tensor:
        """Return the values of the scores, with zeros at flags."""
        values = values_of(values, self.variables)
        if not nothing.any():
            return values
        return values.masked_fill(torch.from_numpy(nothing).to(values.device), 0.0)

    def decode(self, options: Mapping[str, Any]) -> Tensor:
        """Return the values of the best assignment, or of LP-MAP with ``exact=False``.

        Parameters
        ----------
        options
            Options of `FactorGraph.solve_map`; `exact` is True by default.
        """
        result = self.graph.solve_map(**{"exact": True, **options})
        return self.shown(SolvedEstimate(self.graph._values, self.graph._nu, result))

    def items(self) -> Items:
        """Return the items of the batch.

        Raises
        ------
        ValueError
            If factors connect variables of different items.
        """
        item = np.full(self.graph.n_variables, -1)
        numbers = np.repeat(np.arange(self.n_items), self.variables.size // max(self.n_items, 1))
        item[self.variables.index.reshape(-1)] = numbers
        return Items(self.graph._laid_out(), Labels(np.full(len(item), np.nan), item, self.n_items))


def built_by(function: Factors, scores: Tensor, arguments: Mapping[str, Any]) -> BuiltGraph:
    """Return the graph of the factors that a function returns for variables with scores.

    Parameters
    ----------
    function
        Called with the variables and the arguments; returns a factor or several.
    scores
        Scores of the variables.
    arguments
        Keyword arguments of the function.

    Raises
    ------
    TypeError
        If the function has no parameter for an argument.
    """
    check_accepted(function, arguments)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    made = function(u, **arguments)
    for factor in made if isinstance(made, (list, tuple)) else [made]:
        graph.add(factor)  # type: ignore[type-var]
    padding, n_items = ~in_factors(graph)[u.index], len(u) if u.ndim else 1
    if not padding.any():
        return BuiltGraph(graph, u, lambda scores: scores, n_items, padding)
    flags = torch.from_numpy(padding).to(scores.device)

    def place(scores: Tensor) -> Tensor:
        return scores.masked_fill(flags, 0.0)

    graph.rescore(u, place(scores))
    return BuiltGraph(graph, u, place, n_items, padding)
