"""Probabilistic context-free grammars over binary trees."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lpsmap_core.api import checked_count
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search.symbols import SymbolModel, checked_symbols


class BinaryGrammar(SymbolModel):
    """A probabilistic context-free grammar in Chomsky normal form (Lari & Young 1990).

    Parameters
    ----------
    n_labels
        K, the number of nonterminals.
    words
        The V terminals, in the order of their indices.

    Raises
    ------
    TypeError
        If the number is not an integer.
    ValueError
        If there are no nonterminals or words, or a word is repeated.

    Notes
    -----
    There are ``K + K (K^2 + V)`` parameters in ``K + 1`` blocks: the label of the root; and for
    each label, its pairs of children, then its words.
    """

    def __init__(self, n_labels: int, words: Sequence[str]) -> None:
        self.n_labels = checked_count("n_labels", n_labels)
        self.words = checked_symbols("words", words)
        labels = range(self.n_labels)
        blocks = [[f"whole {label}" for label in labels]]
        for label in labels:
            pairs = [f"{label} to {left} {right}" for left in labels for right in labels]
            blocks.append([*pairs, *(f"{label} to {word}" for word in self.words)])
        super().__init__(blocks, self.words)

    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of the CKY algorithm.

        Item ``(i n + j) K + k`` is label k over the words from i to j.
        """
        n, k = len(sentence), self.n_labels
        size = k * k + len(self.words)
        labels = np.arange(k)
        for i, word in enumerate(sentence):
            rules = k + labels * size + k * k + word
            spans = (i * n + i) * k + labels
            build.edges(spans, slots=spans, additionals=rules)
        i, m, j = (x.reshape(-1) for x in np.indices((n, n, n)))
        i, m, j = (x[(i <= m) & (m < j)][:, None] for x in (i, m, j))
        a, b, c = (x.reshape(1, -1) for x in np.indices((k, k, k)))
        tails = np.stack([(i * n + m) * k + b, ((m + 1) * n + j) * k + c], axis=2).reshape(-1, 2)
        rules = np.broadcast_to(k + a * size + b * k + c, (len(i), a.size))
        spans = ((i * n + j) * k + a).reshape(-1)
        build.edges(spans, tails, spans, rules.reshape(-1))
        build.edges(np.full(k, n * n * k), (n - 1) * k + labels, additionals=labels)
        return n * n * k

    def variables_shape(self, sentence: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a sentence's labelled spans, ``[i, j, k]``, as in ``BinaryTree``."""
        return len(sentence), len(sentence), self.n_labels
