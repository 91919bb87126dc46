"""Count models over sentences of symbols, such as words or tags."""

from __future__ import annotations

from collections.abc import Sequence

from lpsmap_search.count_model import CountModel


class SymbolModel(CountModel):
    """A count model whose sentences are sequences of symbols.

    Parameters
    ----------
    blocks
        As for `CountModel`.
    symbols
        The symbols, in the order of their indices.
    """

    def __init__(self, blocks: Sequence[Sequence[str]], symbols: Sequence[str]) -> None:
        super().__init__(blocks)
        self._number = {symbol: i for i, symbol in enumerate(symbols)}

    def encode(self, sentence: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of a sentence's symbols.

        Raises
        ------
        ValueError
            If the sentence is empty, or a symbol is unknown.
        """
        if not len(sentence):
            raise ValueError(
                "sentence: got no symbols; expected at least one. Remove the sentence."
            )
        unknown = [symbol for symbol in sentence if symbol not in self._number]
        if unknown:
            raise ValueError(
                f"sentence: got the unknown symbol {unknown[0]!r}; expected symbols among "
                f"{', '.join(map(repr, self._number))}. Add it to the symbols of the model."
            )
        return tuple(self._number[symbol] for symbol in sentence)


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
