"""Vectors of free bits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    LocalScores,
    LocalSolution,
    Scores,
    Structures,
    Variables,
    leaf,
)
from lpsmap_core.api import FloatArray, IntArray, sum_constrained_jvp
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, clip_row, subset_hypergraph


@leaf
def _best_bits(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best bit vector of every factor in `rows`: a bit is on if its score is positive."""
    offsets = factors.offsets
    start, entry, value, size = structures
    for r in rows:
        at = start[r]
        for i in range(offsets[r], offsets[r + 1]):
            if scores.eta_u[i] > 0.0:
                entry[at], value[at] = i - offsets[r], 1.0
                at += 1
        size[r] = at - start[r]


@leaf
def _clip(rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution) -> None:
    """Project every factor in `rows` onto its box."""
    offsets = factors.offsets
    for r in rows:
        lo, hi = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        clip_row(lo, hi, scores.a, scores.delta, solution.z, solution.face)
        solution.branch[r] = 0


class Bits(HypergraphFactor):
    """Vectors of n free bits, as structures.

    All ``2^n`` vectors are structures, so that the variables are not constrained: their marginals
    are the scores clipped to [0, 1], as without the factor. The factor adds a sparse distribution
    over at most ``n + 1`` bit vectors with these marginals. A function of whole vectors can be
    averaged exactly over this distribution (Correia et al. 2020, section 4.2).

    Parameters
    ----------
    variables
        Bits, of shape ``(..., n)``: a vector for every entry of the leading axes. Or a sequence of
        views, which are stacked on a new last axis.
    lengths
        Integers of the leading axes' shape: vector b is ``[b, :lengths[b]]``.
    mask
        Booleans that broadcast to ``variables.shape``: the bits that belong to the vectors.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If `variables` has no axes, or a length is negative or exceeds `n`.

    Notes
    -----
    A vector's label is the tuple of its bits, zeros and ones.
    """

    map_kernel = staticmethod(_best_bits)
    projection_kernel = staticmethod(_clip)
    jvp_kernel = staticmethod(sum_constrained_jvp)

    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        *,
        lengths: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths, mask=mask)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 4)), lengths=[4, 1, 2]),
            cls(graph.variable((2, 3)), mask=np.array([True, False, True])),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the best bits."""
        return tuple((eta_u > 0.0).astype(int).tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the bits as an array."""
        return np.array(y, dtype=np.float64), np.empty(0)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of all subsets."""
        return subset_hypergraph(build, row.event_shape[0])

    def linear_constraints(self) -> LinearConstraints:
        """Return no constraints."""
        return LinearConstraints([], [], [], [], [])
