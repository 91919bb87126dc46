"""Sequences of states with a limited number of visits to one state."""

from __future__ import annotations

from collections.abc import Hashable
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
    interrupted,
    kernel,
)
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    checked_flag,
)
from lpsmap_dynamic import POLL_PERIOD, HypergraphBuilder, Row
from lpsmap_factors_struct.sequence import Sequence
from lpsmap_factors_struct.viterbi import (
    best_arrivals,
    best_source,
    most_positions,
    most_states,
    reduced_position,
    step_stride,
    write_path,
)


@kernel
def budgeted_viterbi(
    scores: FloatArray,
    additionals: FloatArray,
    length: int,
    n_states: int,
    budget: int,
    exact: bool,
    counted: int,
    reduced: FloatArray,
    prefix: FloatArray,
    path: IntArray,
) -> None:
    """Find the best sequence under a budget, in ``O(length * budget * n_states^2)``.

    Viterbi's (1967) dynamic program over pairs of a state and the number of visits so far.

    Parameters
    ----------
    scores
        ``length * n_states`` scores of the states.
    additionals
        As for `viterbi`.
    length, n_states
        Shape of `scores`; at least one each.
    budget, exact, counted
        Largest, or exact, number of positions in state `counted`; at most `length`.
    reduced
        Workspace of `n_states` numbers.
    prefix
        Workspace of ``length * (budget + 1) * n_states`` numbers.
    path
        The result: `length` states.
    """
    reduced_position(scores, 0, n_states, reduced)
    stride, layer = step_stride(len(additionals), n_states), (budget + 1) * n_states
    prefix[: length * layer] = -np.inf
    for s in range(n_states):
        visits = 1 if s == counted else 0
        if visits <= budget:
            prefix[visits * n_states + s] = additionals[s] + reduced[s]
    arrivals = np.empty(n_states)
    for t in range(1, length):
        step = n_states + (t - 1) * stride
        reduced_position(scores, t, n_states, reduced)
        for visits in range(min(t, budget) + 1):
            before = (t - 1) * layer + visits * n_states
            best_arrivals(prefix, before, additionals, step, n_states, arrivals, 0)
            for s in range(n_states):
                after = visits + 1 if s == counted else visits
                if after <= budget:
                    here = t * layer + after * n_states + s
                    prefix[here] = arrivals[s] + reduced[s]
        if layer * n_states > POLL_PERIOD and interrupted():
            break
    final = len(additionals) - n_states
    last = (length - 1) * layer
    visits = budget
    path[length - 1] = 0
    most = -np.inf
    for used in range(budget if exact else 0, budget + 1):
        for s in range(n_states):
            score = prefix[last + used * n_states + s] + additionals[final + s]
            if score > most:
                path[length - 1], visits, most = s, used, score
    for t in range(length - 1, 0, -1):
        step = n_states + (t - 1) * stride
        if path[t] == counted:
            visits -= 1
        before = (t - 1) * layer + visits * n_states
        path[t - 1] = best_source(prefix, before, additionals, step, n_states, path[t])


@kernel
def _best_sequences(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best sequence within its budget for every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    parameters = factors.parameters
    start, entry, value, size = structures
    largest = 0
    for r in rows:
        largest = max(largest, (offsets[r + 1] - offsets[r]) * (int(parameters[r, 1]) + 1))
    n_most, path = most_states(rows, factors), np.empty(most_positions(rows, factors), np.int64)
    reduced, prefix, counts = np.empty(n_most), np.empty(largest), np.zeros(n_most**2)
    for r in rows:
        n_states = int(parameters[r, 0])
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        additionals = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        length = len(eta_u) // n_states
        if length > 0:
            budgeted_viterbi(
                eta_u,
                additionals,
                length,
                n_states,
                int(parameters[r, 1]),
                parameters[r, 2] != 0,
                int(parameters[r, 3]),
                reduced,
                prefix,
                path,
            )
        size[r] = write_path(
            path, length, n_states, len(additionals), start[r], entry, value, counts
        )


def _reachable(length: int, visited: IntArray, budget: int) -> BoolArray:
    """Return (length, n_states, budget + 1) whether a state can be reached with so many visits."""
    met = np.zeros((length, len(visited), budget + 1), dtype=np.bool_)
    (others,), (counted,) = np.nonzero(visited == 0), np.nonzero(visited)
    met[0, others, 0] = True
    met[0, counted, 1:2] = True
    for t in range(1, length):
        before = met[t - 1].any(axis=0)
        met[t, others] = before
        met[t, counted, 1:] = before[:-1]
    return met


class SequenceBudget(Sequence):
    """Sequences of states with a limit on the visits to one state.

    The structures are those of `Sequence` with at most `budget` positions in `counted_state`, or
    with exactly that many if `force_budget`. The oracle is Viterbi's algorithm over pairs of a
    state and a count.

    Parameters
    ----------
    variables
        States, of shape ``(..., L, S)``.
    transitions
        Scores of the steps, as for `Sequence`, or all scores flat; None with `additionals`.
    budget
        Integers that broadcast to the leading axes' shape. Without `force_budget`, a budget larger
        than the number of positions is no limit.
    force_budget
        Whether the number of visits must equal the budget.
    counted_state
        Integers that broadcast to the leading axes' shape: the state whose visits are counted.
    initial, final, additionals, lengths
        As for `Sequence`.

    Raises
    ------
    TypeError
        If `variables` are not Variables, `budget` or `counted_state` does not hold numbers,
        `force_budget` is not a bool, or the scores are arrays of different libraries.
    ValueError
        If a shape does not fit, if `counted_state` is not a state, or if no sequence satisfies the
        budget.

    Notes
    -----
    A sequence's label is the tuple of its states.
    """

    map_kernel = staticmethod(_best_sequences)
    vertex_sizes = Sequence.vertex_sizes  # these hold for all sequences
    unused = Sequence.unused

    def __init__(
        self,
        variables: Variables,
        transitions: Any,
        budget: npt.ArrayLike,
        force_budget: bool = False,
        counted_state: npt.ArrayLike = 0,
        *,
        initial: Any = None,
        final: Any = None,
        additionals: Any = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(
            variables, transitions, initial, final, additionals=additionals, lengths=lengths
        )
        n_states = self.event_shape[1]
        counts = self.counts("budget", budget)
        force = checked_flag(f"{type(self).__name__}: force_budget", force_budget)
        self.force_budget = self.per_factor("force_budget", force)
        self.counted_state = self._states(self.counts("counted_state", counted_state), n_states)
        self.budget = self._budgets(counts, n_states)

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints of one state for every position, and of the visits to one."""
        arity, n_states = np.diff(self.offsets), self.n_states.astype(np.int64)
        owner = np.repeat(np.arange(self.n_factors), arity)
        state = (np.arange(len(owner)) - self.offsets[owner]) % n_states[owner]
        counted = np.flatnonzero(state == self.counted_state[owner])
        low = np.where(self.force_budget != 0.0, self.budget, -np.inf)
        visits = LinearConstraints(owner[counted], counted, 1.0, low, self.budget)
        return LinearConstraints.together(Sequence.necessary_constraints(self), visits)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph, steps = FactorGraph(), np.zeros((3, 2, 2))
        return [
            cls(graph.variable((3, 4, 2)), steps, [2, 0, 1], counted_state=1, lengths=[4, 1, 2]),
            cls(graph.variable((4, 3)), np.zeros((3, 3)), 2, force_budget=True),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of Viterbi's algorithm over states and numbers of visits."""
        length, n_states = row.event_shape
        budget, counted = int(row["budget"]), int(row["counted_state"])
        if length == 0:
            build.edge("goal")
            return "goal"
        states = np.arange(n_states)
        visited = (states == counted).astype(np.int64)
        met = _reachable(length, visited, budget)
        item = np.arange(met.size).reshape(met.shape)
        goal = met.size
        first = states[visited <= budget]
        build.edges(item[0, first, visited[first]], slots=first, additionals=first)
        t, before, visits = (x[:, None] for x in np.nonzero(met[:-1]))
        after = visits + visited
        inside = np.nonzero(after <= budget)
        t, before, visits, after = (
            np.broadcast_to(x, after.shape)[inside] for x in (t, before, visits, after)
        )
        state = inside[1]
        build.edges(
            item[t + 1, state, after],
            item[t, before, visits],
            (t + 1) * n_states + state,
            n_states + t * step_stride(row.n_additionals, n_states) + before * n_states + state,
        )
        last, visits = np.nonzero(met[-1])
        enough = visits >= (budget if row["force_budget"] else 0)
        last, visits = last[enough], visits[enough]
        final = row.n_additionals - n_states + last
        build.edges(np.full_like(last, goal), item[-1, last, visits], additionals=final)
        return goal

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the states of the best sequence."""
        length, n_states = eta_u.shape
        path = np.empty(length, dtype=np.int64)
        if length:
            budget = int(self.budget)
            budgeted_viterbi(
                np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1),
                np.ascontiguousarray(eta_v, dtype=np.float64),
                length,
                n_states,
                budget,
                bool(self.force_budget),
                int(self.counted_state),
                np.empty(n_states),
                np.empty(eta_u.size * (budget + 1)),
                path,
            )
        return tuple(path.tolist())

    def _states(self, states: IntArray, n_states: int) -> IntArray:
        wrong = np.flatnonzero(states >= n_states)
        if wrong.size:
            f = wrong[0]
            raise ValueError(
                f"{type(self).__name__}: counted_state is {states[f]} for factor {f}; expected an "
                f"integer, 0 to {n_states - 1}."
            )
        return states

    def _budgets(self, counts: IntArray, n_states: int) -> IntArray:
        """Return the budget of each sequence, reduced to its length."""
        lengths = np.diff(self.offsets) // n_states
        # the counted state can be avoided if there is another one
        least = lengths if n_states == 1 else np.zeros_like(lengths)
        wrong = np.flatnonzero((counts < least) | ((self.force_budget != 0) & (counts > lengths)))
        if wrong.size:
            f = wrong[0]
            raise ValueError(
                f"{type(self).__name__}: budget is {counts[f]} for factor {f} with "
                f"{lengths[f]} positions and {n_states} states, which no sequence satisfies; "
                f"expected {least[f]} to {lengths[f]}. Set it per factor, or omit force_budget."
            )
        budgets: IntArray = np.minimum(counts, lengths)
        return budgets
