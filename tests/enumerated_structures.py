"""All structures of a graph of enumerated factors, by trying every assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from judges import EnumeratedFactor

__all__ = ["Structures", "structures_of"]

FloatArray = npt.NDArray[np.float64]


class Structures(NamedTuple):
    """The structures that all factors allow."""

    variables: FloatArray
    """(Y, V) zeros and ones."""
    additionals: list[FloatArray]
    """For every factor, (Y, A) its additionals."""

    def scores(self, eta: FloatArray, eta_v: Sequence[Any]) -> FloatArray:
        """Return the (Y,) scores of the structures."""
        pairs = zip(self.additionals, eta_v, strict=True)
        return np.asarray(self.variables @ eta + sum(n @ np.asarray(e) for n, e in pairs))


def structures_of(n_variables: int, factors: Sequence[EnumeratedFactor]) -> Structures:
    """Return all structures of a graph of at most twenty variables."""
    numbers = np.arange(2**n_variables)
    bits = (numbers[:, None] >> np.arange(n_variables)) & 1
    allowed = np.ones(len(numbers), dtype=bool)
    vertex_of = []
    for factor in factors:
        slots = np.where(
            np.asarray(factor.negated), 1 - bits[:, factor.variables], bits[:, factor.variables]
        )
        weights = 2 ** np.arange(slots.shape[1])
        vertex = np.full(2 ** slots.shape[1], -1)
        vertex[(np.asarray(factor.vertices_m) @ weights).astype(int)] = np.arange(
            len(factor.vertices_m)
        )
        vertex_of.append(vertex[slots @ weights])
        allowed &= vertex_of[-1] >= 0
    rows = [np.asarray(f.vertices_n)[v[allowed]] for f, v in zip(factors, vertex_of, strict=True)]
    return Structures(bits[allowed].astype(float), rows)
