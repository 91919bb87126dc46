"""Edit distance with affine gaps, declared as a dynamic program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row

__all__ = ["EditScript"]

ANY = ("pair", "drop", "insert")
MOVES = (("pair", 1, 1, ANY), ("drop", 1, 0, ("pair", "drop")), ("insert", 0, 1, ANY))
"""Moves of a script: their name, their steps in both sequences, and the moves they may follow. In a
gap, all drops come before all insertions, so that each alignment has one script."""


class EditScript(DynamicProgram):
    """Scripts that turn one sequence into another: pair elements, drop some, insert others.

    A variable is on if its two elements are paired, kept or replaced. Additionals score gaps, with
    one cost to open a gap and another to extend it (Gotoh 1982).

    Parameters
    ----------
    variables
        Variables of shape (..., m, n): the pairs of m elements and n others.
    gaps
        Scores of shape (..., 2, m + n): for opening a gap with an element, and for extending a gap
        by it. The first m of each are for dropping, the others for inserting.
    lengths
        Integers of the leading axes' shape, or with a last axis of two for both lengths. If one
        sequence is empty there is only one script, and gaps have no scores.

    Raises
    ------
    ValueError
        If the number of gap scores differs from 2 (m + n) per factor.
    """

    variables_ndim = 2

    def __init__(
        self, variables: Variables, gaps: Any, *, lengths: npt.ArrayLike | None = None
    ) -> None:
        super().__init__(variables, gaps, lengths=lengths)
        m, n = self.event_shape
        if self.n_additionals != 2 * (m + n):
            raise ValueError(
                f"EditScript: gaps has {self.n_additionals} scores per factor; expected "
                f"{2 * (m + n)}: opening and extending a gap, by each of {m} + {n} elements."
            )
        self.longest = self.per_factor("longest", m)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> str:
        """Return the goal. Items are the last move and the positions in both sequences."""
        (m, n), extending = row.event_shape, row.n_additionals // 2
        if m * n == 0:
            build.edge("end")
            return "end"
        build.edge(("pair", 0, 0))
        for i, j in np.ndindex(m + 1, n + 1):
            for move, down, right, after in MOVES:
                for last in after:
                    before = last, i - down, j - right
                    if before not in build:
                        continue
                    if move == "pair":
                        build.edge((move, i, j), [before], slots=[(i - 1, j - 1)])
                    else:
                        gap = i - 1 if move == "drop" else int(row["longest"]) + j - 1
                        gap += extending if last == move else 0
                        build.edge((move, i, j), [before], additionals=[gap])
        for last in ANY:
            if (last, m, n) in build:
                build.edge("end", [(last, m, n)])
        return "end"

    def decode(
        self, variables: npt.NDArray[np.float64], additionals: npt.NDArray[np.float64]
    ) -> dict[str, Any]:
        """Return the pairs, ``{"pairs": [[i, j], ...]}``; all other elements are in gaps."""
        return {"pairs": np.argwhere(variables > 0.5).tolist()}

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((2, 3)), np.zeros((2, 5))),
            cls(graph.variable((3, 3, 2)), np.zeros((3, 2, 5)), lengths=[[3, 1], [0, 2], [2, 2]]),
        ]
