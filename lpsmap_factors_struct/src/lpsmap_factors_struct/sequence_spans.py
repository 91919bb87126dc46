"""Sequences of states whose visits to one state form a few spans of a minimum length."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_core.api import BoolArray, IntArray, whole_numbers
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_factors_struct.sequence_budget import SequenceBudget
from lpsmap_factors_struct.viterbi import step_stride


class Place(NamedTuple):
    """Where a sequence is among its spans."""

    state: int
    spans: int
    """The number of spans so far, this one included; 0 if it has no limit."""
    run: int
    """The number of positions of this span so far, up to the minimum; 0 outside of spans."""


class Automaton(NamedTuple):
    """The sequences of places that are allowed, whatever the number of visits."""

    state: IntArray
    visits: IntArray
    """Whether each place is in the counted state, 0 or 1."""
    first: BoolArray
    last: BoolArray
    before: IntArray
    """(P,) the pairs of consecutive places."""
    after: IntArray


def _automaton(n_states: int, counted: int, least: int, most: int | None) -> Automaton:
    """Return the automaton of spans of at least `least` positions, `most` in number or any."""
    inside = range(1, most + 1) if most is not None else range(1)
    outside = range(most + 1) if most is not None else range(1)
    others = [s for s in range(n_states) if s != counted]
    places = [Place(s, k, 0) for s in others for k in outside]
    places += [Place(counted, k, run) for k in inside for run in range(1, least + 1)]
    one = 0 if most is None else 1

    def follows(a: Place, b: Place) -> bool:
        if b.state != counted:
            return b.spans == a.spans and a.run in (0, least)
        if a.state != counted:
            return b.run == 1 and b.spans == a.spans + one
        return b.spans == a.spans and b.run == min(a.run + 1, least)

    every = itertools.product(range(len(places)), repeat=2)
    pairs = [(i, j) for i, j in every if follows(places[i], places[j])]
    before, after = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    run = np.array([place.run for place in places])
    spans = np.array([place.spans for place in places])
    return Automaton(
        np.array([place.state for place in places]),
        (run > 0).astype(np.int64),
        np.where(run > 0, (run == 1) & (spans == one), spans == 0),
        (run == 0) | (run == least),
        before,
        after,
    )


def _reachable(automaton: Automaton, length: int, budget: int) -> BoolArray:
    """Return (length, places, budget + 1) whether a place can be reached with so many visits."""
    met = np.zeros((length, len(automaton.state), budget + 1), dtype=np.bool_)
    (first,) = np.nonzero(automaton.first & (automaton.visits <= budget))
    met[0, first, automaton.visits[first]] = True
    for t in range(1, length):
        for a, b in zip(automaton.before.tolist(), automaton.after.tolist(), strict=True):
            n = int(automaton.visits[b])
            met[t, b, n:] |= met[t - 1, a, : budget + 1 - n]
    return met


class SequenceSpans(SequenceBudget):
    """Sequences whose visits to one state form a few spans, for rationales and segments.

    The structures are those of `SequenceBudget` in which the visits to `counted_state` form spans
    of consecutive positions, at most `max_spans`, each of at least `min_span` positions. A dynamic
    program over the state, the visits, the spans and the position in a span.

    Parameters
    ----------
    variables, transitions, budget, force_budget, counted_state
        As for `SequenceBudget`.
    min_span
        Integers of 1 or more that broadcast to the leading axes' shape.
    max_spans
        Integers that broadcast to the leading axes' shape; None for any number.
    initial, final, additionals, lengths
        As for `Sequence`.

    Raises
    ------
    TypeError
        As for `SequenceBudget`.
    ValueError
        As for `SequenceBudget`, or if a `min_span` is below 1, or no sequence satisfies the limits.
    """

    map_kernel = staticmethod(DynamicProgram.map_kernel)
    solve_map = DynamicProgram.solve_map  # type: ignore[assignment]
    vertex = DynamicProgram.vertex
    vertex_sizes = DynamicProgram.vertex_sizes
    unused = DynamicProgram.unused  # type: ignore[assignment]
    necessary_constraints = SequenceBudget.necessary_constraints  # visits are limited alike

    def __init__(
        self,
        variables: Variables,
        transitions: Any,
        budget: npt.ArrayLike,
        min_span: npt.ArrayLike = 1,
        max_spans: npt.ArrayLike | None = None,
        force_budget: bool = False,
        counted_state: npt.ArrayLike = 0,
        *,
        initial: Any = None,
        final: Any = None,
        additionals: Any = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(
            variables,
            transitions,
            budget,
            force_budget,
            counted_state,
            initial=initial,
            final=final,
            additionals=additionals,
            lengths=lengths,
        )
        length, n_states = self.event_shape
        most = length if max_spans is None else max_spans
        name = type(self).__name__
        shortest = np.min(whole_numbers(f"{name}: min_span", min_span), initial=1)
        if shortest < 1:
            raise ValueError(
                f"{name}: min_span holds {shortest}; expected integers of 1 or more. Use "
                "max_spans=0 for no spans."
            )
        self.min_span = self.counts("min_span", min_span)
        self.max_spans = np.minimum(self.counts("max_spans", most), length)
        lengths_of = np.diff(self.offsets) // n_states
        visits = lengths_of if n_states == 1 else np.where(self.force_budget != 0, self.budget, 0)
        wrong = (visits > 0) & ((visits < self.min_span) | (self.max_spans == 0))
        for f in np.flatnonzero(wrong)[:1].tolist():
            raise ValueError(
                f"{name}: factor {f} needs {visits[f]} positions in the counted "
                f"state, but min_span is {self.min_span[f]} and max_spans is {self.max_spans[f]}; "
                "expected a budget of min_span or more, and at least one span."
            )
        # longer spans than the sequence are impossible; the automaton has a place for each position
        self.min_span = np.minimum(self.min_span, length + 1)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph, steps = FactorGraph(), np.zeros((3, 2, 2))
        return [
            cls(graph.variable((3, 4, 2)), steps, 3, 2, [1, 2, 0], lengths=[4, 2, 3]),
            cls(graph.variable((4, 3)), np.zeros((3, 3)), 2, max_spans=1, force_budget=True),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of Viterbi's algorithm over places and numbers of visits."""
        length, n_states = row.event_shape
        if length == 0:
            build.edge("goal")
            return "goal"
        budget, most = int(row["budget"]), int(row["max_spans"])
        limit = most if most < (length + 1) // 2 else None
        automaton = _automaton(n_states, int(row["counted_state"]), int(row["min_span"]), limit)
        met = _reachable(automaton, length, budget)
        item, goal = np.arange(met.size).reshape(met.shape), met.size
        place, visits = np.nonzero(met[0])
        first = automaton.state[place]
        build.edges(item[0, place, visits], slots=first, additionals=first)
        t, pair, visits = np.nonzero(met[:-1][:, automaton.before])
        a, b = automaton.before[pair], automaton.after[pair]
        after = visits + automaton.visits[b]
        fits = after <= budget
        t, a, b, visits, after = (x[fits] for x in (t, a, b, visits, after))
        source, target = automaton.state[a], automaton.state[b]
        build.edges(
            item[t + 1, b, after],
            item[t, a, visits],
            (t + 1) * n_states + target,
            n_states + t * step_stride(row.n_additionals, n_states) + source * n_states + target,
        )
        place, visits = np.nonzero(met[-1] & automaton.last[:, None])
        enough = visits >= (budget if row["force_budget"] else 0)
        place, visits = place[enough], visits[enough]
        final = row.n_additionals - n_states + automaton.state[place]
        build.edges(np.full_like(place, goal), item[-1, place, visits], additionals=final)
        return goal
