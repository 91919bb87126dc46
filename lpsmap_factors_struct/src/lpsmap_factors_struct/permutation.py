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
    LocalSolver,
    Scores,
    Structures,
    Variables,
    kernel,
    largest_arity,
)
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.permutahedron.merge_sort import sort_items
from lpsmap_factors_struct.permutahedron.projected_orders import ProjectedOrders

MAX_DESCRIBED_ITEMS = 100
"""Maximum number of items of an ordering that is described by linear constraints.

They take an auxiliary number for every pair of an item and a position.
"""


@kernel
def _best_orders(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best ordering of every factor in `rows`."""
    offsets = factors.offsets
    start, entry, value, size = structures
    longest = largest_arity(rows, offsets)
    order, spare = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    for r in rows:
        n = offsets[r + 1] - offsets[r]
        for i in range(n):
            order[i] = i
        sort_items(order[:n], scores.eta_u[offsets[r] : offsets[r + 1]], spare)
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
    mean positions. They form the permutahedron, scaled to the unit cube (Bowman 1972), onto which
    scores are projected in O(n log n) for most scores (Blondel et al. 2020).

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

    @classmethod
    def local_solver(cls) -> type[LocalSolver]:
        """Return the solver of orderings by projections."""
        return ProjectedOrders

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the items of the best ordering, from the first to the last."""
        return tuple(np.argsort(eta_u, kind="stable").tolist())

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
