"""Positions in a JSON text, by line and column, for errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

BLANK = re.compile(r"[ \t\n\r]*")
VALUES = json.JSONDecoder()


def line_and_column(text: str, at: int) -> str:
    """Return the position of a character as text."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def place_in(text: str, keys: Sequence[str | int]) -> str:
    """Return the position of a value as text.

    Parameters
    ----------
    text
        Valid JSON, whose outermost value is an object.
    keys
        Names in objects and positions in lists that lead to the value, which must exist.
    """
    at = _blank(text, 0)
    for key in keys:
        at = _member(text, at, key)
    return line_and_column(text, at)


def _member(text: str, at: int, key: str | int) -> int:
    """Return the start of a member of the object or list that starts at `at`."""
    in_object, position, at = text[at] == "{", 0, _blank(text, at + 1)
    while True:
        name: str | int = position
        if in_object:
            name, at = VALUES.raw_decode(text, at)
            at = _blank(text, _blank(text, at) + 1)
        if name == key:
            return at
        _, at = VALUES.raw_decode(text, at)
        position, at = position + 1, _blank(text, _blank(text, at) + 1)


def _blank(text: str, at: int) -> int:
    """Return the end of the white space from a position on."""
    found = BLANK.match(text, at)
    return at if found is None else found.end()
