"""Symbols of sentences as numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence

__all__ = ["checked_states", "checked_symbols", "encoded"]


def encoded(sentence: Sequence[str], symbols: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of a sentence's symbols.

    Raises
    ------
    ValueError
        If the sentence is empty, or a symbol is unknown.
    """
    if not len(sentence):
        raise ValueError("sentence: got no symbols; expected at least one. Leave it out.")
    number = {symbol: i for i, symbol in enumerate(symbols)}
    unknown = [symbol for symbol in sentence if symbol not in number]
    if unknown:
        raise ValueError(
            f"sentence: got the unknown symbol {unknown[0]!r}; expected symbols among "
            f"{', '.join(map(repr, symbols))}. Declare the model with it."
        )
    return tuple(number[symbol] for symbol in sentence)


def checked_symbols(name: str, symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols of a model.

    Raises
    ------
    ValueError
        If there are none, or one is repeated.
    """
    found = tuple(symbols)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{name}: got {list(found)}; expected at least one, and each once.")
    return found


def checked_states(n: int) -> int:
    """Return a number of states.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is less than 1.
    """
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"states: got {n}; expected at least 1.")
    return n
