"""The graph of all instances of a call, on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import FloatArray
from lpsmap_dynamic import in_factors, infeasible_variables
from lpsmap_jax.call import Call


class HostGraph(FactorGraph):
    """A graph in which NaN propagates, without affecting other components."""

    refuses_non_finite = False

    def _as_scores(self, name: str, scores: Any) -> Any:
        if isinstance(scores, jax.Array):
            raise TypeError(
                f"{name}: got a JAX array that the function of variables closes over; expected an "
                "argument. Pass it to the call as a keyword argument, with which it can have a "
                "gradient, or convert a constant with np.asarray."
            )
        return super()._as_scores(name, scores)


class Declared(NamedTuple):
    """A graph without a solution."""

    graph: FactorGraph
    variables: Variables
    """(n_instances, n_variables of an instance)"""
    instance: list[int]
    """The instance of every declaration."""


def leading_axes(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of `jax.vmap`, which arrays have in front; the first one has `shape`."""
    n = arrays[0].ndim - len(shape)
    return np.broadcast_shapes(*(x.shape[:n] for x in arrays))


def rows_of(array: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of a `shape` behind leading axes with one axis for all instances instead.

    Parameters
    ----------
    array
        The array; its leading axes have size 1 where it is not mapped.
    axes
        The leading axes of all instances.
    shape
        The other axes.
    """
    return np.broadcast_to(array, axes + shape).reshape(math.prod(axes), *shape)


def declared(call: Call, arrays: Sequence[NDArray[Any]]) -> Declared:
    """Return the graph of all instances.

    Parameters
    ----------
    call
        The call.
    arrays
        Its inputs, each with an axis for the instances in front.
    """
    blocks, arguments = arrays[: call.n_blocks], arrays[call.n_blocks :]
    n = len(arrays[0])
    graph, instance = HostGraph(), []
    u = graph.variable_from(
        np.concatenate(
            [x.reshape(n, size) for x, size in zip(blocks, call.sizes, strict=True)], axis=1
        )
    )
    ends = np.cumsum(call.sizes)
    for i in range(n):
        views = [
            u[i, end - size : end].reshape(block.shape)
            for end, size, block in zip(ends, call.sizes, call.scores, strict=True)
        ]
        for factor in call.declare(views, [x[i] for x in arguments]):
            graph.add(factor)
            instance.append(i)
    return Declared(graph, u, instance)


class Instances:
    """The graph of all instances of a call, with its solution.

    Parameters
    ----------
    call
        The call.
    arrays
        Its inputs, each with the leading axes of `jax.vmap`, of size 1 where it is not mapped.
    axes
        The leading axes of all instances.
    """

    def __init__(self, call: Call, arrays: Sequence[NDArray[Any]], axes: tuple[int, ...]) -> None:
        self.call = call
        self.arrays = [
            rows_of(x, axes, like.shape) for x, like in zip(arrays, call.inputs, strict=True)
        ]
        self.graph, self.variables, self.instance = declared(call, self.arrays)
        self.inside = in_factors(self.graph)
        scores = np.where(self.inside, self.graph.flat_scores(), 0.0)  # padding may hold anything
        self.graph.rescore(self.variables, scores.reshape(self.variables.shape))
        self.solution = self.graph.solve(**call.options)
        self.kept = self.inside & ~infeasible_variables(self.solution)

    def blocks(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Return values of all variables by block, with an axis for the instances in front."""
        rows = values.reshape(self.variables.shape)
        parts = np.split(rows, np.cumsum(self.call.sizes)[:-1], axis=1)
        return [
            part.reshape(len(rows), *block.shape)
            for part, block in zip(parts, self.call.scores, strict=True)
        ]

    def flat(self, blocks: Sequence[NDArray[Any]]) -> FloatArray:
        """Return values of all variables, given by block: the inverse of `blocks`."""
        n, sizes = len(self.variables), self.call.sizes
        rows = [x.reshape(n, size) for x, size in zip(blocks, sizes, strict=True)]
        return np.concatenate(rows, axis=1).reshape(-1)
