"""The registry of solvers that operators call by name.

Layers with equal specifications share a solver, which lives as long as one of them. A loaded
program has no layers: its solvers are built from specifications, and the latest ones are cached.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpsmap_torch.layers.graph_cache import GraphCache
from lpsmap_torch.layers.layer_graph import LayerGraph, LayoutSolution
from lpsmap_torch.layers.specifications import layer_of

__all__ = ["Solver", "local_solver", "solver_named", "solver_of", "weakly"]

MOST_LOADED = 32
"""Maximum number of cached solvers of loaded programs."""

LayOut = Callable[
    [tuple[int, ...], NDArray[Any] | None, NDArray[Any] | None, int],
    tuple[LayerGraph, dict[str, Any]],
]
"""Builds a layout from a shape, lengths, a mask and a number of parameters; returns the options of
its solve, too."""


class Solver:
    """The solver of all layers with one specification, with a cache of layouts.

    Parameters
    ----------
    name
        The name by which operators look it up.
    lay_out
        Builds layouts.
    """

    def __init__(self, name: str, lay_out: LayOut) -> None:
        self.name, self.layouts, self._lay_out = name, GraphCache(), lay_out

    def solved(
        self,
        scores: NDArray[Any],
        parameters: NDArray[Any] | None,
        lengths: NDArray[Any] | None,
        mask: NDArray[Any] | None,
    ) -> LayoutSolution:
        """Return the solution for checked arrays."""
        shape = (1, 0) if parameters is None else parameters.shape
        table = np.empty((1, 0)) if parameters is None else parameters
        table = table.reshape(math.prod(shape[:-1]), shape[-1])
        with self.layout(scores.shape, lengths, mask, table.shape) as (layout, options):
            return layout.solve(scores, table, options)

    @contextlib.contextmanager
    def layout(
        self,
        shape: tuple[int, ...],
        lengths: NDArray[Any] | None,
        mask: NDArray[Any] | None,
        table: tuple[int, int] = (1, 0),
    ) -> Iterator[tuple[LayerGraph, dict[str, Any]]]:
        """Lend the layout for scores of a shape, and the options of its solves.

        Parameters
        ----------
        shape
            The shape of the scores.
        lengths, mask
            As `Layer.declare` gets them.
        table
            The shape of the parameters.
        """
        parts = (None if x is None else (x.shape, x.tobytes()) for x in (lengths, mask))
        key = (shape, table, *parts)
        found = self.layouts.take(key)
        if found is None:
            found = self._lay_out(shape, lengths, mask, table[1])
        yield found
        self.layouts.give(key, found)


_SOLVERS: weakref.WeakValueDictionary[str, Solver] = weakref.WeakValueDictionary()
_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_LOCAL = f"layer of process {uuid.uuid4().hex}, number "
"""The prefix of names that are valid only in this process and in forked processes."""


def solver_of(specification: str) -> Solver:
    """Return the solver of a specification."""
    with _LOCK:
        solver = _SOLVERS.get(specification)
        if solver is None:
            solver = _SOLVERS[specification] = Solver(specification, _Builder(specification))
        return solver


def local_solver(lay_out: LayOut) -> Solver:
    """Return a solver of a layer without specification; its name is valid only in this process."""
    solver = Solver(f"{_LOCAL}{next(_NUMBERS)}", lay_out)
    with _LOCK:
        _SOLVERS[solver.name] = solver
    return solver


def solver_named(name: str) -> Solver:
    """Return the solver with a name.

    Raises
    ------
    RuntimeError
        If the solver belongs to a layer without a specification that no longer exists.
    """
    solver = _SOLVERS.get(name)
    if solver is not None:
        return solver
    if name.startswith("{"):
        return _loaded(name)
    if name.startswith(_LOCAL):
        raise RuntimeError(
            f"{name}: the layer no longer exists; keep a reference to it, or to its model, until "
            "the backward pass is done."
        )
    raise RuntimeError(
        f"{name}: the layer belongs to another process and has no specification, so it cannot be "
        "rebuilt here. Compile or export the model in this process."
    )


@functools.lru_cache(MOST_LOADED)
def _loaded(specification: str) -> Solver:
    layer_of(specification)  # raises if something is missing
    return solver_of(specification)


def weakly(layer: Any) -> LayOut:
    """Return a function that builds layouts for a layer without keeping the layer alive."""
    kept = weakref.ref(layer)

    def lay_out(*given: Any) -> tuple[LayerGraph, dict[str, Any]]:
        alive = kept()
        if alive is None:
            raise RuntimeError("the layer no longer exists; keep a reference to it.")
        found: tuple[LayerGraph, dict[str, Any]] = alive.lay_out(*given)
        return found

    return lay_out


class _Builder:
    """Builds layouts by the layer of a specification, which it builds once."""

    def __init__(self, specification: str) -> None:
        self._specification = specification

    def __call__(self, *given: Any) -> tuple[LayerGraph, dict[str, Any]]:
        found: tuple[LayerGraph, dict[str, Any]] = self._layer.lay_out(*given)
        return found

    @functools.cached_property
    def _layer(self) -> Any:
        layer = layer_of(self._specification)
        del layer._solver  # it owns this builder, and a cycle would outlive its last layer
        return layer
