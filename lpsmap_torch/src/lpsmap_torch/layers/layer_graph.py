"""The graph of a layer for scores of one shape, declared once and solved repeatedly."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import CompiledEngine, Factor, FactorGraph, Options, Solution, Status, Variables
from lpsmap_core.api import (
    AUTO,
    DirectSolution,
    FloatArray,
    Layout,
    in_factors,
    solve_directly,
    solve_laid_out,
)
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.tensor.graphs import DeviceSolution

__all__ = ["Declarations", "GraphSolution", "LayerGraph", "SharedScores", "arrays_of"]


class SharedScores(NamedTuple):
    """A declaration whose additionals are scored by shared parameters of an instance."""

    factor: Factor
    parameter: NDArray[np.int64]
    """(n_additionals,) the parameter that scores each additional, -1 where the score is zero."""
    instances: NDArray[np.int64] | None = None
    """(n_factors,) the instance of each factor; None for one factor per instance."""

    @property
    def scored(self) -> NDArray[np.int64]:
        """Numbers of the additionals with a parameter: few in a sequence with tied transitions."""
        return np.flatnonzero(self.parameter >= 0)

    def entries(self, n_parameters: int) -> NDArray[np.int64]:
        """Return the (n_factors, n_scored) positions of scores in the flat table of parameters."""
        instances = np.arange(self.factor.n_factors) if self.instances is None else self.instances
        return instances[:, None] * n_parameters + self.parameter[self.scored]

    def scores(self, parameters: FloatArray) -> FloatArray:
        """Return (n_factors, n_additionals) scores, given (n_instances, n_parameters) parameters.

        Additionals without a parameter have zeros.
        """
        scores = np.zeros((self.factor.n_factors, self.factor.n_additionals))
        scores[:, self.scored] = parameters.reshape(-1)[self.entries(parameters.shape[1])]
        return scores


class Declarations(NamedTuple):
    """The declarations of a layer over its variables."""

    factors: list[Factor]
    """The structures of the first declaration are those of the layer. Scores in no factor are
    padding."""
    forbidden: NDArray[np.bool_] | None = None
    """Flags of scores that count as ``-inf``; None for none."""
    shared: tuple[SharedScores, ...] = ()
    shown: Any = Ellipsis
    """The index of the variables that the scores of the layer belong to."""


class LayerGraph:
    """A graph without scores, to be solved repeatedly.

    Parameters
    ----------
    graph, variables
        The graph, and its only block of variables.
    declared
        The declarations over them.
    n_instances
        The number of instances of the batch, the leading axes of the variables.
    """

    def __init__(
        self, graph: FactorGraph, variables: Variables, declared: Declarations, n_instances: int
    ) -> None:
        self.graph, self.variables, self.declared = graph, variables, declared
        self._n_instances = n_instances
        for factor in declared.factors:
            graph.add(factor)
        shown = in_factors(graph).reshape(variables.shape)[declared.shown]
        if declared.forbidden is not None:
            shown &= ~declared.forbidden
        self.keep = None if shown.all() else shown
        self._zeros = np.broadcast_to(0.0, variables.shape)
        self._on_devices: dict[Any, Tensor] = {}

    @property
    def laid_out(self) -> Layout:
        """The graph in flat arrays."""
        return self.graph._laid_out()

    # ---------------------------------------------------------------- on the host

    def solve(
        self, scores: FloatArray, parameters: FloatArray | None, options: dict[str, Any]
    ) -> GraphSolution:
        """Solve the graph without keeping a reference to the arguments.

        Parameters
        ----------
        scores
            The scores.
        parameters
            (*batch, n_parameters) the parameters of every instance, or None.
        options
            The options of `FactorGraph.solve`.
        """
        whole = self.placed(self._masked(scores))

        def solve() -> Solution:
            return self._solved(whole, parameters, options)

        # of small batches, the other parts of a solve take most of the time
        may_have_form = options["engine"] in (AUTO, CompiledEngine.name)
        flat = whole.reshape(-1)
        solution = solve_directly(self.laid_out.part, flat, solve) if may_have_form else solve()
        shape = None if parameters is None else parameters.shape
        if not isinstance(solution, DirectSolution):
            return GraphSolution(self, solution, shape)
        form = ClosedForm(self.laid_out, self.declared.factors, flat.copy(), solution)
        return GraphSolution(self, form, shape)

    def _solved(
        self, whole: FloatArray, parameters: FloatArray | None, options: dict[str, Any]
    ) -> Solution:
        """Return the solution of the graph for scores of all variables."""
        self.graph.rescore(self.variables, whole)
        for shared in self.declared.shared:
            assert parameters is not None
            rows = shared.scores(_table(parameters))
            self.graph.rescore(shared.factor, rows.reshape(np.shape(shared.factor.additionals)))
        try:
            return self.graph.solve(**options)
        finally:
            self.graph.rescore(self.variables, self._zeros)

    def placed(self, numbers: FloatArray) -> FloatArray:
        """Return values for all variables: those of the scores, and zeros elsewhere."""
        if self.declared.shown is Ellipsis:
            return numbers
        whole = np.zeros(self.variables.shape)
        whole[self.declared.shown] = numbers
        return whole

    def shown(self, whole: FloatArray) -> FloatArray:
        """Return the values of the variables with scores."""
        values: FloatArray = whole.reshape(self.variables.shape)[self.declared.shown]
        return values

    def kept(self, numbers: FloatArray) -> FloatArray:
        """Return values with zeros in the padding and at forbidden scores."""
        return numbers if self.keep is None else np.where(self.keep, numbers, 0.0)

    def by_instance(self, numbers: Any) -> Any:
        """Return numbers of all variables, an array or a tensor, with a row for each instance."""
        return numbers.reshape(self._n_instances, -1)

    def infeasible(self, solution: Solution) -> NDArray[np.bool_] | None:
        """Return flags of infeasible instances, flat; None if all are feasible."""
        wrong = [status is Status.INFEASIBLE for status in solution.status.tolist()]
        if not any(wrong):
            return None
        of_variable = np.append(wrong, False)[solution.layout.component]  # component -1: padding
        flags: NDArray[np.bool_] = self.by_instance(of_variable).any(axis=1)
        return flags

    def _masked(self, scores: FloatArray) -> FloatArray:
        forbidden, inside = self.declared.forbidden, self.kept(scores)
        return inside if forbidden is None else np.where(forbidden, -np.inf, inside)

    # ---------------------------------------------------------------- of tensors

    def place(self, scores: Tensor) -> Tensor:
        """Return scores of all variables, with gradients, as `solve` takes them."""
        if self.keep is not None:
            keep = self._on("keep", self.keep, scores.device)
            scores = scores.masked_fill(~keep, 0.0)
        if self.declared.forbidden is not None:
            forbidden = self._on("forbidden", self.declared.forbidden, scores.device)
            scores = scores.masked_fill(forbidden, -torch.inf)
        if self.declared.shown is Ellipsis:
            return scores
        whole = scores.new_zeros(self.variables.shape)
        whole[self.declared.shown] = scores
        return whole

    def additionals(self, parameters: Tensor | None) -> list[Tensor | None]:
        """Return the (n_factors, n_additionals) scores of the additionals of every declaration.

        They are None for declarations without parameters.
        """
        scores: list[Tensor | None] = [None] * len(self.declared.factors)
        if parameters is None:
            return scores
        number = {id(factor): i for i, factor in enumerate(self.declared.factors)}
        for shared in self.declared.shared:
            i, device = number[id(shared.factor)], parameters.device
            entries = self._on((i, "entries"), shared.entries(parameters.shape[-1]), device)
            scored = self._on((i, "scored"), shared.scored, device)
            rows = parameters.new_zeros(shared.factor.n_factors, shared.factor.n_additionals)
            rows[:, scored] = parameters.reshape(-1)[entries]
            scores[i] = rows
        return scores

    def rescore(self, graph: TorchFactorGraph, scores: Tensor, parameters: Tensor | None) -> None:
        """Set the scores of a graph with these declarations."""
        graph.rescore(self.variables, self.place(scores))
        for factor, rows in zip(self.declared.factors, self.additionals(parameters), strict=True):
            if rows is not None:
                graph.rescore(factor, rows.reshape(np.shape(factor.additionals)))

    def shown_marginals(self, solution: DeviceSolution) -> Tensor:
        """Return the marginals of the scores; zeros in padding and in infeasible instances."""
        shape, shown = self.variables.shape, self.declared.shown
        marginals, infeasible = solution.marginals.reshape(shape)[shown], solution.infeasible()
        if infeasible is not None:
            rows = self.by_instance(infeasible)
            nothing = rows.any(-1, keepdim=True).expand_as(rows).reshape(shape)[shown]
            marginals = marginals.masked_fill(nothing, 0.0)
        if self.keep is not None:
            keep = self._on("keep", self.keep, marginals.device)
            marginals = marginals.masked_fill(~keep, 0.0)
        return marginals

    def _on(self, name: Hashable, array: NDArray[Any], device: torch.device) -> Tensor:
        """Return an array of this graph as a tensor on a device, which is copied there once."""
        key = name, device
        if key not in self._on_devices:
            self._on_devices[key] = torch.from_numpy(array).to(device)
        return self._on_devices[key]


class GraphSolution:
    """A solution as a function of the scores and parameters of a layer.

    Parameters
    ----------
    layout
        The graph that was solved.
    solution
        The solution.
    shape
        The shape of the parameters, if any.
    """

    def __init__(
        self, layout: LayerGraph, solution: Solution | ClosedForm, shape: tuple[int, ...] | None
    ) -> None:
        self._layout, self._solution, self._shape = layout, solution, shape
        self._infeasible = None
        if isinstance(solution, Solution) and not solution.ok:
            self._infeasible = layout.infeasible(solution)
        values = layout.shown(solution.values)  # zeros in the padding, whose scores are zero
        if layout.declared.forbidden is not None:
            values = layout.kept(values)
        self.values = self._feasible(values)

    def pull_back(self, gradient: FloatArray) -> tuple[FloatArray, ...]:
        """Return gradients of scores and of parameters, if any, given one of the marginals."""
        d_scores, d_additionals = self._solution.vjp(self._whole(gradient))
        if self._shape is None:
            return (self._shown(d_scores),)
        table = np.zeros(math.prod(self._shape))
        for i, shared in self._shared():
            entries, rows = shared.entries(self._shape[-1]), d_additionals[i][:, shared.scored]
            table += np.bincount(entries.reshape(-1), rows.reshape(-1), minlength=len(table))
        return self._shown(d_scores), table.reshape(self._shape)

    def push_forward(
        self, d_scores: FloatArray, d_parameters: FloatArray | None = None
    ) -> FloatArray:
        """Return the tangent of the marginals, given tangents of scores and parameters."""
        factors = self._solution.factors
        d_additionals = [np.zeros((f.n_factors, f.n_additionals)) for f in factors]
        if d_parameters is not None:
            for i, shared in self._shared():
                d_additionals[i] = shared.scores(_table(d_parameters))
        return self._shown(self._solution.jvp(self._whole(d_scores), d_additionals)[0])

    def _whole(self, numbers: FloatArray) -> FloatArray:
        return self._layout.placed(self._feasible(self._layout.kept(numbers))).reshape(-1)

    def _shown(self, whole: FloatArray) -> FloatArray:
        """Return derivatives of the variables with scores; they are zero in the padding."""
        return self._feasible(self._layout.shown(whole))

    def _feasible(self, numbers: FloatArray) -> FloatArray:
        """Return values with zeros in infeasible instances."""
        if self._infeasible is None:
            return numbers
        rows = numbers.reshape(len(self._infeasible), -1)
        with np.errstate(invalid="ignore"):  # NaN propagates
            return (rows * ~self._infeasible[:, None]).reshape(numbers.shape)

    def _shared(self) -> list[tuple[int, SharedScores]]:
        """Return the declarations with parameters, with their positions in the graph."""
        number = {id(factor): i for i, factor in enumerate(self._solution.factors)}
        return [(number[id(shared.factor)], shared) for shared in self._layout.declared.shared]


class ClosedForm:
    """What a layer uses of a `Solution`, where one call of a closed form is the whole solve.

    Parameters
    ----------
    layout, factors
        The solved layout, and its declarations.
    scores
        The scores of all variables.
    direct
        The solution of its part.
    """

    def __init__(
        self, layout: Layout, factors: list[Factor], scores: FloatArray, direct: DirectSolution
    ) -> None:
        self.factors = factors
        self._layout, self._scores, self._direct = layout, scores, direct

    @property
    def values(self) -> FloatArray:
        """The marginals of all variables; zeros for those in no factor, which are padding."""
        return self._of_graph(self._direct.marginals)

    def vjp(self, d: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply the Jacobian with a vector; see `Solution.vjp`."""
        product = self._direct.multiply(self._layout.part.of_graph(d))
        return self._solution.vjp(d) if product is None else (self._of_graph(product), [])

    def jvp(self, d: FloatArray, _: Any) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply the Jacobian with a vector, and with none for additionals."""
        return self.vjp(d)

    def _of_graph(self, numbers: FloatArray) -> FloatArray:
        """Return numbers of all variables from those of the part's variables."""
        part = self._layout.part
        if part.whole:
            return numbers
        whole = np.zeros(len(self._scores))
        whole[part.variables] = numbers
        return whole

    @functools.cached_property
    def _solution(self) -> Solution:
        """The solution with which vectors of any size can be multiplied."""
        additionals = [np.empty((0, 0))] * len(self.factors)
        graph = self._layout, self.factors, self._scores, additionals
        return solve_laid_out(CompiledEngine(), *graph, Options())


def _table(parameters: FloatArray) -> FloatArray:
    """Return parameters as (n_instances, n_parameters)."""
    *batch, n_parameters = parameters.shape
    return parameters.reshape(math.prod(batch), n_parameters)


def arrays_of(*tensors: Tensor | None) -> list[NDArray[Any] | None]:
    """Return lengths and masks as arrays."""
    return [None if x is None else x.detach().cpu().numpy() for x in tensors]
