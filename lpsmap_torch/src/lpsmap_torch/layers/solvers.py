"""Solvers of layers: layouts in a cache, and the marginals as a function with derivatives."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from lpsmap_core.api import checked_options, report_unsolved
from lpsmap_torch.by_name import callee_named, layer_of, local_name, registered
from lpsmap_torch.evaluations import OnFace
from lpsmap_torch.function import image, mapped
from lpsmap_torch.layers.layer_graph import GraphSolution, LayerGraph, arrays_of
from lpsmap_torch.tensor.choice import engine_on, tensor_engine
from lpsmap_torch.tensor.graphs import solve_on_device
from lpsmap_torch.tensors import numbers, tensor_of
from lpsmap_torch.tickets import solution_of, ticket_for

__all__ = ["Solver", "local_solver", "solver_of"]

MAX_LAYOUTS = 8
"""Maximum number of cached layouts: one for every shape and every ragged batch."""

LayOut: TypeAlias = Callable[..., tuple[LayerGraph, dict[str, Any]]]
"""Returns the layout for a shape, lengths, a mask and a number of parameters, and the options of
its solves; see `Layer.lay_out`."""


def solver_of(specification: str, engine: str) -> Solver:
    """Return the solver of all layers with a specification, and the name of their engine."""
    lay_out = _by_layer_of(specification)
    return registered(specification, lambda: Solver(specification, engine, lay_out))


def local_solver(layer: Any) -> Solver:
    """Return a solver of a layer without a specification, which it does not keep alive."""
    kept = weakref.ref(layer)

    def lay_out(*arguments: Any) -> tuple[LayerGraph, dict[str, Any]]:
        layer = kept()
        if layer is None:
            raise RuntimeError("the layer no longer exists; keep a reference to it.")
        layout: tuple[LayerGraph, dict[str, Any]] = layer.lay_out(*arguments)
        return layout

    name, engine = local_name("layer"), layer.engine
    return registered(name, lambda: Solver(name, engine, lay_out))


def _by_layer_of(specification: str) -> LayOut:
    """Return a function that builds layouts by a layer of its own."""

    @functools.cache
    def layer() -> Any:
        built = layer_of(specification)
        del built._solver  # it owns this function, and a cycle would outlive its last layer
        return built

    return lambda *arguments: layer().lay_out(*arguments)


class Solver:
    """The solver of all layers with one specification, with an LRU cache of layouts.

    Parameters
    ----------
    name
        The name by which calls find it.
    engine
        The name of the engine.
    lay_out
        Builds layouts.
    """

    _maps_batches = True

    def __init__(self, name: str, engine: str, lay_out: LayOut) -> None:
        self.name, self.engine, self._lay_out = name, engine, lay_out
        self.layouts: OrderedDict[Hashable, tuple[LayerGraph, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def layout(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> Iterator[tuple[LayerGraph, dict[str, Any]]]:
        """Lend the layout for tensors, and the options of its solves.

        A layout in use is not in the cache, so that threads do not share it.
        """
        ends, kept = arrays_of(lengths, mask)
        n_parameters = 0 if parameters is None else parameters.shape[-1]
        parts = (None if x is None else (x.shape, x.tobytes()) for x in (ends, kept))
        key = (scores.shape, n_parameters, *parts)
        with self._lock:
            layout = self.layouts.pop(key, None)
        if layout is None:
            layout = self._lay_out(tuple(scores.shape), ends, kept, n_parameters)
        yield layout
        with self._lock:
            self.layouts[key] = layout
            if len(self.layouts) > MAX_LAYOUTS:
                self.layouts.popitem(last=False)

    def solve(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> GraphSolution:
        """Return the solution by core's engine, on the host."""
        table = None if parameters is None else numbers(parameters)
        with self.layout(scores, parameters, lengths, mask) as (layout, options):
            return layout.solve(numbers(scores), table, options)

    def marginals(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Return the marginals of plain tensors by core's engine, like the scores.

        Parameters
        ----------
        scores, parameters, lengths, mask
            Scores, parameters of every instance, lengths and mask, validated. Scores and parameters
            get gradients.
        """
        tensors = scores, parameters, lengths, mask
        marginals: Tensor = _Marginals.apply(self.name, *tensors)  # type: ignore[no-untyped-call]
        return marginals

    def marginals_on_device(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> Tensor | None:
        """Return the marginals by an engine on the device of the scores; None if core solves them.

        Parameters
        ----------
        scores, parameters, lengths, mask
            As in `marginals`.
        """
        if engine_on(scores.device.type, self.engine) is None:
            return None
        with self.layout(scores, parameters, lengths, mask) as (layout, named):
            options = checked_options(**{k: v for k, v in named.items() if k != "engine"})
            blocks = [scores] if parameters is None else [scores, parameters]
            engine = tensor_engine(self.engine, blocks, layout.laid_out.part, options)
            if engine is None:
                return None
            additionals, factors = layout.additionals(parameters), layout.declared.factors
            for factor, x in zip(factors, additionals, strict=True):
                if x is None and factor.n_additionals:
                    return None
            flat = layout.place(scores).reshape(-1)
            solution = solve_on_device(layout.laid_out, factors, flat, additionals, options, engine)
        if solution.has_failed():
            report_unsolved(solution, lambda: [layout.variables.shape], False)
        return layout.shown_marginals(solution)

    def _evaluate(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        tensors = scores, parameters, lengths, mask
        marginals = self.marginals_on_device(*tensors)
        return self.marginals(*tensors) if marginals is None else marginals

    def _on_face(
        self, scores: Tensor, parameters: Tensor | None, lengths: Tensor | None, mask: Tensor | None
    ) -> OnFace | None:
        if engine_on(scores.device.type, self.engine) is not None:
            return None
        solution = self.solve(scores, parameters, lengths, mask)
        inputs = [x.detach() for x in (scores, parameters) if x is not None]
        like = [(x.dtype, x.device) for x in inputs]
        return OnFace(
            tensor_of(solution.values, scores.dtype, scores.device),
            inputs,
            partial(image, solution.push_forward, like[:1]),
            partial(image, solution.pull_back, like),
        )


# -------------------------------------------------------------------- derivatives


class _Marginals(torch.autograd.Function):
    """The marginals as a function of scores and parameters."""

    @staticmethod
    def forward(
        ctx: Any, name: str, scores: Tensor, parameters: Tensor | None, *others: Tensor | None
    ) -> Tensor:
        solution = _solver_named(name).solve(scores, parameters, *others)
        # copies of the numbers, which may change in place, as after a softmax
        copies = scores.clone(), None if parameters is None else parameters.clone()
        ctx.name = name
        ctx.save_for_backward(ticket_for(solution), *copies, *others)
        return tensor_of(solution.values, scores.dtype, scores.device, copy=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        ticket, *tensors = ctx.saved_tensors
        # a copy of a ticket owns no solution
        solution = solution_of(ticket) or _solver_named(ctx.name).solve(*tensors)
        like = [(x.dtype, x.device) for x in tensors[:2] if x is not None]
        maps = solution.pull_back, solution.push_forward
        products = mapped(*maps, like, gradient)
        return None, *products, *(None,) * (4 - len(products))


def _solver_named(name: str) -> Solver:
    return cast(Solver, callee_named(name))
