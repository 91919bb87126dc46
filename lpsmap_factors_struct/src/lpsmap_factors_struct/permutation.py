"""Orderings of items by their positions: the permutahedron."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    Scores,
    Structures,
    Variables,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy

MAX_DESCRIBED_ITEMS = 100
"""Maximum number of items of an ordering that is described by linear constraints.

They take an auxiliary number for every pair of an item and a position.
"""


@leaf
def sort_by_score(scores: FloatArray, order: IntArray, spare: IntArray) -> None:
    """Write the order of the scores from the lowest to the highest; ties keep their order.

    Bottom-up merge sort, in O(n log n), with a workspace of `n` numbers.
    """
    n = len(scores)
    source, target = order[:n], spare[:n]
    for i in range(n):
        source[i] = i
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for at in range(begin, end):
                if right == end or (
                    left < middle and scores[source[left]] <= scores[source[right]]
                ):
                    target[at] = source[left]
                    left += 1
                else:
                    target[at] = source[right]
                    right += 1
        source, target = target, source
        width *= 2
    copy(source, order)


@kernel
def _best_orders(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best ordering of every factor in `rows`."""
    offsets = factors.offsets
    start, entry, value, size = structures
    longest = largest_arity(rows, offsets)
    order, spare = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    for r in rows:
        n = offsets[r + 1] - offsets[r]
        sort_by_score(scores.eta_u[offsets[r] : offsets[r + 1]], order, spare)
        for position in range(1, n):  # the first position's value is 0
            entry[start[r] + position - 1] = order[position]
            value[start[r] + position - 1] = position / (n - 1)
        size[r] = max(n - 1, 0)


class Permutation(Factor):
    """Orderings of n items, in which an item's position is weighted by its score.

    The structures are the ``n!`` orderings. An item's variable is its position as a fraction: 0 for
    the first item, ``1 / (n - 1)`` for the second, 1 for the last. The score of an ordering is the
    sum over items of score times variable. The best ordering sorts the items from the lowest score
    to the highest, in O(n log n) (Hardy, Littlewood & Polya 1934, section 10.2). The marginals are
    mean positions. They form the permutahedron, scaled to the unit cube (Bowman 1972).

    Parameters
    ----------
    variables
        Positions, of shape ``(..., n)``: an ordering of `n` items for every entry of the leading
        axes. Negated variables, ``~u``, are ordered from the highest score to the lowest. A score
        of ``-inf`` requires position 0, which only one item can have.
    lengths
        Integers of the leading axes' shape: ordering b covers ``[b, :lengths[b]]``. A single item
        has position 0.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If `variables` has no axes, or a length is negative or exceeds `n`.

    Notes
    -----
    An ordering's label is the tuple of its items, from the first to the last. For scores that
    depend on item and position in any other way, use a `Matching` of items to positions.
    """

    map_kernel = staticmethod(_best_orders)
    expected_failures = {
        "check_zero_one": "a structure gives every item its place in the order, scaled to [0, 1]"
    }

    def __init__(self, variables: Variables, *, lengths: npt.ArrayLike | None = None) -> None:
        super().__init__(variables, lengths=lengths)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [cls(graph.variable((3, 4)), lengths=[4, 1, 3])]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the items of the best ordering, from the first to the last."""
        order, spare = np.empty((2, len(eta_u)), dtype=np.int64)
        sort_by_score(np.ascontiguousarray(eta_u, dtype=np.float64), order, spare)
        return tuple(order.tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the items' positions in ordering `y`, as fractions."""
        positions = np.empty(len(y))
        positions[list(y)] = np.arange(len(y)) / max(len(y) - 1, 1)
        return positions, np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"order": [...]}``, the items from the first to the last."""
        return {"order": np.argsort(variables).tolist()}

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the numbers of items after the first, whose variable is 0."""
        sizes: IntArray = np.maximum(np.diff(factors.offsets) - 1, 0)
        return sizes

    def linear_constraints(self) -> LinearConstraints | None:
        """Return that positions are means under a doubly stochastic matrix of auxiliary numbers.

        The matrix holds the fraction of each item at each position. None for long orderings.
        """
        arity = np.diff(self.offsets)
        if arity.max(initial=0) > MAX_DESCRIBED_ITEMS:
            return None
        return LinearConstraints.deferred(self._doubly_stochastic)

    def _doubly_stochastic(self) -> LinearConstraints:
        arity = np.diff(self.offsets)
        n = np.repeat(arity, arity**2)
        entry = np.arange(len(n))
        item, position = np.divmod(entry - np.repeat(np.cumsum(arity**2) - arity**2, arity**2), n)
        first, n_slots = np.repeat(self.offsets[:-1], arity**2), self.offsets[-1]
        of_item, of_position = first + item, first + position
        slot, matrix = np.arange(n_slots), n_slots + entry
        each = [
            LinearConstraints(of_item, matrix, 1.0, np.ones(n_slots), 1.0, len(n)),
            LinearConstraints(of_position, matrix, 1.0, np.ones(n_slots), 1.0, len(n)),
            LinearConstraints(
                np.append(of_item, slot),
                np.append(matrix, slot),
                np.append(position / np.maximum(n - 1, 1), np.full(n_slots, -1.0)),
                np.zeros(n_slots),
                0.0,
                len(n),
            ),
        ]
        return LinearConstraints.together(*each)
