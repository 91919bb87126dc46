"""Nodes of the paper's search, and their representation as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray
from lpsmap_search.box_space import Arrays
from lpsmap_search.linear_programs import Basis
from lpsmap_search.paper.tangents import Tangents

__all__ = ["McCormickNode", "packed", "unpacked"]


class McCormickNode(NamedTuple):
    """A box of parameters, and bounds on the variables of the parses."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds of the probabilities."""
    parse_bounds: FloatArray
    """(2 P,) lower, then upper bounds of the variables of the parses."""
    cuts: Tangents
    """Tangents separated at ancestors."""
    basis: Basis | None
    """The initial basis of the simplex algorithm."""


def packed(nodes: Sequence[McCormickNode]) -> Arrays:
    """Return at least one node as arrays, with concatenated cuts and bases."""
    bases = [(b"", b"") if node.basis is None else node.basis.statuses() for node in nodes]
    return {
        "bounds": np.array([node.bounds for node in nodes]),
        "parse_bounds": np.array([node.parse_bounds for node in nodes]),
        "n_cuts": np.array([len(node.cuts.block) for node in nodes], dtype=np.int64),
        "cut_block": np.concatenate([node.cuts.block for node in nodes]),
        "cut_point": np.concatenate([node.cuts.point for node in nodes]),
        "n_columns": np.array([len(columns) for columns, _ in bases], dtype=np.int64),
        "columns": np.frombuffer(b"".join(columns for columns, _ in bases), np.uint8),
        "n_rows": np.array([len(rows) for _, rows in bases], dtype=np.int64),
        "rows": np.frombuffer(b"".join(rows for _, rows in bases), np.uint8),
    }


def unpacked(like: McCormickNode, arrays: Mapping[str, npt.NDArray[Any]]) -> list[McCormickNode]:
    """Return the nodes that `packed` packed.

    Parameters
    ----------
    like
        A node of the same space.
    arrays
        The result of `packed`.

    Raises
    ------
    KeyError
        If an array is missing.
    ValueError
        If the shape or type of an array does not fit the space, or arrays do not match.
    """
    n = len(arrays["bounds"])
    for name, one in packed([like]).items():
        array = arrays[name]
        if array.shape[1:] != one.shape[1:] or array.dtype != one.dtype:
            raise ValueError(f"{name}: got rows {array.shape[1:]}; expected {one.shape[1:]}.")
    blocks, points = (_split(arrays, name, "n_cuts", n) for name in ("cut_block", "cut_point"))
    columns, rows = _split(arrays, "columns", "n_columns", n), _split(arrays, "rows", "n_rows", n)
    return [
        McCormickNode(
            arrays["bounds"][i].copy(),
            arrays["parse_bounds"][i].copy(),
            Tangents(blocks[i].copy(), points[i].copy()),
            Basis(columns[i].tobytes(), rows[i].tobytes()) if len(columns[i]) else None,
        )
        for i in range(n)
    ]


def _split(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, sizes: str, n: int
) -> list[npt.NDArray[Any]]:
    lengths = arrays[sizes]
    if len(lengths) != n or (lengths < 0).any() or lengths.sum() != len(arrays[name]):
        raise ValueError(f"{sizes}: got {len(lengths)} sizes that do not fit {name}; expected {n}.")
    return np.split(arrays[name], np.cumsum(lengths)[:-1])
