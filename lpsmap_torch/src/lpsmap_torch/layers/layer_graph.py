"""The graph of a layer for scores of one shape, and its solutions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import Factor, FactorGraph, Solution, Status, Variables
from lpsmap_core.api import Layout
from lpsmap_torch.graph import in_factors
from lpsmap_torch.layers.direct import DirectlySolved, solved_directly

__all__ = ["Declarations", "LayerGraph", "LayoutSolution", "Tied"]

FloatArray = NDArray[np.float64]


class Tied(NamedTuple):
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
        found = np.zeros((self.factor.n_factors, self.factor.n_additionals))
        found[:, self.scored] = parameters.reshape(-1)[self.entries(parameters.shape[1])]
        return found


class Declarations(NamedTuple):
    """The declarations of a layer over its variables."""

    factors: list[Factor]
    """The structures of the first declaration are those of the layer. Scores in no factor are
    padding."""
    forbidden: NDArray[np.bool_] | None = None
    """Flags of scores that count as ``-inf``; None for none."""
    tied: tuple[Tied, ...] = ()
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
        self.on_devices: dict[Any, Any] = {}  # arrays of this layout, as tensors

    @property
    def laid_out(self) -> Layout:
        """The graph in flat arrays."""
        return self.graph._laid_out()

    def solve(
        self, scores: FloatArray, parameters: FloatArray, options: dict[str, Any]
    ) -> LayoutSolution:
        """Solve the graph without keeping a reference to the arguments.

        Parameters
        ----------
        scores
            The scores.
        parameters
            (n_instances, n_parameters) the parameters.
        options
            The options of `FactorGraph.solve`.
        """
        whole = self.placed(self._masked(scores))

        def solve() -> Solution:
            return self._solved(whole, parameters, options)

        given = self.laid_out, self.declared.factors, np.reshape(whole, -1)
        solution = solved_directly(*given, options["engine"], solve)
        return LayoutSolution(self, solution, parameters.shape)

    def _solved(
        self, whole: FloatArray, parameters: FloatArray, options: dict[str, Any]
    ) -> Solution:
        """Return the solution of the graph for scores of all variables."""
        self.graph.rescore(self.variables, whole)
        for tied in self.declared.tied:
            rows = tied.scores(parameters).reshape(np.shape(tied.factor.additionals))
            self.graph.rescore(tied.factor, rows)
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
        found: FloatArray = whole.reshape(self.variables.shape)[self.declared.shown]
        return found

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
        found: NDArray[np.bool_] = self.by_instance(of_variable).any(axis=1)
        return found

    def _masked(self, scores: FloatArray) -> FloatArray:
        forbidden, inside = self.declared.forbidden, self.kept(scores)
        return inside if forbidden is None else np.where(forbidden, -np.inf, inside)


class LayoutSolution:
    """A solution as a function of the scores and parameters of a layer.

    Parameters
    ----------
    layout
        The layout that was solved.
    solution
        The solution.
    shape
        The shape of the parameters.
    """

    def __init__(
        self, layout: LayerGraph, solution: Solution | DirectlySolved, shape: tuple[int, ...]
    ) -> None:
        self._layout, self._solution, self._shape = layout, solution, shape
        self._infeasible = None
        if isinstance(solution, Solution) and not solution.ok:
            self._infeasible = layout.infeasible(solution)
        values = layout.shown(solution.values)  # zeros in the padding, whose scores are zero
        if layout.declared.forbidden is not None:
            values = layout.kept(values)
        self.values = self._feasible(values)

    def pull_back(self, gradient: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gradients with respect to scores and parameters, given one for the marginals."""
        d_scores, extra = self._solution.vjp(self._whole(gradient))
        table = np.zeros(math.prod(self._shape))
        for i, tied in self._tied():
            entries, own = tied.entries(self._shape[1]), extra[i][:, tied.scored]
            table += np.bincount(entries.reshape(-1), own.reshape(-1), minlength=len(table))
        return self._shown(d_scores), table.reshape(self._shape)

    def push_forward(self, d_scores: FloatArray, d_parameters: FloatArray | None) -> FloatArray:
        """Return the tangent of the marginals, given tangents of scores and parameters."""
        factors = self._solution.factors
        extra = [np.zeros((factor.n_factors, factor.n_additionals)) for factor in factors]
        if d_parameters is not None:
            for i, tied in self._tied():
                extra[i] = tied.scores(d_parameters.reshape(self._shape))
        return self._shown(self._solution.jvp(self._whole(d_scores), extra)[0])

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

    def _tied(self) -> list[tuple[int, Tied]]:
        """Return the declarations with parameters, with their positions in the graph."""
        number = {id(factor): i for i, factor in enumerate(self._solution.factors)}
        return [(number[id(tied.factor)], tied) for tied in self._layout.declared.tied]
