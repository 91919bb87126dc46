"""The interface of relaxations: spaces of boxes that a global search divides."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray
from lpsmap_decode import Space

__all__ = ["Arrays", "BoxSpace", "stacked", "unstacked"]

Node = TypeVar("Node")
Record = TypeVar("Record", bound=NamedTuple)

Arrays = dict[str, npt.NDArray[Any]]
"""Nodes as arrays of numbers or booleans, by names that are identifiers."""


class BoxSpace(Space[Node, FloatArray]):
    """A space whose answers are counts, (M,), scored by their likelihood.

    Its constructor takes ``(corpus, gap, *, constraint=None)``. It can be pickled, and several
    threads may call `evaluate` at once. Its result depends only on its arguments, so that a resumed
    search takes the same course.
    """

    @abc.abstractmethod
    def root(self) -> Node:
        """Return the box of all parameters."""

    @abc.abstractmethod
    def pack(self, nodes: Sequence[Node]) -> Arrays:
        """Return at least one node as arrays, for files and other processes."""

    @abc.abstractmethod
    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Node]:
        """Return the nodes that `pack` packed.

        Raises
        ------
        KeyError
            If an array is missing.
        ValueError
            If the shape or type of an array does not fit this space.
        """


def stacked(nodes: Sequence[Record]) -> Arrays:
    """Return at least one record of equally shaped arrays as one array for each field."""
    return {name: np.array([getattr(node, name) for node in nodes]) for name in nodes[0]._fields}


def unstacked(like: Record, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Record]:
    """Return the records that `stacked` stacked.

    Parameters
    ----------
    like
        A record of the same shapes and types.
    arrays
        An array for each field.

    Raises
    ------
    KeyError
        If a field is missing.
    ValueError
        If an array has another shape or type.
    """
    fields = like._asdict()
    for name, one in fields.items():
        rows = arrays[name]
        if rows.shape[1:] != one.shape or rows.dtype != one.dtype:
            raise ValueError(f"{name}: got rows {rows.shape[1:]}; expected {one.shape}.")
    # copies, since a view would keep all rows alive
    columns = ([row.copy() for row in arrays[name]] for name in fields)
    return [type(like)(*record) for record in zip(*columns, strict=True)]
