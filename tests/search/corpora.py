"""Small corpora: two whose optimum is known, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lpsmap_search import (
    BinaryGrammar,
    Corpus,
    CountModel,
    DependencyModelWithValence,
    HiddenMarkovModel,
)

__all__ = ["EIGHT", "FIVE", "KINDS", "OPTIMUM", "OPTIMUM_OF_EIGHT", "drawn_corpus"]

FIVE = ["VA", "AANVV", "NV", "ANVN", "NVV"]
"""Five sentences of a small language of verbs, nouns and adjectives."""

OPTIMUM = -17.53868155893515
"""Their greatest joint log-likelihood under the dependency model, by enumeration."""

EIGHT = [*FIVE, "NVV", "NNV", "NANNVV"]
"""These and three more, 28 words in all."""

OPTIMUM_OF_EIGHT = -32.58565835825815
"""Of these, up to a hundredth: what searches with different relaxations agree on."""

KINDS: dict[str, Callable[[Sequence[str]], CountModel]] = {
    "dependencies": DependencyModelWithValence,
    "states": lambda symbols: HiddenMarkovModel(2, symbols),
    "grammar": lambda symbols: BinaryGrammar(2, symbols),
}


def drawn_corpus(kind: str, rng: np.random.Generator) -> Corpus:
    """Draw up to three sentences that are short enough for enumeration."""
    symbols = "abc"[: rng.integers(2, 4)]
    longest = 4 if kind == "dependencies" else 3
    sentences = [
        "".join(rng.choice(list(symbols), rng.integers(1, longest + 1)))
        for _ in range(rng.integers(1, 4))
    ]
    return Corpus(KINDS[kind](symbols), sentences)
