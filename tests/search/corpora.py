"""Corpora whose optimum is known."""

from __future__ import annotations

__all__ = ["EIGHT", "FIVE", "OPTIMUM", "OPTIMUM_OF_EIGHT"]

FIVE = ["VA", "AANVV", "NV", "ANVN", "NVV"]
"""Five sentences of a small language of verbs, nouns and adjectives."""

OPTIMUM = -17.53868155893515
"""Their greatest joint log-likelihood under the dependency model, by enumeration."""

EIGHT = [*FIVE, "NVV", "NNV", "NANNVV"]
"""These and three more, 28 words in all."""

OPTIMUM_OF_EIGHT = -32.58565835825815
"""Of these, up to a hundredth: what searches with different relaxations agree on."""
