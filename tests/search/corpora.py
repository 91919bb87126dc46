"""Corpora whose optimum is known."""

from __future__ import annotations

__all__ = ["FIVE", "OPTIMUM"]

FIVE = ["VA", "AANVV", "NV", "ANVN", "NVV"]
"""Five sentences of a small language of verbs, nouns and adjectives."""

OPTIMUM = -17.53868155893515
"""Their greatest joint log-likelihood under the dependency model, by enumeration."""
