"""Sequences of states, scored state by state and step by step."""

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
    LocalSolver,
    Scores,
    Structures,
    Variables,
    kernel,
    largest_arity,
)
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Inference, Row, one_of_each_group
from lpsmap_factors_struct.chain_inference import ChainInference
from lpsmap_factors_struct.chains.chain_forests import ChainForests
from lpsmap_factors_struct.transitions import flat_transitions
from lpsmap_factors_struct.viterbi import (
    most_positions,
    most_states,
    step_stride,
    viterbi,
    write_path,
)


@kernel
def _best_sequences(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best sequence of every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    parameters = factors.parameters
    start, entry, value, size = structures
    n_most, path = most_states(rows, factors), np.empty(most_positions(rows, factors), np.int64)
    reduced, prefix = np.empty(n_most), np.empty(largest_arity(rows, offsets))
    counts = np.zeros(n_most**2)
    for r in rows:
        n_states = int(parameters[r, 0])
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        additionals = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        length = len(eta_u) // n_states
        if length > 0:
            viterbi(eta_u, additionals, length, n_states, reduced, prefix, path)
        size[r] = write_path(
            path, length, n_states, len(additionals), start[r], entry, value, counts
        )


class Sequence(DynamicProgram):
    """Sequences of states with transition scores: a linear chain.

    The structures are all sequences with one state for every position. The additionals say which
    state is the first, which state follows which, and which is the last. Transitions of one matrix
    for all steps are stored once, and their additionals count the steps from state to state;
    otherwise there are additionals for every step. The oracle is Viterbi's (1967) algorithm
    (Niculae & Martins 2020, section 5.2: LP-sequence).

    Parameters
    ----------
    variables
        States, of shape ``(..., L, S)``: a sequence of `L` positions with `S` states each for every
        entry of the leading axes.
    transitions
        Array (NumPy, torch, or of any array-API library) that broadcasts to ``(..., L - 1, S, S)``:
        the score of state j after state i at ``[..., t, i, j]``. All steps share the scores if the
        axis of the steps is missing or 1, as in ``(S, S)`` and ``(..., 1, S, S)``. Or the scores of
        every step flat, ``(..., (L - 1) S^2)``; or all scores flat, as for `additionals`.
    initial, final
        Arrays that broadcast to ``(..., S)``: scores of the first and of the last state; None for
        zeros.
    additionals
        Instead of the three above, an array of shape ``(..., 2 S + (L - 1) S^2)``, or ``(..., 2 S +
        S^2)`` with transitions that all steps share: the initial scores, then the transitions, then
        the final scores. Or any form of `transitions`.
    lengths
        Integers of the leading axes' shape: sequence b covers ``[b, :lengths[b]]``. It uses the
        first ``lengths[b] - 1`` transitions; its last position is scored by `final`.

    Raises
    ------
    TypeError
        If `variables` are not Variables, or the scores are arrays of different libraries.
    ValueError
        If a shape does not fit, there is no state, or a length is negative or exceeds `L`.

    Notes
    -----
    A sequence's label is the tuple of its states.

    Examples
    --------
    >>> from lpsmap import FactorGraph, Sequence
    >>> graph = FactorGraph()
    >>> u = graph.variable_from(np.array([[3.0, 0.0], [0.0, 3.0], [0.0, 3.0]]))
    >>> sequence = graph.add(Sequence(u, np.zeros((2, 2))))
    >>> _ = graph.solve_map()
    >>> sequence.additionals_value  # first state 0; one step from 0 to 1, one from 1 to 1; last 1
    array([1., 0., 0., 1., 0., 1., 0., 1.])
    """

    variables_ndim = 2
    length_axes = (0,)
    map_kernel = staticmethod(_best_sequences)

    def __init__(
        self,
        variables: Variables,
        transitions: Any = None,
        initial: Any = None,
        final: Any = None,
        *,
        additionals: Any = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        length, n_states = self.event_shape
        if n_states == 0:
            raise ValueError(
                f"{type(self).__name__}: variables has shape {self.variables.shape}; expected at "
                "least one state on the last axis."
            )
        self.additionals = self._flat(length, n_states, transitions, initial, final, additionals)
        self.n_additionals = int(self.additionals.shape[-1])
        self.n_states = self.per_factor("n_states", n_states)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 2)), np.zeros((2, 2, 2))),
            cls(
                graph.variable((3, 4, 3)),
                np.zeros((3, 3, 3)),
                np.zeros((3, 3)),
                np.zeros((3, 3)),
                lengths=[4, 1, 2],
            ),
            cls(graph.variable((3, 4, 2)), np.zeros((3, 1, 2, 2)), lengths=[4, 0, 3]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of Viterbi's algorithm, with two items for every state.

        One item precedes the score of the state, the other one follows it.
        """
        length, n_states = row.event_shape
        if length == 0:
            build.edge("nothing")
            return "nothing"
        states, goal = np.arange(n_states), 2 * length * n_states
        stride = step_stride(row.n_additionals, n_states)
        before, after = (x.reshape(-1) for x in np.meshgrid(states, states, indexing="ij"))
        for t in range(length):
            arrived, visited = 2 * t * n_states, (2 * t + 1) * n_states
            if t == 0:
                build.edges(arrived + states, additionals=states)
            else:
                steps = n_states + (t - 1) * stride + np.arange(n_states**2)
                build.edges(arrived + after, arrived - n_states + before, additionals=steps)
            build.edges(visited + states, arrived + states, t * n_states + states)
        last = row.n_additionals - n_states
        build.edges(np.full(n_states, goal), goal - n_states + states, additionals=last + states)
        return goal

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the states of the best sequence."""
        length, n_states = eta_u.shape
        path = np.empty(length, dtype=np.int64)
        if length:
            viterbi(
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
        """Return the states and the steps of sequence `y`."""
        length, n_states = len(y), self.event_shape[1]
        entry = np.empty(2 * length + 1, dtype=np.int32)
        value = np.empty(2 * length + 1)
        path = np.array(y, dtype=np.int64)
        counts = np.zeros(n_states**2)
        size = write_path(path, length, n_states, self.n_additionals, 0, entry, value, counts)
        vertex = np.zeros(length * n_states + self.n_additionals)
        vertex[entry[:size]] = value[:size]
        variables, additionals = np.split(vertex, [length * n_states])
        return variables.reshape(length, n_states), additionals

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"tags": [...]}``, the state of every position.

        Examples
        --------
        >>> from lpsmap import FactorGraph, Sequence
        >>> sequence = Sequence(FactorGraph().variable((3, 2)), np.zeros((2, 2)))
        >>> sequence.decode(np.array([[0, 1], [0, 1], [1, 0]]), np.empty(0))
        {'tags': [1, 1, 0]}
        """
        return {"tags": variables.argmax(axis=-1).tolist()}

    def unused(self) -> tuple[None, BoolArray]:
        """Return the transitions beyond a sequence's last position; all scores if it is empty."""
        longest, n_states = self.event_shape
        lengths = np.full((self.n_factors, 1), longest) if self.lengths is None else self.lengths
        shared = step_stride(self.n_additionals, n_states) == 0
        steps = np.arange(1 if shared else longest - 1) >= lengths - 1
        ends = np.broadcast_to(lengths == 0, (self.n_factors, n_states))
        return None, np.concatenate([ends, np.repeat(steps, n_states**2, axis=1), ends], axis=1)

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every position has one state."""
        return one_of_each_group(self, self.n_states)

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return twice the lengths plus 1: a state and a step per position, and the last state."""
        return 2 * np.diff(factors.offsets) // factors.parameters[:, 0].astype(np.int64) + 1

    @classmethod
    def local_solver(cls) -> type[LocalSolver]:
        """Return the solver of chains by forests, active sets and flows."""
        return ChainForests

    def inference(self) -> Inference:
        """Return the inference, by forward-backward sums if all steps share transitions."""
        n_states = self.event_shape[1]
        if step_stride(self.n_additionals, n_states) > 0:
            return super().inference()
        return ChainInference(self.offsets, self.n_additionals, self.hypergraphs, n_states)

    def _flat(
        self,
        length: int,
        n_states: int,
        transitions: Any,
        initial: Any,
        final: Any,
        additionals: Any,
    ) -> Any:
        """Return the scores of all additionals in the flat layout."""
        name = type(self).__name__
        if (transitions is None) == (additionals is None):
            given = "neither" if transitions is None else "both"
            raise ValueError(
                f"{name}: got {given} of transitions and additionals; expected one of them. Pass "
                "transitions of shape (S, S) for all steps, or (L - 1, S, S)."
            )
        argument = "additionals" if transitions is None else "transitions"
        scores = additionals if transitions is None else transitions
        return flat_transitions(
            name, self.batch_shape, length, n_states, scores, initial, final, argument
        )
