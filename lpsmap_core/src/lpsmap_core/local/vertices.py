"""Weighted structures of many factors as flat arrays, and the derivatives of their weights.

The weights of affinely independent structures are a function of their mean: with the structures of
a factor as columns of M and its marginals ``m = M p``,

    dp = Q M^T dm,    Q = the inverse of M^T M on weights that sum to zero.

This is the derivative of the probabilities as long as the marginals stay in the affine hull of the
structures. Niculae et al. (2018, section 3) give the same form for a single factor. The derivative
of the marginals in the scores of the graph comes from the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.ragged import concatenate_rows, flags, offsets_of, ranges, sums
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.compile import kernel

WEIGHT_ROUNDING = 1e-12
"""Weights up to this are rounding: local scores carry the errors of many additions."""


class Vertices(NamedTuple):
    """Structures with positive weights.

    Structure s belongs to factor ``owner[s]``. It has the nonzeros ``value`` at the positions
    ``entry`` (a slot of its factor, or arity + an additional), from ``offsets[s]`` to
    ``offsets[s + 1]``.
    """

    owner: IntArray
    probability: FloatArray
    offsets: IntArray
    entry: IntArray
    value: FloatArray

    def of_variables(self, arity: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the structure, slot within the factor and value of all nonzero variables."""
        structure = self._structures()
        chosen = self.entry < arity[self.owner[structure]]
        return structure[chosen], self.entry[chosen], self.value[chosen]

    def of_additionals(self, arity: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the structure, number within the factor and value of all nonzero additionals."""
        structure = self._structures()
        number = self.entry - arity[self.owner[structure]]
        chosen = number >= 0
        return structure[chosen], number[chosen], self.value[chosen]

    def _structures(self) -> IntArray:
        return np.repeat(np.arange(len(self.owner)), np.diff(self.offsets))


def join_vertices(groups: Sequence[Vertices]) -> Vertices:
    """Return the structures of all `groups`, sorted by factor and by decreasing weight.

    Structures whose weight is rounding are left out.
    """
    owner = concatenate_rows([group.owner for group in groups], np.int64)
    weight = concatenate_rows([group.probability for group in groups], np.float64)
    size = concatenate_rows([np.diff(group.offsets) for group in groups], np.int64)
    order = np.lexsort((-weight, owner))
    order = order[weight[order] > WEIGHT_ROUNDING]
    entries = ranges(offsets_of(size), order)
    return Vertices(
        owner[order],
        weight[order],
        offsets_of(size[order]),
        concatenate_rows([group.entry for group in groups], np.int64)[entries],
        concatenate_rows([group.value for group in groups], np.float64)[entries],
    )


def structure_scores(
    vertices: Vertices,
    offsets: IntArray,
    scores: FloatArray,
    negated: BoolArray,
    additional_scores: FloatArray,
) -> FloatArray:
    """Return the score of each structure: the sum over the entries that are on.

    Parameters
    ----------
    vertices
        The structures.
    offsets
        (F + 1,) slots of their factors.
    scores, negated
        One per slot: the score of its variable, and whether the slot is negated, so that it is on
        if the variable is off.
    additional_scores
        (F, A) scores of the additionals.
    """

    def total_of(of_slots: FloatArray, of_additionals: FloatArray) -> FloatArray:
        sign = np.where(negated, -1.0, 1.0)
        n, arity = len(vertices.owner), np.diff(offsets)
        structure, entry, value = vertices.of_variables(arity)
        slot = offsets[vertices.owner[structure]] + entry
        on = sums(structure, value * (sign * of_slots)[slot], n)
        structure, entry, value = vertices.of_additionals(arity)
        extra = of_additionals[vertices.owner[structure], entry]
        on += sums(structure, value * extra, n)
        # the variable of a negated slot is on unless the structure switches the slot on
        factor = np.repeat(np.arange(len(arity)), arity)
        return on + sums(factor[negated], of_slots[negated], len(arity))[vertices.owner]

    finite, finite_v = np.isfinite(scores), np.isfinite(additional_scores)
    total = total_of(np.where(finite, scores, 0.0), np.where(finite_v, additional_scores, 0.0))
    forbidden = total_of(1.0 - finite, 1.0 - finite_v)
    return np.where(forbidden > 0.0, -np.inf, total)


@dataclass(frozen=True)
class WeightMap:
    """The derivative of the weights of many factors in the marginals, and its transpose.

    Attributes
    ----------
    vertices
        Sorted by factor; affinely independent within a factor in their variables.
    offsets
        (F + 1,) slots of the factors.
    variable
        The variable of every slot.
    sign
        -1 for the negated slots, 1 for the others.
    n_variables
        Number of variables of the graph.
    """

    vertices: Vertices
    offsets: IntArray
    variable: IntArray
    sign: FloatArray
    n_variables: int

    def push_forward(self, d_values: FloatArray) -> FloatArray:
        """Return the change of the weights along a change of all marginals."""
        structure, slot, value = self._nonzeros
        d_slots = d_values[self.variable]
        factor_of_slot = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        # all results of such a factor are NaN, even if a derivative of zero would hide it
        lost = flags(factor_of_slot[~np.isfinite(d_slots)], len(self.offsets) - 1)
        d_slots[lost[factor_of_slot]] = 0.0
        products = value * d_slots[slot]
        out = self._solve(sums(structure, products, len(self.vertices.owner)))
        out[lost[self.vertices.owner]] = np.nan
        return out

    def pull_back(self, d_weights: FloatArray) -> FloatArray:
        """Return the gradient in all marginals for a gradient in the weights."""
        structure, slot, value = self._nonzeros
        lost = flags(self.vertices.owner[~np.isfinite(d_weights)], len(self.offsets) - 1)
        d_weights = np.where(lost[self.vertices.owner], 0.0, d_weights)
        products = value * self._solve(d_weights)[structure]
        out = sums(self.variable[slot], products, self.n_variables)
        out[self.variable[ranges(self.offsets, np.flatnonzero(lost))]] = np.nan
        return out

    @cached_property
    def _nonzeros(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Structure, slot among all slots and signed value of every nonzero variable."""
        structure, entry, value = self.vertices.of_variables(np.diff(self.offsets))
        slot = self.offsets[self.vertices.owner[structure]] + entry
        return structure, slot, value * self.sign[slot]

    @cached_property
    def _systems(self) -> list[tuple[IntArray, FloatArray]]:
        """For each number k of structures, the (B, k) structures of B factors and their Grams."""
        structure, slot, value = self._nonzeros
        n = len(self.vertices.owner)
        first = np.searchsorted(self.vertices.owner, np.arange(len(self.offsets)))
        counts = np.diff(first)
        starts = offsets_of(counts**2)
        gram = np.empty(starts[-1])
        begin = np.searchsorted(structure, np.arange(n + 1))
        _fill_grams(first, begin, slot, value, self.offsets, starts, gram)
        systems = []
        for k in np.unique(counts[counts > 1]):
            factors = np.flatnonzero(counts == k)
            square = gram[starts[factors][:, None] + np.arange(k * k)].reshape(-1, k, k)
            systems.append((first[factors][:, None] + np.arange(k), square))
        return systems

    def _solve(self, right: FloatArray) -> FloatArray:
        """Return ``Q right``, the x of sum 0 with ``(M^T M + 1 1^T) x = right - tau 1``."""
        out = np.zeros(len(right))
        for structures, gram in self._systems:
            sides = np.stack([right[structures], np.ones(structures.shape)], axis=-1)
            x, ones = np.moveaxis(np.linalg.solve(gram + 1.0, sides), -1, 0)
            tau = x.sum(axis=1, keepdims=True) / ones.sum(axis=1, keepdims=True)
            out[structures] = x - tau * ones
        return out


@kernel
def _fill_grams(
    first: IntArray,
    begin: IntArray,
    slot: IntArray,
    value: FloatArray,
    offsets: IntArray,
    starts: IntArray,
    gram: FloatArray,
) -> None:
    """Write the inner products of every factor's structures, one square matrix after the other."""
    largest = 0
    for f in range(len(first) - 1):
        largest = max(largest, offsets[f + 1] - offsets[f])
    dense = np.zeros(largest)
    for f in range(len(first) - 1):
        k = first[f + 1] - first[f]
        for i in range(k):
            s = first[f] + i
            for e in range(begin[s], begin[s + 1]):
                dense[slot[e] - offsets[f]] = value[e]
            for j in range(i + 1):
                t = first[f] + j
                dot = 0.0
                for e in range(begin[t], begin[t + 1]):
                    dot += value[e] * dense[slot[e] - offsets[f]]
                gram[starts[f] + i * k + j] = dot
                gram[starts[f] + j * k + i] = dot
            for e in range(begin[s], begin[s + 1]):
                dense[slot[e] - offsets[f]] = 0.0
