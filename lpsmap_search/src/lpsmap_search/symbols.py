"""Encoding of symbols as indices."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["checked_symbols", "encoded"]


def encoded(sentence: Sequence[str], symbols: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of a sentence's symbols.

    Raises
    ------
    ValueError
        If the sentence is empty, or a symbol is unknown.
    """
    if not len(sentence):
        raise ValueError("sentence: got no symbols; expected at least one. Remove the sentence.")
    number = {symbol: i for i, symbol in enumerate(symbols)}
    unknown = [symbol for symbol in sentence if symbol not in number]
    if unknown:
        raise ValueError(
            f"sentence: got the unknown symbol {unknown[0]!r}; expected symbols among "
            f"{', '.join(map(repr, symbols))}. Add it to the symbols of the model."
        )
    return tuple(number[symbol] for symbol in sentence)


def checked_symbols(name: str, symbols: Sequence[str]) -> tuple[str, ...]:
    """Validate the symbols of a model.

    Raises
    ------
    ValueError
        If there are no symbols, or one is repeated.
    """
    names = tuple(symbols)
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{name}: got {list(names)}; expected at least one symbol, without repetitions."
        )
    return names
