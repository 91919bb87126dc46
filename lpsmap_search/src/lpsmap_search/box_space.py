"""The interface of relaxations: spaces of boxes that a global search divides."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray
from lpsmap_decode import Space

Node = TypeVar("Node")

Arrays = dict[str, npt.NDArray[Any]]
"""Arrays of numbers or booleans, by names that are identifiers."""


class BoxSpace(Space[Node, FloatArray]):
    """A space whose answers are counts, (M,), scored by their likelihood.

    It can be pickled, and several threads may call `evaluate` at once. Its result depends only on
    its arguments, so that a resumed search takes the same course.

    Parameters
    ----------
    corpus
        The sentences.
    gap
        The gap of the search.
    constraint
        A constraint on the counts, or None. The bounds hold even if equal sentences have different
        structures.
    """

    @abc.abstractmethod
    def root(self) -> Node:
        """Return the box of all parameters."""

    @abc.abstractmethod
    def record(self, node: Node) -> Arrays:
        """Return a node as arrays.

        An array that is not empty at the root has the same shape at every node; others may have any
        length.
        """

    @abc.abstractmethod
    def node(self, record: Arrays) -> Node:
        """Return the node of a record."""

    def pack(self, nodes: Sequence[Node]) -> Arrays:
        """Return at least one node as arrays, for files."""
        records, packed = [self.record(node) for node in nodes], {}
        for name, like in self.record(self.root()).items():
            rows = [record[name] for record in records]
            packed[name] = np.stack(rows) if len(like) else np.concatenate(rows)
            if not len(like):
                packed[f"{name}_sizes"] = np.array([len(row) for row in rows], dtype=np.int64)
        return packed

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Node]:
        """Return the nodes that `pack` packed.

        Raises
        ------
        KeyError
            If an array is missing.
        ValueError
            If the shape or type of an array does not fit this space.
        """
        columns = {}
        for name, like in self.record(self.root()).items():
            array, shape = arrays[name], like.shape if len(like) else like.shape[1:]
            if array.shape[1:] != shape or array.dtype != like.dtype:
                raise ValueError(f"{name}: got rows {array.shape[1:]}; expected {shape}.")
            columns[name] = list(array) if len(like) else _split(array, arrays[f"{name}_sizes"])
        # copies, since a view would keep all rows alive
        return [
            self.node({name: row.copy() for name, row in zip(columns, rows, strict=True)})
            for rows in zip(*columns.values(), strict=True)
        ]


def _split(array: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    if (sizes < 0).any() or sizes.sum() != len(array):
        raise ValueError(f"got {len(array)} rows; expected {sizes.sum()}, the sum of their sizes.")
    return np.split(array, np.cumsum(sizes)[:-1])
