"""Inference over sequences whose steps share transitions, with memory for their states only."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from lpsmap_core import Scores, kernel
from lpsmap_core.api import BoolArray, FloatArray, IntArray, interruptible
from lpsmap_dynamic import Beliefs, Found, Hypergraph, HypergraphInference
from lpsmap_factors_struct.backward_sampling import sample_sequences
from lpsmap_factors_struct.forward_backward import (
    backward,
    chain_sums,
    entropy_of,
    forward,
    multiply_hessian,
)


class ChainInference(HypergraphInference):
    """Inference over sequences whose steps share transitions.

    Sums are those of the forward-backward algorithm, and samples are drawn backward from its
    forward sums. Where its numbers could underflow, and for the k best and counts, hypergraphs are
    used.

    Parameters
    ----------
    offsets, n_additionals, described
        As for `HypergraphInference`.
    n_states
        The number of states.
    """

    def __init__(
        self,
        offsets: IntArray,
        n_additionals: int,
        described: Callable[[], tuple[Sequence[Hypergraph], IntArray]],
        n_states: int,
    ) -> None:
        super().__init__(offsets, n_additionals, described)
        self._n_states = n_states

    @interruptible
    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""
        n = len(self.offsets) - 1
        marginals = np.zeros(len(scores.eta_u)), np.zeros(len(scores.eta_v))
        remainder, in_doubt = np.zeros(n), np.zeros(n, dtype=np.bool_)
        found = Beliefs(np.zeros(n), np.zeros(n), *marginals, remainder)
        _beliefs(rows, self.offsets, self._n_states, *scores, *found[:4], remainder, in_doubt)
        if in_doubt.any():
            exact = super().beliefs(np.flatnonzero(in_doubt), scores)
            slots, additionals = self._entries_of(in_doubt)
            which = in_doubt, in_doubt, slots, additionals
            for own, other, chosen in zip(found[:4], exact[:4], which, strict=True):
                own[chosen] = other[chosen]
            if exact.remainder is not None:
                remainder[in_doubt] = exact.remainder[in_doubt]
        return found

    @interruptible
    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Return the derivative of the marginals along a direction of the scores."""
        product = Scores(np.zeros_like(direction.eta_u), np.zeros_like(direction.eta_v))
        in_doubt = np.zeros(len(self.offsets) - 1, dtype=np.bool_)
        _hessian_products(
            rows, self.offsets, self._n_states, *scores, *direction, *product, in_doubt
        )
        if in_doubt.any():
            exact = super().hessian_product(np.flatnonzero(in_doubt), scores, direction)
            for own, other, chosen in zip(product, exact, self._entries_of(in_doubt), strict=True):
                own[chosen] = other[chosen]
        return product

    @interruptible
    def sample(self, rows: IntArray, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Sample sequences of each factor."""
        lengths = np.diff(self.offsets) // self._n_states
        n_draws = 2 * int(lengths[rows].max(initial=0)) + 1
        room = self._room_of_samples(2 * lengths + 1, n, n_draws)
        same = copy.deepcopy(random)  # equal numbers draw equal samples, however they are computed
        uniform = random.random(len(lengths) * n * n_draws)
        in_doubt = np.zeros(len(lengths), dtype=np.bool_)
        sample_sequences(rows, self.offsets, self._n_states, *scores, n, uniform, room, in_doubt)
        if in_doubt.any():
            return super().sample(rows, scores, n, same)
        return self._scored(scores, room, n)

    def _entries_of(self, factors: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Return flags of the slots and of the additionals of some factors."""
        slots = np.repeat(factors, np.diff(self.offsets))
        return slots, np.repeat(factors, self.n_additionals)


@kernel
def _beliefs(
    rows: IntArray,
    offsets: IntArray,
    n_states: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    log_partition: FloatArray,
    entropy: FloatArray,
    m: FloatArray,
    v: FloatArray,
    remainder: FloatArray,
    in_doubt: BoolArray,
) -> None:
    """Write log-partition functions, entropies and marginals, or that a factor is in doubt."""
    n_additionals = n_states * (n_states + 2)
    work = chain_sums(_longest(rows, offsets) // n_states, n_states)
    for r in rows:
        length = (offsets[r + 1] - offsets[r]) // n_states
        if length == 0:
            continue
        u = slice(offsets[r], offsets[r + 1])
        extra = slice(r * n_additionals, (r + 1) * n_additionals)
        high, low = forward(eta_u[u], eta_v[extra], length, n_states, work)
        log_partition[r], remainder[r], in_doubt[r] = high, low, np.isnan(high)
        if high > -np.inf:
            backward(length, n_states, work, m[u], v[extra])
            entropy[r] = entropy_of(length, n_states, work, m[u], v[extra])


@kernel
def _hessian_products(
    rows: IntArray,
    offsets: IntArray,
    n_states: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
    in_doubt: BoolArray,
) -> None:
    """Write products with Hessians, or that a factor is in doubt."""
    n_additionals = n_states * (n_states + 2)
    work = chain_sums(_longest(rows, offsets) // n_states, n_states)
    for r in rows:
        length = (offsets[r + 1] - offsets[r]) // n_states
        if length == 0:
            continue
        u = slice(offsets[r], offsets[r + 1])
        extra = slice(r * n_additionals, (r + 1) * n_additionals)
        high, _ = forward(eta_u[u], eta_v[extra], length, n_states, work)
        in_doubt[r] = np.isnan(high)
        if high > -np.inf:
            multiply_hessian(d_u[u], d_v[extra], length, n_states, work, out_u[u], out_v[extra])


@kernel
def _longest(rows: IntArray, offsets: IntArray) -> int:
    longest = 0
    for r in rows:
        longest = max(longest, offsets[r + 1] - offsets[r])
    return longest
