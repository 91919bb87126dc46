"""How a check says which rule of the protocol is broken."""

from __future__ import annotations

from typing import Any

__all__ = ["ConformanceError", "broken"]


class ConformanceError(AssertionError):
    """A factor type breaks a rule of the factor protocol."""


def broken(rule: str, got: Any, expected: Any, where: str = "") -> ConformanceError:
    """Return the error for a broken rule.

    Parameters
    ----------
    rule
        The rule and why it is one, in a sentence.
    got, expected
        What was found, and what the rule asks for.
    where
        For which factor and scores.
    """
    lines = [f"Rule: {rule}", f"Got: {got}", f"Expected: {expected}"]
    return ConformanceError("\n".join([*lines, f"Where: {where}"] if where else lines))
