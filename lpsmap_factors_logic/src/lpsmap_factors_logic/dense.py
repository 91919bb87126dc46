"""`Dense`: tables of scores over multi-valued variables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
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
    largest_arity,
    leaf,
)
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import HypergraphBuilder, Row, Tables, as_scores
from lpsmap_factors_logic.broadcast_scores import broadcast_scores
from lpsmap_factors_logic.state_blocks import StateBlocks, side_by_side


@leaf
def reduced_blocks(scores: FloatArray, n_states: IntArray, target: FloatArray) -> None:
    """Reduce the scores of every variable's states to a maximum of 0.

    This does not change the best entry. Without it, the huge score of a forced state would cost all
    sums their precision.
    """
    first = 0
    for size in n_states:
        most = scores[first]
        for j in range(first + 1, first + size):
            most = max(most, scores[j])
        for j in range(first, first + size):
            target[j] = scores[j] - most
        first += size


@leaf
def best_entry(reduced: FloatArray, table: FloatArray, n_states: IntArray, state: IntArray) -> int:
    """Return the entry of a table with the highest score plus scores of its states.

    Ties are broken in favour of the first entry.

    Parameters
    ----------
    reduced
        Scores of the states of all variables, one variable after the other.
    table
        A score for every choice of states, in C order.
    n_states
        Numbers of states of the variables.
    state
        Workspace of one number for each variable.
    """
    n, last = len(n_states), n_states[-1]
    at_last = len(reduced) - last
    state[:n] = 0
    best, most, at = 0, -np.inf, 0
    while at < len(table):
        others, first = 0.0, 0
        for d in range(n - 1):
            others += reduced[first + state[d]]
            first += n_states[d]
        for j in range(last):
            score = others + reduced[at_last + j] + table[at + j]
            best = at + j if score > most else best
            most = score if score > most else most
        at += last
        d = n - 2
        while d >= 0:
            state[d] += 1
            if state[d] < n_states[d]:
                break
            state[d] = 0
            d -= 1
    return best


@kernel
def _best_states(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best entry of the table of every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    largest = largest_arity(rows, offsets)
    reduced, state = np.empty(largest), np.empty(largest, dtype=np.int64)
    for r in rows:
        n_states = factors.integers[factors.integer_ranges[r, 0] : factors.integer_ranges[r, 1]]
        arity = offsets[r + 1] - offsets[r]
        reduced_blocks(scores.eta_u[offsets[r] : offsets[r + 1]], n_states, reduced)
        table = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        best = best_entry(reduced[:arity], table, n_states, state)
        at, first = start[r], arity
        entry[at], value[at] = arity + best, 1.0
        for d in range(len(n_states) - 1, -1, -1):
            at += 1
            first -= n_states[d]
            entry[at], value[at] = first + best % n_states[d], 1.0
            best //= n_states[d]
        size[r] = len(n_states) + 1


def _as_tables(factors: Factors) -> Tables:
    """Return the factors as tables: every entry is an additional.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    first, last = factors.integer_ranges.T
    n_blocks, most = last - first, int(np.diff(factors.additional_offsets).max(initial=0))
    begin = np.repeat(first - np.cumsum(n_blocks) + n_blocks, n_blocks)
    sizes = factors.integers[begin + np.arange(len(begin))]
    first_entry = np.zeros(len(first), dtype=np.int64)
    return Tables(n_blocks, sizes, True, first_entry, np.zeros(most), np.arange(most))


class Dense(StateBlocks):
    """A table of scores over multi-valued variables: the factor of a Markov random field.

    A variable of k states is a block of k binary variables, of which exactly one is on. The
    structures are all choices of one state for each variable. The additionals are the entries of
    the table. Their marginals are those of the local polytope of the linear relaxation (Wainwright
    & Jordan 2008, section 4.1). The oracle enumerates the table.

    Parameters
    ----------
    blocks
        A list of variables of shapes ``(..., k_1)``, ..., ``(..., k_n)``, with the states on the
        last axis and leading axes that broadcast together. Or a single block ``(..., k)``. Every
        entry of the leading axes is a factor: ``Dense([x[i], x[j]], table)`` with arrays of
        integers i and j has one for every edge of a graph.
    table
        Scores that broadcast to ``(..., k_1, ..., k_n)``: an array (NumPy or any array-API
        library), to which gradients flow. ``-inf`` forbids a choice of states.

    Raises
    ------
    TypeError
        If `blocks` are not Variables, or `table` does not hold real numbers.
    ValueError
        If there is no block, a variable has no state, or shapes do not broadcast.

    Notes
    -----
    A structure's label is the tuple of its states.

    Examples
    --------
    Two variables of three states, with a score for states that differ by one:

    >>> import lpsmap
    >>> fg = lpsmap.FactorGraph()
    >>> x = fg.variable_from([[1.0, 0.0, 0.0], [0.9, 0.0, 0.6]])
    >>> factor = fg.add(lpsmap.Dense([x[0], x[1]], [[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> solution = fg.solve()
    >>> print(x.value.round(6))
    [[0.5 0.5 0. ]
     [0.4 0.5 0.1]]
    >>> print(factor.additionals_value.round(6))
    [[0.  0.5 0. ]
     [0.4 0.  0.1]
     [0.  0.  0. ]]
    """

    map_kernel = staticmethod(_best_states)
    as_tables = staticmethod(_as_tables)

    def __init__(self, blocks: Variables | Sequence[Variables], table: Any) -> None:
        name = type(self).__name__
        blocks = [blocks] if isinstance(blocks, Variables) else blocks
        joined, sizes = side_by_side(name, blocks)
        shape = (*joined.shape[:-1], *sizes)
        scores = broadcast_scores(
            f"{name}: table", as_scores(f"{name}: table", table), shape, "the factors and states"
        )
        super().__init__(joined, scores, sizes)

    @property
    def table(self) -> Any:
        """The scores as declared."""
        return self.additionals

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit, of one, two and three variables."""
        graph, flags = FactorGraph(), np.eye(3, dtype=bool)
        x = graph.variable((2, 3))
        return [
            cls(x, np.zeros(3)),
            cls([x[0], ~graph.variable(2)], np.zeros((3, 2))),
            cls([x, x[0, :2] ^ flags[0, :2], graph.variable(1)], np.zeros((2, 3, 2, 1))),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the states of the best entry."""
        scores = eta_v.reshape(self.n_states)
        for d, block in enumerate(np.split(eta_u, np.cumsum(self.n_states)[:-1])):
            column = (block - block.max()).reshape(-1, *[1] * (len(self.n_states) - d - 1))
            scores = scores + column
        return tuple(int(j) for j in np.unravel_index(np.argmax(scores), scores.shape))

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return ones on the states, and on their entry of the table."""
        variables, table = np.zeros(self.event_shape), np.zeros(math.prod(self.n_states))
        variables[np.cumsum(self.n_states) - self.n_states + y] = 1.0
        table[np.ravel_multi_index(y, self.n_states)] = 1.0
        return variables, table

    def linear_constraints(self) -> LinearConstraints:
        """Return the local polytope: tables sum to 1, and their slices to the states' marginals."""
        return LinearConstraints.deferred(self._local_polytope)

    def _local_polytope(self) -> LinearConstraints:
        sizes = np.asarray(self.n_states)
        n, k, size = self.n_factors, int(sizes.sum()), math.prod(sizes.tolist())
        first = np.cumsum(sizes) - sizes
        states = first[:, None] + np.array(np.unravel_index(np.arange(size), sizes))
        # the rows of one factor: one for each state, and the sum of the table
        row = np.concatenate([states.ravel(), np.arange(k), np.full(size, k)])
        table, variables = np.arange(size), np.arange(k)
        of_table = np.concatenate([np.tile(table, len(first)), np.zeros(k, dtype=np.int64), table])
        of_slot = np.concatenate([np.zeros(states.size, dtype=np.int64), variables, 0 * table])
        is_slot = np.repeat([False, True, False], [states.size, k, size])
        factor = np.arange(n)[:, None]
        column = np.where(is_slot, of_slot + k * factor, n * k + of_table + size * factor)
        sign = np.where(is_slot, -1.0, 1.0)
        right = np.tile(np.repeat([0.0, 1.0], [k, 1]), n)
        return LinearConstraints(
            (row + (k + 1) * factor).ravel(), column.ravel(), np.tile(sign, n), right, right
        )

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of one hyperedge for every entry of the table."""
        sizes = row.integers
        entries = np.arange(math.prod(sizes.tolist()))
        states = np.stack(np.unravel_index(entries, sizes), axis=1) + np.cumsum(sizes) - sizes
        build.edges(np.zeros_like(entries), slots=states, additionals=entries)
        return 0
