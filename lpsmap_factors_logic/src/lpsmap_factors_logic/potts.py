"""`Potts`: a score for two multi-valued variables in the same state."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    Scores,
    Structures,
    Variables,
    kernel,
    leaf,
)
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import HypergraphBuilder, Row, Tables, as_scores
from lpsmap_factors_logic.broadcast_scores import broadcast_scores
from lpsmap_factors_logic.potts_projection import multiply_potts, project_potts
from lpsmap_factors_logic.state_blocks import StateBlocks, side_by_side


@leaf
def two_largest(scores: FloatArray, at: int, n: int) -> tuple[int, int]:
    """Return the positions of the largest and of the second largest of n scores; -1 for none."""
    first, second = 0, -1
    for k in range(1, n):
        if scores[at + k] > scores[at + first]:
            first, second = k, first
        elif second < 0 or scores[at + k] > scores[at + second]:
            second = k
    return first, second


@leaf
def best_states(scores: FloatArray, at: int, n: int, strength: float) -> tuple[int, int]:
    """Return the best states of two variables, with n scores each from `at`, in O(n).

    Scores are compared by their distance from the largest of their variable: the huge score of a
    forced state would cost sums their precision.
    """
    after = at + n
    i, second_i = two_largest(scores, at, n)
    j, second_j = two_largest(scores, after, n)
    top_i, top_j = scores[at + i], scores[after + j]
    same, most = 0, -np.inf
    for k in range(n):
        score = (scores[at + k] - top_i) + (scores[after + k] - top_j)
        same = k if score > most else same
        most = score if score > most else most
    most += strength
    if n == 1:
        return 0, 0
    apart = 0.0
    if i == j:
        less_i, less_j = scores[at + second_i] - top_i, scores[after + second_j] - top_j
        apart = max(less_i, less_j)
        i, j = (i, second_j) if less_j >= less_i else (second_i, j)
    return (same, same) if most >= apart else (i, j)


@kernel
def _best_pairs(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best states of every pair of variables in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    for r in rows:
        first, at = offsets[r], start[r]
        n = (offsets[r + 1] - first) // 2
        i, j = best_states(scores.eta_u, first, n, scores.eta_v[additional_offsets[r]])
        entry[at], entry[at + 1], entry[at + 2] = i, n + j, 2 * n
        value[at] = value[at + 1] = value[at + 2] = 1.0
        size[r] = 3 if i == j else 2


def _as_tables(factors: Factors) -> Tables:
    """Return the factors as tables, whose diagonals have the score.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    n_states = np.diff(factors.offsets) // 2
    sizes, which = np.unique(n_states, return_inverse=True)
    additional = np.concatenate([np.empty(0, np.int64), *(np.eye(k).ravel() - 1 for k in sizes)])
    n_blocks, first_entry = np.full(len(n_states), 2), (np.cumsum(sizes**2) - sizes**2)[which]
    fixed = np.zeros(len(additional))
    blocks = n_blocks, np.repeat(n_states, 2)
    return Tables(*blocks, True, first_entry, fixed, additional.astype(np.int64))


class Potts(StateBlocks):
    """A score for two multi-valued variables in the same state (Potts 1952).

    The structures are all choices of one state for each variable, as of a `Dense` factor whose
    table has the score on its diagonal, and 0 elsewhere. But no table is stored: the one additional
    of a pair says whether the states are equal, and both the oracle and the closed form take time
    linear in the number of states. For x of shape (H, W, k), ``Potts(x[:, :-1], x[:, 1:], 0.5)``
    and ``Potts(x[:-1], x[1:], 0.5)`` are all edges of a grid. For x of shape (n, k), ``Potts(x[i],
    x[j], strength)`` with arrays of integers i and j are the edges of any graph.

    Parameters
    ----------
    first, second
        Blocks of shape (..., k) with leading axes that broadcast together.
    strength
        Scores of any sign that broadcast to the shape of the leading axes. ``-inf`` forbids equal
        states.

    Raises
    ------
    TypeError
        If `first` or `second` are not Variables, or `strength` does not hold real numbers.
    ValueError
        If the numbers of states differ, or shapes do not broadcast.

    Notes
    -----
    A structure's label is the tuple of its states.

    Local problem, with marginals ``(p, q) = delta * z``: ``argmin 1/2 ||z - a||^2 - w m`` over
    states' marginals p, q that sum to 1, and the marginal m of equal states, which lies between
    ``sum_k max(0, p_k + q_k - 1)`` and ``sum_k min(p_k, q_k)``. For ``w = 0``, the largest m is
    chosen.

    Examples
    --------
    >>> import lpsmap
    >>> fg = lpsmap.FactorGraph()
    >>> x = fg.variable_from([[1.0, 0.0], [0.0, 0.6], [0.0, 0.0]])
    >>> edges = fg.add(lpsmap.Potts(x[:-1], x[1:], 0.5))  # a chain
    >>> solution = fg.solve()
    >>> print(x.value.round(6))
    [[0.75  0.25 ]
     [0.475 0.525]
     [0.475 0.525]]
    >>> print(edges.additionals_value.round(6))  # the shares of equal states
    [0.725 1.   ]
    """

    map_kernel = staticmethod(_best_pairs)
    as_tables = staticmethod(_as_tables)
    projection_kernel = staticmethod(project_potts)
    jvp_kernel = staticmethod(multiply_potts)

    def __init__(self, first: Variables, second: Variables, strength: Any) -> None:
        name = type(self).__name__
        joined, sizes = side_by_side(name, [first, second])
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{name}: the variables have {sizes[0]} and {sizes[1]} states; expected equal "
                "numbers. Write a table over different ones as Dense([first, second], table)."
            )
        scores = broadcast_scores(
            f"{name}: strength",
            as_scores(f"{name}: strength", strength),
            joined.shape[:-1],
            "the pairs",
        )
        super().__init__(joined, scores, sizes)

    @property
    def first(self) -> Variables:
        """The states of the first variable."""
        return self.blocks[0]

    @property
    def second(self) -> Variables:
        """The states of the second variable."""
        return self.blocks[1]

    @property
    def strength(self) -> Any:
        """The scores of equal states as declared."""
        return self.additionals

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit: a chain, and pairs."""
        graph = FactorGraph()
        x, y = graph.variable((3, 2)), graph.variable((2, 3))
        return [
            cls(x[:-1], x[1:], [0.5, -0.5]),
            cls(x[0], ~x[2], 1.0),
            cls(y[0], y[1], 0.5),
            cls(x[0, :1], x[1, :1], 0.5),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, int]:
        """Return the best states."""
        scores = np.ascontiguousarray(eta_u, dtype=np.float64)
        i, j = best_states(scores, 0, len(scores) // 2, float(eta_v[0]))
        return int(i), int(j)

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return ones on the states, and whether they are equal."""
        (i, j), n = y, self.event_shape[0] // 2
        variables = np.zeros(2 * n)
        variables[[i, n + j]] = 1.0
        return variables, np.array([float(i == j)])

    def linear_constraints(self) -> LinearConstraints:
        """Return the local polytope: a table of auxiliary numbers with the marginals of the states.

        Its slices sum to the marginals, and its diagonal to the marginal of equal states.
        """
        return LinearConstraints.deferred(self._local_polytope)

    def _local_polytope(self) -> LinearConstraints:
        n, k = self.n_factors, self.event_shape[0] // 2
        entry, state = np.arange(k * k), np.arange(2 * k)
        slot, extra, auxiliary = state, 2 * k * n, (2 * k + 1) * n
        # rows of one factor: one for each state, then the diagonal, then the sums of both blocks
        row = np.concatenate(
            [state, entry // k, k + entry % k, [2 * k], np.full(k, 2 * k), 2 * k + 1 + state // k]
        )
        first = np.concatenate(
            [slot, np.tile(entry + auxiliary, 2), [extra], auxiliary + entry[:: k + 1], slot]
        )
        step = np.where(first >= auxiliary, k * k, np.where(first == extra, 1, 2 * k))
        sign = np.where((first == extra) | (np.arange(len(row)) < 2 * k), -1.0, 1.0)
        factor, n_rows = np.arange(n)[:, None], 2 * k + 3
        right = np.tile(np.repeat([0.0, 1.0], [2 * k + 1, 2]), n)
        return LinearConstraints(
            (row + n_rows * factor).ravel(),
            (first + step * factor).ravel(),
            np.tile(sign, n),
            right,
            right,
            n * k * k,
        )

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of one hyperedge for every choice of states."""
        n = row.event_shape[0] // 2
        i, j = (x.reshape(-1) for x in np.indices((n, n)))
        slots, same = np.stack([i, n + j], axis=1), i == j
        build.edges(np.zeros(n * n - n, dtype=np.int64), slots=slots[~same])
        build.edges(
            np.zeros(n, dtype=np.int64),
            slots=slots[same],
            additionals=np.zeros(n, dtype=np.int64),
        )
        return 0
