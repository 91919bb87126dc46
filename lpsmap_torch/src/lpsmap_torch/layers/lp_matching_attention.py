"""Attention by rows and columns that agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import Factor, Variables
from lpsmap_torch.layers.layer import Lengths, Mask, factor_type
from lpsmap_torch.layers.layout import Declared
from lpsmap_torch.layers.pairs import RelaxedPairLayer

__all__ = ["LPMatchingAttention"]


class LPMatchingAttention(RelaxedPairLayer):
    """Attention both ways at once, by LP-SparseMAP over rows and columns.

    An `Xor` for every word of the shorter side, and an `AtMostOne` for every word of the longer one
    (Niculae & Martins 2020, Eq. 21). Solved to the end this is `MatchingAttention`, for fractional
    matchings are mixtures of matchings (Birkhoff 1946). Unlike that, it is made of small factors,
    and may be cut off early.

    Parameters
    ----------
    rescale
        Whether to divide by the sums of the shorter side's words, which are 1 only as far as the
        solver got: "For both LP-SparseMAP approaches, we rescale the result by row sums to ensure
        feasibility" (section 5.2).
    max_iter, max_inner_iter, tol, step_size, adapt, relaxation, threads, engine
        As for `FactorGraph.solve`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers of the batch's shape with an axis of two, rows
    and columns; axes of the batch may be 1, and the last ones left out. A mask says which pairs are
    allowed, and broadcasts to the scores; rows and columns of no pair have weights of zero.
    """

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declared:
        """Return the rows and columns that have a pair at all."""
        m, n = u.shape[-2:]
        allowed = self._allowed(u.shape, lengths, mask)
        if not allowed.any():
            return Declared([])
        allowed, table = allowed.reshape(-1, m, n), u.reshape(-1, m, n)
        heights, widths = allowed.any(axis=2).sum(axis=1), allowed.any(axis=1).sum(axis=1)
        wide = heights <= widths
        factors = [
            *_lines(table, allowed & wide[:, None, None]),
            *_lines(table.transpose(0, 2, 1), (allowed & ~wide[:, None, None]).transpose(0, 2, 1)),
        ]
        return Declared(factors)


def _lines(table: Variables, pairs: NDArray[np.bool_]) -> Iterator[Factor]:
    """Yield what holds for rows and columns of any pair: rows are full, columns at most that."""
    instance, row = np.nonzero(pairs.any(axis=2))
    if instance.size:
        yield factor_type("Xor")(table[instance, row], mask=pairs[instance, row])
        instance, column = np.nonzero(pairs.any(axis=1))
        lines, there = table[instance, :, column], pairs[instance, :, column]
        yield factor_type("AtMostOne")(lines, mask=there)
