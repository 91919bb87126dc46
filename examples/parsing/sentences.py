"""Sentences in CoNLL-U files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Sentence", "read_sentences"]


@dataclass(frozen=True)
class Sentence:
    """A sentence with its dependency tree.

    Attributes
    ----------
    words
        The word forms.
    heads
        The head of each word: from 0, -1 for the root.
    tags, relations
        Universal part of speech of each word, and its relation to the head.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    tags: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)


def read_sentences(path: Path) -> list[Sentence]:
    """Return the sentences of a CoNLL-U file, plain or compressed with gzip.

    Multiword tokens (``3-4``) and empty nodes (``3.1``) are skipped.

    Raises
    ------
    ValueError
        If a line has too few columns or a head is not a word of its sentence.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [_sentence(path, rows) for rows in _blocks(path, file)]


def _blocks(path: Path, lines: Iterator[str]) -> Iterator[list[list[str]]]:
    """Yield the columns of every sentence's words."""
    rows: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        columns = line.rstrip("\n").split("\t")
        if not line.strip():
            if rows:
                yield rows
            rows = []
        elif line.startswith("#") or not columns[0].isdigit():
            continue
        elif len(columns) < 8:
            raise ValueError(f"{path}, line {number}: got {len(columns)} columns; expected 10.")
        else:
            rows.append(columns)
    if rows:
        yield rows


def _sentence(path: Path, rows: list[list[str]]) -> Sentence:
    words, tags, relations = (tuple(row[column] for row in rows) for column in (1, 3, 7))
    heads = tuple(int(row[6]) - 1 for row in rows)
    if not all(-1 <= head < len(rows) for head in heads):
        raise ValueError(f"{path}: a head in {' '.join(words)!r} is not among its words.")
    return Sentence(words, heads, tags, relations)
