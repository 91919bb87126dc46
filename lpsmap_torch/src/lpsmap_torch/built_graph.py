"""Graphs over the scores of a batch, built by a function or a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Factor, FactorGraph, Variables, installed
from lpsmap_core.api import BoolArray, missing_type_advice
from lpsmap_dynamic import (
    DynamicProgram,
    HypergraphBuilder,
    Items,
    Labels,
    Row,
    check_accepted,
    in_factors,
)
from lpsmap_torch.estimators.estimator import Estimate, SolvedEstimate
from lpsmap_torch.graph import TorchFactorGraph, values_of
from lpsmap_torch.temperature import Temperature

Factors: TypeAlias = Callable[..., Factor | Sequence[Factor]]
"""A function that returns factors over variables, like a factor type: ``factors(u,
**arguments)``."""


class SharedScores(NamedTuple):
    """A declaration whose additionals are scored by shared parameters of an instance."""

    factor: Factor
    parameter: NDArray[np.int64]
    """(n_additionals,) the parameter that scores each additional, -1 where the score is zero."""
    instances: NDArray[np.int64] | None = None
    """(n_factors,) the instance of each factor; None for one factor per instance."""

    def entries(self, n_items: int, n_parameters: int) -> NDArray[np.int64]:
        """Return the (n_factors, n_additionals) positions of scores in the flat parameters.

        That of a score of zero is behind those of all items.
        """
        instances = np.arange(self.factor.n_factors) if self.instances is None else self.instances
        entries = instances[:, None] * n_parameters + self.parameter
        return np.where(self.parameter < 0, n_items * n_parameters, entries)


class Declarations(NamedTuple):
    """The declarations over the variables of a batch."""

    factors: Sequence[Factor]
    """The structures of the first declaration are those of a layer. Scores in no factor are
    padding."""
    forbidden: BoolArray | None = None
    """Flags of scores that count as ``-inf``; None for none."""
    shared: tuple[SharedScores, ...] = ()
    shown: Any = Ellipsis
    """The index of the variables that the scores belong to."""


def _unchanged(scores: Tensor) -> Tensor:
    return scores


class BuiltGraph:
    """A graph over the scores of a batch.

    Parameters
    ----------
    graph
        The graph, with its declarations.
    block
        Its variables whose scores are those of the batch, or functions of them.
    declared
        The declarations.
    batch
        The shape of the items, which have no weights if one of their components is infeasible.
    n_parameters
        The number of parameters of an item; None for the graph of a function.

    Attributes
    ----------
    graph
        The graph, with scores that carry gradients.
    variables
        The variables of the scores, in their shape.
    n_items
        The number of items of the batch.
    padding
        Flags of the scores that do not count, in their shape.
    prepare
        Maps the scores of the batch to those of the variables; the identity at first.
    temperature
        That by which the scores are divided, which broadcasts to the batch; 1 at first.
    """

    def __init__(
        self,
        graph: FactorGraph,
        block: Variables,
        declared: Declarations,
        batch: tuple[int, ...],
        n_parameters: int | None = None,
    ) -> None:
        self.graph: Any = graph
        self.block, self.declared = block, declared
        self.batch, self.n_items, self.n_parameters = batch, math.prod(batch), n_parameters
        self.prepare: Callable[[Tensor], Tensor] = _unchanged
        self.temperature: Temperature = 1.0
        self.variables = block if declared.shown is Ellipsis else block[declared.shown]
        self.padding: BoolArray = ~in_factors(graph)[self.variables.index]
        if declared.forbidden is not None:
            self.padding |= declared.forbidden
        self._has_padding = bool(self.padding.any())
        self._is_whole = block.span == slice(0, graph.n_variables)
        self._on_devices: dict[Any, Tensor] = {}

    # ---------------------------------------------------------------- scores

    def place(self, scores: Tensor) -> Tensor:
        """Return scores of the whole block, given those of `variables`; padding has zeros."""
        if self._has_padding:
            scores = scores.masked_fill(self._on("padding", self.padding, scores.device), 0.0)
        if self.declared.forbidden is not None:
            forbidden = self._on("forbidden", self.declared.forbidden, scores.device)
            scores = scores.masked_fill(forbidden, -torch.inf)
        if self.declared.shown is Ellipsis:
            return scores
        whole = scores.new_zeros(self.block.shape)
        whole[self.declared.shown] = scores
        return whole

    def additionals(self, parameters: Tensor | None) -> list[Tensor | None]:
        """Return the (n_factors, n_additionals) scores of the additionals of every declaration.

        Parameters
        ----------
        parameters
            (*batch, n_parameters) the parameters of every instance, or None.

        Returns
        -------
        list of Tensor
            None for declarations without parameters.
        """
        scores: list[Tensor | None] = [None] * len(self.declared.factors)
        if parameters is None:
            return scores
        padded = torch.nn.functional.pad(parameters.reshape(-1), (0, 1))
        for i, shared in self.shared():
            of_factors = shared.entries(self.n_items, parameters.shape[-1])
            entries = self._on((i, "entries"), of_factors, parameters.device)
            scores[i] = padded.index_select(0, entries.reshape(-1)).reshape(entries.shape)
        return scores

    def shared(self) -> list[tuple[int, SharedScores]]:
        """Return the declarations with parameters, with their positions in the graph."""
        number = {id(factor): i for i, factor in enumerate(self.declared.factors)}
        return [(number[id(shared.factor)], shared) for shared in self.declared.shared]

    def rescore(self, scores: Tensor) -> None:
        """Replace the scores, such as by those with a margin.

        Parameters
        ----------
        scores
            In the shape of `variables`.
        """
        self.set_scores(self.place(self.prepare(scores)), [])

    def set_scores(self, placed: Any, additionals: Sequence[Any]) -> None:
        """Replace the scores of the block, and those of the first declarations' additionals.

        Parameters
        ----------
        placed
            The scores of the block, as `place` returns them.
        additionals
            The scores of the additionals, as `additionals` returns them; None for those that stay.
        """
        self.graph.rescore(self.block, placed)
        for factor, rows in zip(self.declared.factors, additionals, strict=False):
            if rows is not None:
                self.graph.rescore(factor, rows.reshape(np.shape(factor.additionals)))

    # ---------------------------------------------------------------- values

    def shown(self, estimate: Estimate) -> Tensor:
        """Return the values of the scores; zeros in padding and infeasible items.

        Parameters
        ----------
        estimate
            Values of all variables of the graph.
        """
        infeasible = estimate.infeasible
        flags = torch.from_numpy(infeasible) if infeasible.any() else None
        return self.shown_values(estimate.values.clone(), flags)

    def shown_samples(self, samples: Tensor) -> Tensor:
        """Return (n, n_variables) samples in the shape of the scores; zeros in padding."""
        return self.shown_values(samples.clone())

    def shown_values(self, values: Tensor, infeasible: Tensor | None = None) -> Tensor:
        """Return the values of the scores, given those of all variables, or a view of them.

        Parameters
        ----------
        values
            (..., n_variables) the values.
        infeasible
            (n_variables,) flags of variables whose items have zeros; None for none.
        """
        if not self._is_whole:
            values = values_of(values, self.variables)
        else:
            values = values.reshape(*values.shape[:-1], *self.block.shape)
            if self.declared.shown is not Ellipsis:
                values = values[self.declared.shown]
        if infeasible is not None:
            index = self._on("index", self.variables.index, values.device)
            nothing = infeasible.to(values.device)[index]
            of_items = nothing.reshape(self.n_items, nothing.numel() // max(self.n_items, 1))
            nothing = of_items.any(-1, keepdim=True).expand_as(of_items).reshape(nothing.shape)
            values = values.masked_fill(nothing, 0.0)
        if self._has_padding:
            values = values.masked_fill(self._on("padding", self.padding, values.device), 0.0)
        return values

    def decode(self, options: Mapping[str, Any]) -> Tensor:
        """Return the values of the best assignment, or of LP-MAP with ``exact=False``.

        Parameters
        ----------
        options
            Options of `FactorGraph.solve_map`; `exact` is True by default.
        """
        result = self.graph.solve_map(**{"exact": True, **options})
        return self.shown(SolvedEstimate(self.graph._values, self.graph._nu, result))

    def by_item(self, of_components: Tensor) -> Tensor:
        """Return the sums over the components of every item, ``(..., *batch)``.

        Parameters
        ----------
        of_components
            ``(..., n_components)`` numbers.
        """
        item = torch.from_numpy(self.items().of_component).to(of_components.device)
        sums = of_components.new_zeros(*of_components.shape[:-1], self.n_items)
        sums = sums.index_add(-1, item[item >= 0], of_components[..., item >= 0])
        return sums.reshape((*sums.shape[:-1], *self.batch))

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

    def _on(self, name: Hashable, array: NDArray[Any], device: torch.device) -> Tensor:
        """Return an array of this graph as a tensor on a device, which is copied there once."""
        key = name, device
        if key not in self._on_devices:
            with torch.inference_mode(False):  # later calls may need gradients
                self._on_devices[key] = torch.tensor(array, device=device)
        return self._on_devices[key]


def built_by(
    function: Factors,
    scores: Tensor,
    arguments: Mapping[str, Any],
    batch: tuple[int, ...] | None = None,
) -> BuiltGraph:
    """Return the graph of the factors that a function returns for variables with scores.

    A batch of None stands for the first axis of the scores.
    """
    check_accepted(function, arguments)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    made = function(u, **arguments)
    for factor in made if isinstance(made, (list, tuple)) else [made]:
        graph.add(factor)  # type: ignore[type-var]
    built = BuiltGraph(
        graph, u, Declarations(graph.factors), u.shape[:1] if batch is None else batch
    )
    if built.padding.any():
        built.rescore(scores)
    return built


def factor_type(name: str) -> Callable[..., Factor]:
    """Return an installed factor type."""
    factors = installed().factors
    if name not in factors:
        raise ImportError(f"{name}: no such factor type; {missing_type_advice(name, factors)}")
    made: Callable[..., Factor] = factors[name].value
    return made


def no_factor(u: Variables) -> Factor:
    """Return a declaration of zero factors, for a batch of padding only."""
    return _Nothing(u.reshape(-1)[:0].reshape(0, 1))


class _Nothing(DynamicProgram):
    """A variable that is off: a type with sums and samples that needs no pack of factors."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the goal of the only derivation."""
        build.edge(0)
        return 0
