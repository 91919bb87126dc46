"""Hidden Markov models of sequences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lpsmap_core.api import checked_count
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search.symbols import SymbolModel, checked_symbols


class HiddenMarkovModel(SymbolModel):
    """Sequences of states that emit words: part-of-speech induction (Merialdo 1994).

    Parameters
    ----------
    n_states
        K, the number of states.
    words
        The V emitted words, in the order of their indices.

    Raises
    ------
    TypeError
        If the number is not an integer.
    ValueError
        If there are no states or words, or a word is repeated.

    Notes
    -----
    There are ``K + K^2 + K V`` parameters in ``2 K + 1`` blocks: the initial state; the transitions
    from each state; the emissions of each state.
    """

    def __init__(self, n_states: int, words: Sequence[str]) -> None:
        self.n_states = checked_count("n_states", n_states)
        self.words = checked_symbols("words", words)
        states = range(self.n_states)
        blocks = [[f"first {state}" for state in states]]
        blocks += [[f"{before} then {after}" for after in states] for before in states]
        blocks += [[f"{state} emits {word}" for word in self.words] for state in states]
        super().__init__(blocks, self.words)

    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of all state sequences: item ``t K + k`` is state k at position t."""
        n, v, states = self.n_states, len(self.words), np.arange(self.n_states)
        goal = len(sentence) * n
        emissions = n + n * n + states * v
        used = np.stack([states, emissions + sentence[0]], axis=1)
        build.edges(states, slots=states, additionals=used)
        before, after = (x.reshape(-1) for x in np.indices((n, n)))
        transitions = n + before * n + after
        for t, word in enumerate(sentence[1:], start=1):
            used = np.stack([transitions, emissions[after] + word], axis=1)
            build.edges(t * n + after, (t - 1) * n + before, t * n + after, used)
        build.edges(np.full(n, goal), goal - n + states)
        return goal

    def variables_shape(self, sentence: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a sentence's states, ``[t, k]``, as in ``Sequence``."""
        return len(sentence), self.n_states
