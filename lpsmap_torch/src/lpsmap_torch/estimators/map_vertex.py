"""The best structure, with gradients of your choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lpsmap_core import CompiledEngine, Solution, Status
from lpsmap_core.api import (
    DEFAULT_GAP,
    FloatArray,
    checked_flag,
    checked_number,
    checked_options,
    report_unsolved,
    solve_laid_out,
    warn_unsolved,
)
from lpsmap_dynamic import infeasible_variables
from lpsmap_torch.estimators.estimator import Estimator, SolvedEstimate, has_gradients
from lpsmap_torch.function import Differentiable, attach
from lpsmap_torch.graph import TorchFactorGraph

GRADIENTS = ("straight-through", "spigot", "identity")

ANY_GAP = 1e9
"""The relative gap at which a search ends with the first structure that it finds."""

FRACTIONAL = 1e-6
"""Values at least this far from 0 and 1 are fractional: the tolerance of solves."""


class MAP(Estimator):
    """The best structure, with the gradient of a surrogate: the exact one is zero or undefined.

    Parameters
    ----------
    gradient
        The vector-Jacobian product for a gradient g with respect to the structure z:

        ``"straight-through"``
            That of the SparseMAP marginals for the same scores.
        ``"spigot"``
            ``z - argmin_mu 1/2 ||mu - (z - step g)||^2`` over the polytope: the structure minus the
            SparseMAP solution for the structure moved against the gradient (Peng et al. 2018). The
            scores of additionals, which have no quadratic term, are minus step times their
            gradient.
        ``"identity"``
            The gradient itself (Hinton 2012; Bengio et al. 2013).
    step
        The step size of ``"spigot"``.
    exact
        Whether to search for the best structure with a proof, by ``lpsmap-decode``. Otherwise
        LP-MAP is solved, and ``lpsmap-decode`` rounds fractional solutions, which occur if factors
        interact; it searches until it has a structure, within the limits of `Solution.decode`.

    Raises
    ------
    TypeError
        If an option has a wrong type.
    ValueError
        If `gradient` is unknown, or `step` is not positive.
    """

    def __init__(
        self, gradient: str = "straight-through", *, step: float = 1.0, exact: bool = False
    ) -> None:
        self.gradient = checked_gradient("MAP: gradient", gradient, GRADIENTS)
        expected = "a positive number"
        self.step = checked_number("MAP: step", step, expected, lambda x: 0.0 < x < np.inf)
        self.exact = checked_flag("MAP: exact", exact)

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> SolvedEstimate:
        """Return the best structure; see `Estimator.estimate`."""
        best = self._best(graph, options)
        vertex = np.where(best.layout.component >= 0, np.round(best.values), best.values)
        result = Differentiable(vertex, best.additionals, best.factors)
        if has_gradients(graph):
            result = replace(result, **self._surrogate(result, graph, options))
        values, additionals = attach(result, graph._scores, graph._additionals)
        return SolvedEstimate(values, additionals, best)

    def _best(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> Solution | Any:
        options = {name: x for name, x in options.items() if not name.startswith("backward_")}
        if self.exact:
            return graph.solve_map(exact=True, **options)
        relaxation = graph.solve_map(**options)
        assert isinstance(relaxation, Solution)
        fractional = np.abs(relaxation.values - np.round(relaxation.values)) > FRACTIONAL
        if (fractional & (relaxation.layout.component >= 0)).any():
            return _rounded(relaxation, options.get("threads"))
        return relaxation

    def _surrogate(
        self, vertex: Differentiable, graph: TorchFactorGraph, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the derivative of the surrogate, as fields of `Differentiable`."""
        if self.gradient == "straight-through":
            with torch.no_grad():
                return {"vjp": graph.solve(**options).vjp}
        forbidden = np.isneginf(graph.flat_scores())
        if self.gradient == "identity":
            return {"vjp": lambda d, d_v: (np.where(forbidden, 0.0, d), [*d_v])}

        def difference(d: FloatArray, d_v: Sequence[FloatArray]) -> tuple[FloatArray, Any]:
            scores = np.where(forbidden, -np.inf, vertex.values - self.step * d)
            extra = [-self.step * x for x in d_v or map(np.zeros_like, vertex.additionals)]
            moved = _solved(graph, scores, extra, options)
            pairs = zip(vertex.additionals, moved.additionals, strict=True)
            change = np.where(infeasible_variables(moved), 0.0, vertex.values - moved.values)
            return change, [a - b for a, b in pairs]

        return {"vjp": difference, "linear": False}

    def __repr__(self) -> str:
        step = f", step={self.step!r}" if self.gradient == "spigot" else ""
        return f"MAP({self.gradient!r}{step}{', exact=True' if self.exact else ''})"


def _rounded(relaxation: Solution, threads: int | None) -> Any:
    """Return the first structures that a search finds, starting from marginals.

    It warns if it finds none for a component whose relaxation is feasible.
    """
    first = relaxation.decode(gap=ANY_GAP, threads=threads)
    missing = ~first.found & (relaxation.status != Status.INFEASIBLE)
    if missing.any():
        warn_unsolved(
            ["The search found no structure of zeros and ones for some components."],
            [f"Components without a structure: {int(missing.sum())} of {len(missing)}."],
        )
    return replace(first, gap=DEFAULT_GAP)  # what counts as a proof


def checked_gradient(name: str, gradient: Any, known: Sequence[str]) -> str:
    """Validate the name of a gradient."""
    if gradient not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{name} is {gradient!r}; expected one of {names}.")
    return str(gradient)


def _solved(
    graph: TorchFactorGraph,
    scores: FloatArray,
    additionals: Sequence[FloatArray],
    options: Mapping[str, Any],
) -> Solution:
    """Return the SparseMAP solution of a graph for other scores, by core's engine."""
    checked = checked_options(**{name: x for name, x in options.items() if name != "engine"})
    given = graph._laid_out(), graph.factors, scores, additionals
    solution = solve_laid_out(CompiledEngine(), *given, checked)
    if not solution.ok:
        report_unsolved(solution, graph._shapes, False)
    return solution
