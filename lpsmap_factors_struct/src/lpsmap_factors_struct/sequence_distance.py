"""Sequences of states whose steps are scored by their distance."""

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
    as_variables,
    interrupted,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    check_unambiguous_lengths,
)
from lpsmap_dynamic import (
    POLL_PERIOD,
    DynamicProgram,
    HypergraphBuilder,
    Row,
    as_scores,
    one_of_each_group,
)
from lpsmap_factors_struct.flat_scores import flat_scores
from lpsmap_factors_struct.viterbi import most_positions, most_states, reduced_position


@leaf
def _bin(distance: int, reach: int) -> int:
    """Return the bin of a step from state i to state ``i + distance``."""
    return min(max(distance, -reach), reach) + reach


@leaf
def _first_bin(state: int, reach: int) -> int:
    """Return the bin of `state` as the first state."""
    return min(state, reach - 1)


@leaf
def _last_bin(state: int, n_states: int, reach: int) -> int:
    """Return the bin of `state` as the last state."""
    return max(state - n_states + reach, 0)


@leaf
def _arrivals(
    source: FloatArray, distances: FloatArray, n_states: int, reach: int, target: FloatArray
) -> None:
    """Write ``target[j] = max_i source[i] + distances[bin of j - i]``.

    All far steps in one direction share a score, so that running maxima suffice for them.
    """
    most = -np.inf
    for j in range(n_states):
        if j >= reach:
            most = max(most, source[j - reach])
        target[j] = most + distances[2 * reach]
    most = -np.inf
    for j in range(n_states - 1, -1, -1):
        if j + reach < n_states:
            most = max(most, source[j + reach])
        target[j] = max(target[j], most + distances[0])
    for distance in range(1 - reach, reach):
        score = distances[distance + reach]
        for j in range(max(0, distance), min(n_states, n_states + distance)):
            target[j] = max(target[j], source[j - distance] + score)


@leaf
def _source(source: FloatArray, distances: FloatArray, n_states: int, reach: int, j: int) -> int:
    """Return the first i that attains the maximum of `_arrivals`."""
    best, most = 0, -np.inf
    for i in range(n_states):
        score = source[i] + distances[_bin(j - i, reach)]
        if score > most:
            best, most = i, score
    return best


@leaf
def distance_viterbi(
    scores: FloatArray,
    additionals: FloatArray,
    length: int,
    n_states: int,
    reduced: FloatArray,
    prefix: FloatArray,
    path: IntArray,
) -> None:
    """Find the best sequence of states, in ``O(length * n_states * bins)``.

    Viterbi's (1967) dynamic program, without back pointers: backtracking repeats comparisons.

    Parameters
    ----------
    scores
        ``length * n_states`` scores of the states.
    additionals
        ``[initial, distances, final]`` scores of the bins.
    length, n_states
        Shape of `scores`; at least one each.
    reduced
        Workspace of `n_states` numbers.
    prefix
        Workspace of the size of `scores`.
    path
        The result: `length` states.
    """
    reduced_position(scores, 0, n_states, reduced)
    reach = (len(additionals) - 1) // 4
    distances, final = additionals[reach : 3 * reach + 1], additionals[3 * reach + 1 :]
    for s in range(n_states):
        prefix[s] = additionals[_first_bin(s, reach)] + reduced[s]
    for t in range(1, length):
        here = prefix[t * n_states : (t + 1) * n_states]
        _arrivals(prefix[(t - 1) * n_states : t * n_states], distances, n_states, reach, here)
        reduced_position(scores, t, n_states, reduced)
        for s in range(n_states):
            here[s] += reduced[s]
        if n_states * reach > POLL_PERIOD and interrupted():
            break
    last = (length - 1) * n_states
    path[length - 1] = 0
    most = -np.inf
    for s in range(n_states):
        score = prefix[last + s] + final[_last_bin(s, n_states, reach)]
        if score > most:
            path[length - 1], most = s, score
    for t in range(length - 1, 0, -1):
        before = prefix[(t - 1) * n_states : t * n_states]
        path[t - 1] = _source(before, distances, n_states, reach, path[t])


@leaf
def count_bins(
    path: IntArray, length: int, n_states: int, n_additionals: int, counts: FloatArray
) -> None:
    """Write how often a sequence uses every bin."""
    reach = (n_additionals - 1) // 4
    counts[:n_additionals] = 0.0
    counts[_first_bin(path[0], reach)] += 1.0
    for t in range(1, length):
        counts[reach + _bin(path[t] - path[t - 1], reach)] += 1.0
    counts[3 * reach + 1 + _last_bin(path[length - 1], n_states, reach)] += 1.0


@kernel
def _best_sequences(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best sequence of every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    parameters = factors.parameters
    start, entry, value, size = structures
    largest, most_bins = largest_arity(rows, offsets), largest_arity(rows, additional_offsets)
    reduced, prefix = np.empty(most_states(rows, factors)), np.empty(largest)
    path, counts = np.empty(most_positions(rows, factors), np.int64), np.empty(most_bins)
    for r in rows:
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        additionals = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        size[r] = 0
        if len(eta_u) == 0:
            continue
        n_states = int(parameters[r, 0])
        length = len(eta_u) // n_states
        distance_viterbi(eta_u, additionals, length, n_states, reduced, prefix, path)
        count_bins(path, length, n_states, len(additionals), counts)
        at = start[r]
        for t in range(length):
            entry[at], value[at] = t * n_states + path[t], 1.0
            at += 1
        for k in range(len(additionals)):
            if counts[k] > 0.0:
                entry[at], value[at] = len(eta_u) + k, counts[k]
                at += 1
        size[r] = at - start[r]


class SequenceDistance(DynamicProgram):
    """Sequences of states whose steps are scored by their distance, in bins.

    Where states are places, such as the words of another sentence, the scores can favour staying,
    advancing or jumping. The structures are all sequences with one state for every position. The
    additionals count how often each bin occurs, so that a few scores suffice for any length
    (Niculae et al. 2018, section 5.2: sequential alignment). The oracle is Viterbi's (1967)
    algorithm, with running maxima over far steps, in O(L S K).

    Parameters
    ----------
    variables
        States, of shape ``(..., L, S)``: a sequence of `L` positions with `S` states each for every
        entry of the leading axes.
    distances
        Array (NumPy, torch, or of any array-API library) that broadcasts to ``(..., 2 K + 1)``, K
        at least 1: scores of steps from state i to state j by ``j - i``, which is ``-K`` or less,
        ``-K + 1``, ..., ``K - 1``, ``K`` or more.
    initial
        Array that broadcasts to ``(..., K)``: scores of beginning in the first state, in the
        second, ..., in the K-th or any later one; None for zeros.
    final
        Array that broadcasts to ``(..., K)``: scores of ending in the K-th state from the end or
        any earlier one, ..., in the last but one, in the last; None for zeros.
    lengths
        Integers of the leading axes' shape: sequence b covers ``[b, :lengths[b]]``. Or with an
        additional axis of two, for a length and a number of states: sequence b covers
        ``[b, :lengths[b, 0], :lengths[b, 1]]``, and its last state is ``lengths[b, 1] - 1``. An
        empty sequence has the empty structure, which uses no bin.

    Raises
    ------
    TypeError
        If `variables` are not Variables, or the scores are arrays of different libraries.
    ValueError
        If a shape does not fit, there is no state, or a length is negative or exceeds its axis.

    Notes
    -----
    A sequence's label is the tuple of its states. The additionals are those of `initial`, then of
    `distances`, then of `final`.
    """

    variables_ndim = 2
    map_kernel = staticmethod(_best_sequences)

    def __init__(
        self,
        variables: Variables,
        distances: Any,
        initial: Any = None,
        final: Any = None,
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        variables = as_variables(variables, "SequenceDistance: variables")
        super().__init__(variables, lengths=_with_states(variables, lengths))
        self.n_states = self.per_factor("n_states", self.event_shape[1])
        if self.lengths is not None:
            self.n_states = self.lengths[:, 1].astype(np.float64)
        self._check_states()
        distances = as_scores("SequenceDistance: distances", distances)
        reach = self._reach(tuple(distances.shape))
        self.additionals = flat_scores(
            "SequenceDistance",
            self.batch_shape,
            {"initial": initial, "distances": distances, "final": final},
            {"initial": (reach,), "distances": (2 * reach + 1,), "final": (reach,)},
        )
        self.n_additionals = 4 * reach + 1

    @property
    def distances(self) -> Any:
        """The scores of the distances of steps, (..., 2 D + 1)."""
        reach = (self.n_additionals - 1) // 4
        return self.additionals[..., reach : 3 * reach + 1]

    @property
    def initial(self) -> Any:
        """The scores of the first states' distances, (..., D)."""
        return self.additionals[..., : (self.n_additionals - 1) // 4]

    @property
    def final(self) -> Any:
        """The scores of the last states' distances, (..., D)."""
        return self.additionals[..., 3 * (self.n_additionals - 1) // 4 + 1 :]

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 4)), np.zeros(5)),
            cls(graph.variable((2, 4, 3)), np.zeros((2, 3)), lengths=[[4, 3], [2, 2]]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of Viterbi's algorithm over bins."""
        length, n_states = row.event_shape
        reach = (row.n_additionals - 1) // 4
        if length == 0:
            build.edge("goal")
            return "goal"
        for s in range(n_states):
            build.edge((0, s), slots=[(0, s)], additionals=[_first_bin(s, reach)])
            for t in range(1, length):
                for i in range(n_states):
                    step = reach + _bin(s - i, reach)
                    build.edge((t, s), [(t - 1, i)], [(t, s)], [step])
            last = 3 * reach + 1 + _last_bin(s, n_states, reach)
            build.edge("goal", [(length - 1, s)], additionals=[last])
        return "goal"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the states of the best sequence."""
        length, n_states = eta_u.shape
        path = np.empty(length, dtype=np.int64)
        if length:
            distance_viterbi(
                np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1),
                np.ascontiguousarray(eta_v, dtype=np.float64),
                length,
                n_states,
                np.empty(n_states),
                np.empty(eta_u.size),
                path,
            )
        return tuple(path.tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the states and the counts of the bins of sequence `y`."""
        length, n_states = len(y), int(self.n_states)
        path = np.array(y, dtype=np.int64)
        variables, counts = np.zeros((length, n_states)), np.zeros(self.n_additionals)
        variables[np.arange(length), path] = 1.0
        if length:
            count_bins(path, length, n_states, self.n_additionals, counts)
        return variables, counts

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"tags": [...]}``, the state of every position.

        Examples
        --------
        >>> from lpsmap import FactorGraph, SequenceDistance
        >>> sequence = SequenceDistance(FactorGraph().variable((2, 3)), [0.0, 1.0, 2.0])
        >>> from lpsmap_core.api import row_view
        >>> sequence.decode(*row_view(sequence, 0).vertex((0, 2)))
        {'tags': [0, 2]}
        """
        tags = variables.argmax(axis=-1).tolist() if variables.size else []
        return {"tags": tags}

    def unused(self) -> tuple[None, BoolArray]:
        """Return the bins of empty sequences."""
        empty = np.diff(self.offsets)[:, None] == 0
        return None, np.broadcast_to(empty, (self.n_factors, self.n_additionals))

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the lengths, plus the largest numbers of distinct bins."""
        n_states = np.maximum(factors.parameters[:, 0], 1.0).astype(np.int64)
        lengths = np.diff(factors.offsets) // n_states
        bins: IntArray = np.minimum(lengths + 1, np.diff(factors.additional_offsets))
        return lengths + bins

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every position has one state."""
        return one_of_each_group(self, self.n_states)

    def _check_states(self) -> None:
        length = self.event_shape[0]
        lengths = np.full(self.n_factors, length) if self.lengths is None else self.lengths[:, 0]
        wrong = np.flatnonzero((self.n_states == 0) & (lengths > 0))
        if wrong.size or self.event_shape[1] == 0:
            which = f", and factor {wrong[0]} has no states" if self.event_shape[1] else ""
            raise ValueError(
                f"SequenceDistance: variables has shape {self.variables.shape}{which}; expected at "
                "least one state on the last axis wherever there are positions."
            )

    def _reach(self, shape: tuple[int, ...]) -> int:
        """Return K, the distance from which steps share a bin."""
        if not shape or shape[-1] < 3 or shape[-1] % 2 == 0:
            raise ValueError(
                f"SequenceDistance: distances has shape {shape}; expected an odd number of bins, 3 "
                "or more, on the last axis: of distances -K or less, ..., 0, ..., K or more."
            )
        return shape[-1] // 2


def _with_states(variables: Variables, lengths: npt.ArrayLike | None) -> npt.ArrayLike | None:
    """Return `lengths` with the number of states next to every number of positions."""
    if lengths is None or np.ndim(lengths) != variables.ndim - 2:
        return lengths
    array = np.asarray(lengths)
    check_unambiguous_lengths("SequenceDistance", array.shape, variables.shape[:-2], 2)
    return np.stack([array, np.full_like(array, variables.shape[-1])], axis=-1)
