"""Factors over multi-valued variables, whose states are blocks of binary variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lpsmap_core import Factors, LinearConstraints, Variables
from lpsmap_core.api import VIEW_BYTES, FloatArray, IntArray, kind_of, reserve_memory
from lpsmap_dynamic import HypergraphFactor


class StateBlocks(HypergraphFactor):
    """A factor type over multi-valued variables.

    A variable of k states is a block of k binary variables, of which exactly one is on.

    Parameters
    ----------
    variables
        The blocks of a factor, one after the other on the last axis; see `side_by_side`.
    scores
        Scores of the additionals.
    n_states
        The numbers of states of the blocks.
    """

    def __init__(self, variables: Variables, scores: Any, n_states: Sequence[int]) -> None:
        super().__init__(variables, scores)
        self.n_states = self.integers("n_states", n_states)

    @property
    def blocks(self) -> list[Variables]:
        """The blocks of states, one for each variable."""
        ends = np.cumsum(self.n_states)
        return [
            self.variables[..., end - k : end] for k, end in zip(self.n_states, ends, strict=True)
        ]

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every variable has one state."""
        k, n_blocks = int(np.sum(self.n_states)), len(self.n_states)
        block = (
            np.repeat(np.arange(n_blocks), self.n_states)
            + n_blocks * np.arange(self.n_factors)[:, None]
        )
        return LinearConstraints(
            block.ravel(),
            np.arange(k * self.n_factors),
            1.0,
            np.ones(n_blocks * self.n_factors),
            1.0,
        )

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"states": [...]}``, the state of every variable.

        Examples
        --------
        >>> import lpsmap
        >>> x = lpsmap.FactorGraph().variable((2, 3))
        >>> dense = lpsmap.Dense([x[0], x[1]], np.zeros((3, 3)))
        >>> dense.decode(*dense.vertex((2, 0)))
        {'states': [2, 0]}
        """
        blocks = np.split(variables, np.cumsum(self.n_states)[:-1])
        return {"states": [int(block.argmax()) for block in blocks]}

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the numbers of variables plus 1: a state of each, and an entry of the table."""
        sizes: IntArray = np.diff(factors.integer_ranges, axis=1)[:, 0] + 1
        return sizes


def side_by_side(name: str, blocks: Sequence[Variables]) -> tuple[Variables, tuple[int, ...]]:
    """Return blocks of states joined on the last axis, and their numbers of states."""
    if not isinstance(blocks, (list, tuple)):
        raise TypeError(
            f"{name}: blocks: got {kind_of(blocks)}; expected a list of Variables, a "
            "block of states each, such as [x[0], x[1]]."
        )
    if not blocks:
        raise ValueError(f"{name}: blocks is empty; expected at least one variable.")
    for position, x in enumerate(blocks):
        if not isinstance(x, Variables):
            raise TypeError(
                f"{name}: entry {position} of blocks is {kind_of(x)}; expected a block "
                "of states such as x[0], Variables."
            )
        if x.ndim == 0 or x.shape[-1] == 0:
            raise ValueError(
                f"{name}: got variables of shape {x.shape}; expected at least one state on the "
                "last axis."
            )
        if x.graph is not blocks[0].graph:
            raise ValueError(
                f"{name}: the variables belong to different graphs; expected those of one. Make "
                "them with the same graph's variable_from."
            )
    try:
        batch = np.broadcast_shapes(*(x.shape[:-1] for x in blocks))
    except ValueError:
        raise ValueError(
            f"{name}: got variables of shapes {', '.join(str(x.shape) for x in blocks)}; expected "
            "leading axes that broadcast together, and the states on the last."
        ) from None
    sizes = tuple(x.shape[-1] for x in blocks)
    reserve_memory(VIEW_BYTES * math.prod(batch) * sum(sizes), "views that broadcast")
    index, negated = (
        np.concatenate(
            [np.broadcast_to(a, (*batch, k)) for a, k in zip(arrays, sizes, strict=True)], axis=-1
        )
        for arrays in ([x.index for x in blocks], [x.negated for x in blocks])
    )
    return Variables(blocks[0].graph, index, negated), sizes
