"""Read and validate the words and numbers of a text file one after the other."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

import numpy as np

from lpsmap_core.api import FloatArray, stacklevel
from lpsmap_decode.formats.compressed_text import file_bytes
from lpsmap_decode.formats.file_format import FileFormatError

FREE_COUNT = 2**16
"""Counts up to this are accepted without a comparison to the size of the file."""

INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
ONE_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Digits match in one way only, so that long words that are not numbers do not backtrack."""
NUMBER = re.compile(ONE_NUMBER)
NUMBERS = re.compile(rb"(?:" + ONE_NUMBER + rb"(?: |\Z))*")

CHUNK = 2**14
"""Numbers that are parsed together."""


class Tokens:
    """The words of a file, separated by whitespace, in order.

    A count that a file of this size cannot hold is an error at once, before anything is allocated.

    Parameters
    ----------
    path
        The file; errors name it with the line and column of the word.
    comment
        The prefix of comment lines.

    Raises
    ------
    OSError, FileFormatError
        As `file_bytes`.
    """

    def __init__(self, path: Path, comment: bytes | None = None) -> None:
        self.path, self._text = path, file_bytes(path)
        skipped = b"" if comment is None else rb"(?m:^" + re.escape(comment) + rb"[^\n]*)|"
        matches = re.finditer(skipped + rb"([^ \t\r\n\f\v]+)", self._text)
        self._words = (match for match in matches if match[1] is not None)
        self._ahead: re.Match[bytes] | None = None
        self._at = 0
        self._counted, self._line = 0, 1
        self.most = max(FREE_COUNT, len(self._text))

    def refuse(self, words: str) -> NoReturn:
        """Raise an error about the latest word."""
        raise FileFormatError(f"{self._here()}: {words}.")

    def warn(self, words: str) -> None:
        """Warn about the latest word."""
        warnings.warn(f"{self._here()}: {words}", stacklevel=stacklevel())

    def _here(self) -> str:
        """Return the position of the latest word."""
        before = self._text[: self._at]
        line, column = before.count(b"\n") + 1, self._at - before.rfind(b"\n")
        return f"{self.path}: line {line}, column {column}"

    @property
    def line(self) -> int:
        """The number of the line of the latest word."""
        self._line += self._text.count(b"\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def upcoming(self) -> bytes | None:
        """Return the next word without consuming it; None at the end of the file."""
        if self._ahead is None:
            self._ahead = next(self._words, None)
        return None if self._ahead is None else self._ahead[1]

    def n_words(self) -> int:
        """Return the number of words in the file, including comments."""
        return len(self._text.split())

    def line_ended(self) -> bool:
        """Return whether the latest word is the last of its line."""
        self.upcoming()
        return self._ahead is None or b"\n" in self._text[self._at : self._ahead.start(1)]

    def word(self, expected: str) -> bytes:
        """Return the next word."""
        if self.upcoming() is None or self._ahead is None:
            self._at = len(self._text)
            self.refuse(f"the file ends; expected {expected}")
        found, self._at, self._ahead = self._ahead[1], self._ahead.start(1), None
        return found

    def one_of(self, words: Collection[str], expected: str) -> str:
        """Return the next word, which must be one of `words` in any case, as it is there."""
        found = self.word(expected)
        text = found[:100].decode("ascii", "replace").upper()
        known = {word.upper(): word for word in words}
        if text not in known or len(found) > 100:
            self.refuse(f"got {_shown(found)}; expected {expected}")
        return known[text]

    def integer(self, what: str, low: int, high: int) -> int:
        """Return the next word, an integer from `low` to `high`."""
        found = self.word(what)
        if not INTEGER.fullmatch(found):
            self.refuse(f"got {_shown(found)}; expected {what}, a whole number")
        number = int(found)
        if not low <= number <= high:
            self.refuse(f"got {number}; expected {what}, from {low} to {high}")
        return number

    def count(self, what: str, low: int = 0) -> int:
        """Return the next word, a count of items that take at least a byte each in this file."""
        number = self.integer(what, low, 10**18)
        self.check_count(number, what)
        return number

    def check_count(self, number: int, what: str) -> None:
        """Raise an error for a count that this file cannot hold."""
        if number > self.most:
            self.refuse(
                f"{number} as {what} is more than a file of {len(self._text)} bytes can hold"
            )

    def number(self, what: str, low: float = -np.inf) -> float:
        """Return the next word, a finite number."""
        return self._as_number(self.word(what), what, low)

    def numbers(self, n: int, what: str, low: float = -np.inf) -> FloatArray:
        """Return the next n words, finite numbers."""
        self.check_count(n, f"the number of entries of {what}")
        if n == 0:
            return np.empty(0)
        found = [np.array([self.number(what, low)])]
        for begin in range(1, n, CHUNK):
            found.append(self._chunk(min(n - begin, CHUNK), what, low))
        return np.concatenate(found)

    def _chunk(self, n: int, what: str, low: float) -> FloatArray:
        """Return the next n numbers, parsed together unless one of them is wrong."""
        ahead = [] if self.upcoming() is None or self._ahead is None else [self._ahead]
        matches = ahead + list(itertools.islice(self._words, n - len(ahead)))
        words, self._ahead = [match[1] for match in matches], None
        if len(words) == n and NUMBERS.fullmatch(b" ".join(words)):
            values = np.array(list(map(float, words)))
            if np.isfinite(values).all() and values.min() >= low:
                self._at = matches[-1].start(1)
                return values
        for match in matches:
            self._at = match.start(1)
            self._as_number(match[1], what, low)
        return np.array([self.number(what, low)])  # raises: a number is missing

    def _as_number(self, word: bytes, what: str, low: float) -> float:
        number = float(word) if NUMBER.fullmatch(word) else np.nan
        if not low <= number < np.inf or number == -np.inf:
            least = "" if low == -np.inf else f" of {low:g} or more"
            self.refuse(f"got {_shown(word)}; expected {what}, a finite number{least}")
        return number

    def leave_out_rest(self) -> None:
        """Warn about further words."""
        if self.upcoming() is not None:
            words = f"got {_shown(self.word('nothing'))}; expected the end of the file"
            self.warn(f"{words}. The rest is ignored.")

    def end(self) -> None:
        """Raise an error for further words."""
        if self.upcoming() is not None:
            self.refuse(f"got {_shown(self.word('nothing'))}; expected the end of the file")


def _shown(word: bytes) -> str:
    text = ascii(word[:40].decode("latin-1"))
    return text if len(word) <= 40 else f"{text}..."
