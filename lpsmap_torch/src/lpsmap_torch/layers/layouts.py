"""The graphs of a layer in a cache, one for every shape, and their solutions as tensors."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import CompiledEngine, Solution
from lpsmap_core.api import (
    AUTO,
    DEFAULTS,
    DirectSolution,
    FloatArray,
    checked_options,
    solve_directly,
    solve_laid_out,
)
from lpsmap_dynamic import infeasible_variables
from lpsmap_torch.built_graph import BuiltGraph
from lpsmap_torch.function import Differentiable, attach
from lpsmap_torch.tensor.device_solution import solve_on_device
from lpsmap_torch.tensors import numbers

MAX_LAYOUTS = 8
"""Maximum number of cached graphs: one for every shape and every ragged batch."""


class Layouts:
    """An LRU cache of the graphs of all layers with one specification."""

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, BuiltGraph] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def graph(self, key: Hashable, build: Callable[[], BuiltGraph]) -> Iterator[BuiltGraph]:
        """Lend the graph with a key.

        A graph in use is not in the cache, so that threads do not share it.
        """
        with self._lock:
            built = self.graphs.pop(key, None)
        if built is None:
            built = build()
        yield built
        with self._lock:
            self.graphs[key] = built
            if len(self.graphs) > MAX_LAYOUTS:
                self.graphs.popitem(last=False)


def marginals_on_device(
    built: BuiltGraph, scores: Tensor, parameters: Tensor | None, options: dict[str, Any]
) -> Tensor | None:
    """Return the marginals by an engine on the device of the scores; None if core solves them.

    The scores, in the shape of the batch, and the (*batch, n_parameters) parameters get gradients;
    the graph stores neither. The options are those of `FactorGraph.solve`.
    """
    factors, additionals = built.declared.factors, built.additionals(parameters)
    if any(x is None and f.n_additionals for f, x in zip(factors, additionals, strict=True)):
        return None
    checked = checked_options(**{k: v for k, v in options.items() if k != "engine"})
    given = built.graph._laid_out(), factors, [built.place(scores)], additionals
    solution = solve_on_device(options["engine"], *given, checked)
    if solution is None:
        return None
    solution.report(lambda: [built.block.shape])
    return built.shown_values(solution.marginals, solution.infeasible())


def marginals_on_host(
    built: BuiltGraph, scores: Tensor, parameters: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Return the marginals by core's engine; the arguments are those of `marginals_on_device`."""
    placed, additionals = built.place(scores), built.additionals(parameters)
    if parameters is not None and not built.declared.shared:
        placed = placed + parameters.reshape(-1)[:0].sum()  # so that their gradients are zero
    rows = [None if x is None else numbers(x) for x in additionals]
    solution = _solution(built, numbers(placed), rows, options)
    values, _ = attach(solution, [placed], additionals, copy=True)
    infeasible = None
    if isinstance(solution, Solution) and not solution.ok:
        flags = infeasible_variables(solution)
        infeasible = torch.from_numpy(flags) if flags.any() else None
    return built.shown_values(values, infeasible)


def _solution(
    built: BuiltGraph,
    scores: FloatArray,
    additionals: list[FloatArray | None],
    options: dict[str, Any],
) -> Solution | Differentiable:
    graph = built.graph

    def solve() -> Solution:
        built.set_scores(scores, additionals)
        try:
            solution: Solution = graph.solve(**options)
            return solution
        finally:
            graph.rescore(built.block, np.broadcast_to(0.0, built.block.shape))

    # of small batches, the other parts of a solve take most of the time
    if options["engine"] not in (AUTO, CompiledEngine.name):
        return solve()
    flat, layout = scores.reshape(-1), graph._laid_out()
    found = solve_directly(layout.part, flat, solve)
    return _closed_form(built, flat.copy(), found) if isinstance(found, DirectSolution) else found


def _closed_form(built: BuiltGraph, scores: FloatArray, direct: DirectSolution) -> Differentiable:
    """Return the solution of all variables of a graph, of whose part `direct` is the solution."""
    layout, factors = built.graph._laid_out(), built.declared.factors
    part = layout.part

    def of_graph(numbers: FloatArray) -> FloatArray:
        """Return numbers of all variables; zeros for those in no factor, which are padding."""
        if part.whole:
            return numbers
        whole = np.zeros(len(scores))
        whole[part.variables] = numbers
        return whole

    def multiply(d: FloatArray, _: Any = None) -> tuple[FloatArray, list[FloatArray]]:
        product = direct.multiply(part.of_graph(d.reshape(-1)))
        if product is not None:
            return of_graph(product), []
        graph = layout, factors, scores, [np.empty((0, 0))] * len(factors)
        product, _ = solve_laid_out(CompiledEngine(), *graph, DEFAULTS).vjp(d)
        return product, []

    return Differentiable(of_graph(direct.marginals), (), factors, multiply)
