"""Errors of checks, which state the broken rule of the protocol."""

from __future__ import annotations

from typing import Any


class ConformanceError(AssertionError):
    """A factor type breaks a rule of the factor protocol."""


def broken(rule: str, got: Any, expected: Any, where: str = "") -> ConformanceError:
    """Return the error for a broken rule.

    Parameters
    ----------
    rule
        The rule and its reason, in a sentence.
    got, expected
        The value that was found, and the value that the rule requires.
    where
        The factor and its scores.
    """
    lines = [f"Rule: {rule}", f"Got: {got}", f"Expected: {expected}"]
    return ConformanceError("\n".join([*lines, f"Where: {where}"] if where else lines))
