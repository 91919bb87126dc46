"""Segmentations of a sequence into labelled segments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

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
    leaf,
)
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_factors_struct.arrays import largest
from lpsmap_factors_struct.flat_scores import flat_scores
from lpsmap_factors_struct.viterbi import best_arrivals, best_source


class SegmentsWorkspace(NamedTuple):
    """Workspace for sequences of up to ``L`` positions, with the resulting segments."""

    reduced: FloatArray
    """Segments' scores minus the worth of their positions."""
    worth: FloatArray
    """For each position, the best score of a segment that begins there; at least 0."""
    before: FloatArray
    """By (t, state): the best segmentation of the positions before t, with the transition."""
    prefix: FloatArray
    """By (t, state): the best segmentation of the positions before t that ends in the state."""
    segments: IntArray
    """The result: (start, end, state) triples, flat, the last segment first."""


@kernel
def segments_workspace(length: int, longest: int, n_states: int) -> SegmentsWorkspace:
    """Return a workspace for sequences of up to `length` positions and `n_states` states."""
    return SegmentsWorkspace(
        reduced=np.empty(length * longest * n_states),
        worth=np.empty(length),
        before=np.empty(length * n_states),
        prefix=np.empty((length + 1) * n_states),
        segments=np.empty(3 * length, dtype=np.int64),
    )


@leaf
def best_segments(
    scores: FloatArray,
    transitions: FloatArray,
    length: int,
    longest: int,
    n_states: int,
    workspace: SegmentsWorkspace,
) -> int:
    """Find the best segmentation, in ``O(length * n_states * (longest + n_states))``.

    The dynamic program of semi-Markov models (Sarawagi & Cohen 2004), without back pointers:
    backtracking repeats the comparisons.

    Parameters
    ----------
    scores
        ``length * longest * n_states`` scores by start, length minus one, and state. Segments that
        extend beyond the last position are not used.
    transitions
        ``n_states * n_states`` scores of a state after another; or an empty array.
    length, longest, n_states
        Shape of `scores`; at least one each.
    workspace
        On return, ``workspace.segments`` holds the segments.

    Returns
    -------
    int
        Number of segments.
    """
    _reduce(scores, length, longest, n_states, workspace.worth, workspace.reduced)
    _fill(transitions, length, longest, n_states, workspace)
    return _read_solution(transitions, length, longest, n_states, workspace)


@leaf
def _reduce(
    scores: FloatArray,
    length: int,
    longest: int,
    n_states: int,
    worth: FloatArray,
    target: FloatArray,
) -> None:
    """Subtract the worth of its positions from every segment.

    This does not change the best segmentation, since every position is in exactly one segment.
    Without it, the huge score of a forced segment would cost all sums their precision. With it,
    the forced segment has 0, and segments that overlap it are hugely negative.
    """
    width = longest * n_states
    for t in range(length):
        most = 0.0
        for k in range(t * width, t * width + min(longest, length - t) * n_states):
            most = max(most, scores[k])
        worth[t] = most
    for t in range(length):
        covered = 0.0
        for d in range(min(longest, length - t)):
            covered += worth[t + d]
            at = t * width + d * n_states
            for k in range(at, at + n_states):
                target[k] = scores[k] - covered


@leaf
def _fill(
    transitions: FloatArray, length: int, longest: int, n_states: int, workspace: SegmentsWorkspace
) -> None:
    before, prefix, reduced = workspace.before, workspace.prefix, workspace.reduced
    before[:n_states] = 0.0
    prefix[: (length + 1) * n_states] = -np.inf
    for t in range(length):
        at = t * n_states
        here = before[at : at + n_states]
        if t > 0 and len(transitions) > 0:
            best_arrivals(prefix, at, transitions, 0, n_states, before, at)
        elif t > 0:
            here[:] = largest(prefix[at : at + n_states])
        for d in range(min(longest, length - t)):
            segment = (t * longest + d) * n_states
            end = (t + d + 1) * n_states
            for s in range(n_states):
                prefix[end + s] = max(prefix[end + s], here[s] + reduced[segment + s])


@leaf
def _read_solution(
    transitions: FloatArray, length: int, longest: int, n_states: int, workspace: SegmentsWorkspace
) -> int:
    before, prefix, segments = workspace.before, workspace.prefix, workspace.segments
    end, count = length, 0
    state = int(np.argmax(prefix[length * n_states : (length + 1) * n_states]))
    while end > 0:
        begin, most = end - 1, -np.inf
        for t in range(end - 1, max(end - longest, 0) - 1, -1):
            segment = (t * longest + end - t - 1) * n_states + state
            score = before[t * n_states + state] + workspace.reduced[segment]
            if score > most:
                begin, most = t, score
        segments[3 * count], segments[3 * count + 1], segments[3 * count + 2] = begin, end, state
        count += 1
        at = begin * n_states
        if begin > 0 and len(transitions) > 0:
            state = best_source(prefix, at, transitions, 0, n_states, state)
        elif begin > 0:
            state = int(np.argmax(prefix[at : at + n_states]))
        end = begin
    return count


@kernel
def _best_segmentations(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best segmentation of every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    parameters = factors.parameters
    start, entry, value, size = structures
    length, longest, n_states = 0, 1, 1
    for r in rows:
        longest = max(longest, int(parameters[r, 0]))
        n_states = max(n_states, int(parameters[r, 1]))
        width = int(parameters[r, 0] * parameters[r, 1])
        length = max(length, (offsets[r + 1] - offsets[r]) // width)
    workspace = segments_workspace(length, longest, n_states)
    counts = np.zeros(n_states * n_states)
    for r in rows:
        longest, n_states = int(parameters[r, 0]), int(parameters[r, 1])
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        transitions = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        length = len(eta_u) // (longest * n_states)
        size[r] = 0
        if length == 0:
            continue
        found = best_segments(eta_u, transitions, length, longest, n_states, workspace)
        at = start[r]
        for k in range(found):
            begin, end, state = workspace.segments[3 * k : 3 * k + 3]
            entry[at], value[at] = (begin * longest + end - begin - 1) * n_states + state, 1.0
            at += 1
            if k > 0 and len(transitions) > 0:
                counts[state * n_states + workspace.segments[3 * k - 1]] += 1.0
        for k in range(len(transitions)):
            if counts[k] > 0.0:
                entry[at], value[at] = len(eta_u) + k, counts[k]
                counts[k] = 0.0
                at += 1
        size[r] = at - start[r]


class SemiMarkov(DynamicProgram):
    """Segmentations: a sequence divided into segments of limited length with one state each.

    The structures are all divisions of `L` positions into segments of 1 to `D` positions, each with
    one of `S` states. If there are transition scores, the additionals count the pairs of states of
    consecutive segments. The oracle is the dynamic program of semi-Markov models (Sarawagi &
    Cohen 2004), in O(L S (D + S)).

    Parameters
    ----------
    variables
        Segments, of shape ``(..., L, D, S)``: ``[..., t, d, s]`` is the segment of state s that
        begins at position t and has ``d + 1`` positions. Segments that would end beyond the last
        position are in no structure, and are 0 whatever their scores.
    transitions
        Array (NumPy, torch, or of any array-API library) that broadcasts to ``(..., S, S)``: the
        score of a segment of state j directly after one of state i at ``[..., i, j]``. None for no
        transition scores. To score the first or the last state, add to the scores of the segments
        at the beginning or the end.
    lengths
        Integers of the leading axes' shape: sequence b covers ``[b, :lengths[b]]``. An empty
        sequence has no segments.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If a shape does not fit, `D` or `S` is 0, or a length is negative or exceeds `L`.

    Notes
    -----
    A segmentation's label is the tuple of its segments, each a tuple of its first position, the
    position after its last, and its state.
    """

    variables_ndim = 3
    length_axes = (0,)
    map_kernel = staticmethod(_best_segmentations)

    def __init__(
        self,
        variables: Variables,
        transitions: Any = None,
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        _, longest, n_states = self.event_shape
        if longest == 0 or n_states == 0:
            raise ValueError(
                f"SemiMarkov: variables has shape {self.variables.shape}; expected positions, "
                "segment lengths and states on the last three axes, at least one of the latter two."
            )
        if transitions is not None:
            self.additionals = flat_scores(
                "SemiMarkov",
                self.batch_shape,
                {"transitions": transitions},
                {"transitions": (n_states, n_states)},
            )
            self.n_additionals = n_states**2
        self.longest = self.per_factor("longest", longest)
        self.n_states = self.per_factor("n_states", n_states)

    @property
    def transitions(self) -> Any:
        """The scores of transitions, (..., S, S), or None."""
        if not self.n_additionals:
            return None
        n_states = self.event_shape[2]
        return self.additionals.reshape((*self.batch_shape, n_states, n_states))

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 2, 2))),
            cls(graph.variable((3, 4, 2, 2)), np.zeros((3, 2, 2)), lengths=[4, 1, 2]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item. A segment starts at the beginning, or after another segment."""
        length, longest, n_states = row.event_shape
        scored = row.n_additionals > 0
        for t in range(length):
            for s in range(n_states):
                # without transitions the previous state does not matter
                begin = ("begin", t, s if scored else 0)
                for i in range(n_states) if t > 0 and (scored or s == 0) else ():
                    step = [i * n_states + s] if scored else []
                    build.edge(begin, [("end", t, i)], additionals=step)
                for d in range(min(longest, length - t)):
                    build.edge(("end", t + d + 1, s), [begin] if t > 0 else [], [(t, d, s)])
        for s in range(n_states) if length else ():
            build.edge("goal", [("end", length, s)])
        if length == 0:
            build.edge("goal")
        return "goal"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[tuple[int, int, int], ...]:
        """Return the segments of the best segmentation."""
        length, longest, n_states = eta_u.shape
        workspace = segments_workspace(length, longest, n_states)
        count = 0
        if length:
            scores = np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1)
            transitions = np.ascontiguousarray(eta_v, dtype=np.float64)
            count = best_segments(scores, transitions, length, longest, n_states, workspace)
        found = workspace.segments[: 3 * count].reshape(count, 3)[::-1].tolist()
        return tuple((begin, end, state) for begin, end, state in found)

    def vertex(self, y: tuple[tuple[int, int, int], ...]) -> tuple[FloatArray, FloatArray]:
        """Return the segments of segmentation `y`, and the counts of the transitions."""
        length = y[-1][1] if y else 0
        variables = np.zeros((length, *self.event_shape[1:]))
        transitions = np.zeros(self.event_shape[2:] * 2)
        before = None
        for begin, end, state in y:
            variables[begin, end - begin - 1, state] = 1.0
            if before is not None:
                transitions[before, state] += 1.0
            before = state
        return variables, transitions if self.n_additionals else np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"segments": [[start, end, state], ...]}``, `end` one after the last position.

        Examples
        --------
        >>> from lpsmap import FactorGraph, SemiMarkov
        >>> segmentation = SemiMarkov(FactorGraph().variable((5, 3, 2)))
        >>> segmentation.decode(*segmentation.vertex(((0, 2, 1), (2, 5, 0))))
        {'segments': [[0, 2, 1], [2, 5, 0]]}
        """
        found = np.argwhere(variables > 0.5)
        return {"segments": [[t, t + d + 1, s] for t, d, s in found.tolist()]}

    def unused(self) -> tuple[BoolArray, BoolArray | None]:
        """Return the segments that would end beyond the last position, and unused transitions."""
        length, longest, _ = self.event_shape
        lengths = np.full((self.n_factors, 1), length) if self.lengths is None else self.lengths
        ends = np.arange(length)[:, None] + np.arange(1, longest + 1)
        beyond = ends > lengths.reshape(*self.batch_shape, 1, 1)
        slots = np.broadcast_to(beyond[..., None], self.variables.shape)
        if not self.n_additionals:
            return slots, None
        return slots, np.broadcast_to(lengths < 2, (self.n_factors, self.n_additionals))

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the lengths, plus the largest numbers of distinct transitions."""
        width = factors.parameters[:, :2].prod(axis=1).astype(np.int64)
        lengths: IntArray = np.diff(factors.offsets) // width
        n_additionals = np.diff(factors.additional_offsets)
        steps: IntArray = np.minimum(np.maximum(lengths - 1, 0), n_additionals)
        sizes: IntArray = lengths + steps
        return sizes

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every position is in one segment, and none beyond the end."""
        arity, longest = np.diff(self.offsets), self.longest.astype(np.int64)
        n_states = self.n_states.astype(np.int64)
        length = arity // (longest * n_states)
        owner = np.repeat(np.arange(self.n_factors), arity)
        segment = (np.arange(len(owner)) - self.offsets[owner]) // n_states[owner]
        begin, extent = np.divmod(segment, longest[owner])
        fits = begin + extent < length[owner]
        slots, beyond = np.flatnonzero(fits), np.flatnonzero(~fits)
        sizes = extent[slots] + 1
        column = np.repeat(slots, sizes)
        step = np.arange(len(column)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row = (np.cumsum(length) - length)[owner[column]] + begin[column] + step
        n_positions = int(length.sum())
        total = np.append(np.ones(n_positions), np.zeros(self.n_factors))
        return LinearConstraints(
            np.append(row, n_positions + owner[beyond]),
            np.append(column, beyond),
            1.0,
            total,
            total,
        )
