"""Sentences in CoNLL-U files."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, cast

from lpsmap_core.api import checked_count, reserve_memory
from lpsmap_search.tagged_sentence import GAP, ROOT, TaggedSentence

PUNCTUATION = "PUNCT"
"""The universal tag of punctuation."""

LONGEST_LINE = 1 << 20
"""Maximum bytes of a line, so that a file without line ends does not exhaust the memory."""

WORD_BYTES = 300
"""Bytes of a word, its tag and its head, as objects of Python."""

LONGEST_SENTENCE = 10_000
"""Maximum words of a sentence, so that a file without empty lines does not exhaust the memory."""


def read_conllu(
    path: str | Path, *, max_words: int | None = None, punctuation: bool = False
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a CoNLL-U file, plain or compressed with gzip (``.gz``).

    The file is read line by line. Tags are those of the universal column, and heads count from 0,
    with -1 for the root and -100 for ``_``; `heads` is None for a sentence in which all are ``_``.
    Relations are as in the file, ``_`` if unknown, and there is one for each word.
    Multiword tokens (``3-4``) and empty nodes (``3.1``) are skipped.

    Parameters
    ----------
    path
        The file.
    max_words
        Longer sentences are skipped; None for no limit. Removed punctuation does not count.
    punctuation
        Whether to keep punctuation. If it is removed, its dependents are attached to its nearest
        remaining ancestor; if there is none, the first of them becomes the root and the head of the
        others. A sentence of only punctuation is skipped.

    Raises
    ------
    ValueError
        If the file is not CoNLL-U; the message names the line.
    OSError
        If the file cannot be read.
    """
    path = Path(path)
    limit = LONGEST_SENTENCE if max_words is None else checked_count("max_words", max_words)
    with _opened(path) as file:
        for rows in _blocks(path, _lines(path, file)):
            sentence = _sentence(path, rows, punctuation)
            if 0 < len(sentence) <= limit:
                reserve_memory(WORD_BYTES * len(sentence), "sentences")
                yield sentence


class _Row(NamedTuple):
    line: int
    word: str
    tag: str
    head: int
    relation: str


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _refuse(path: Path, line: int, message: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {message}")


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str]]:
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(LONGEST_LINE + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            _refuse(path, number, f"got damaged gzip data; expected a whole file ({error}).")
        if not line:
            return
        if len(line) > LONGEST_LINE:
            _refuse(path, number, f"got more than {LONGEST_LINE} bytes; expected CoNLL-U.")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield number, line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            _refuse(path, number, "got bytes that are not UTF-8; expected text in UTF-8.")


def _blocks(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[list[_Row]]:
    """Yield the rows of the words of every sentence."""
    rows: list[_Row] = []
    for number, line in lines:
        if not line.strip():
            if rows:
                yield rows
            rows = []
        elif not line.startswith("#"):
            row = _row(path, number, line, len(rows) + 1)
            if row is not None:
                rows.append(row)
            if len(rows) > LONGEST_SENTENCE:
                _refuse(
                    path,
                    number,
                    f"got a sentence of more than {LONGEST_SENTENCE} words; expected an empty "
                    "line after each sentence.",
                )
    if rows:
        yield rows


def _row(path: Path, number: int, line: str, expected: int) -> _Row | None:
    """Return the word of a line; None for a multiword token or an empty node."""
    columns = line.split("\t")
    if len(columns) != 10:
        _refuse(
            path, number, f"got {len(columns)} columns; expected the 10 of CoNLL-U, between tabs."
        )
    name, word, _, tag, _, _, head, relation, *_ = columns
    if re.fullmatch(r"\d+[-.]\d+", name, re.ASCII):
        return None
    if not re.fullmatch(r"\d+", name, re.ASCII):
        _refuse(path, number, f"got the number {name!r} of a word; expected {expected}.")
    if int(name) != expected:
        _refuse(path, number, f"got word {name}; expected word {expected}. Number words from 1.")
    if not tag or tag == "_":
        _refuse(path, number, f"got no universal tag of {word!r}; expected one in column 4.")
    if head == "_":
        return _Row(number, word, tag, GAP, relation)
    if not (head.isascii() and head.isdigit() and len(head) < 10):
        _refuse(path, number, f"got the head {head!r}; expected the number of a word, 0 or _.")
    return _Row(number, word, tag, int(head) - 1, relation)


def _sentence(path: Path, rows: list[_Row], punctuation: bool) -> TaggedSentence:
    _check_heads(path, rows)
    heads = [row.head for row in rows]
    keep = [punctuation or row.tag != PUNCTUATION for row in rows]
    kept = [row for row, stays in zip(rows, keep, strict=True) if stays]
    if not all(keep):
        heads = _without(heads, keep)
    return TaggedSentence(
        tuple(row.word for row in kept),
        tuple(row.tag for row in kept),
        None if all(head == GAP for head in heads) else tuple(heads),
        tuple(row.relation for row in kept),
    )


def _check_heads(path: Path, rows: list[_Row]) -> None:
    """Check that heads are words of the sentence, and that they have no cycle."""
    for row in rows:
        if row.head >= len(rows):
            _refuse(
                path,
                row.line,
                f"got head {row.head + 1}; expected 0 to {len(rows)}, or _ for none.",
            )
    done = [False] * len(rows)
    for start in range(len(rows)):
        seen, word = set(), start
        while word >= 0 and not done[word]:
            if word in seen:
                _refuse(path, rows[word].line, "got a cycle of heads; expected a tree.")
            seen.add(word)
            word = rows[word].head
        for word in seen:
            done[word] = True


def _without(heads: list[int], keep: list[bool]) -> list[int]:
    """Return the heads of the remaining words, renumbered."""
    number, n = [], 0
    for stays in keep:
        number.append(n)
        n += stays
    heads_left: list[int] = []
    heir = ROOT  # the first dependent of a removed root
    for word, stays in enumerate(keep):
        if not stays:
            continue
        head, removed = heads[word], False
        while head >= 0 and not keep[head]:
            head, removed = heads[head], True
        if head == ROOT and removed:
            if heir == ROOT:
                heir = number[word]
            else:
                heads_left.append(heir)
                continue
        heads_left.append(number[head] if head >= 0 else head)
    return heads_left
