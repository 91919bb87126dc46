"""Grammars and trees as text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.tagged_sentence import GAP, ROOT, TaggedSentence

MAX_CHILDREN = 5
"""Maximum number of tags listed in a row of the grammar."""

MIN_SHARE = 0.005
"""Minimum probability of a listed tag."""

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
"""Directions in which a line leaves a cell."""

LINES = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
"""The box-drawing character for each sum of directions."""

ASCII = str.maketrans("╵╷│╴╯╮┤╶╰╭├─┴┬┼▶", "'.|-'.+-'.+-+++>")
"""Replacements for terminals without box-drawing characters."""


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return rows of cells as lines of aligned columns.

    Parameters
    ----------
    rows
        Rows of equal length.
    right
        The columns to align to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def grammar_rows(
    model: DependencyModelWithValence, parameters: FloatArray, counts: FloatArray
) -> list[tuple[str, ...]]:
    """Return a grammar as rows of a table; the first row is the header.

    Each row has a head and side, the number of children there, the probabilities of a first and of
    each further child, and the most likely tags of children. Sides without children are left out.

    Parameters
    ----------
    model
        The model.
    parameters, counts
        (M,) values of the parameters.
    """
    t, (root, children, decisions) = len(model.tags), _parts(model, parameters)
    used_root, used, _ = _parts(model, counts)
    rows = [("root", "", used_root.sum(), "", "", _likeliest(model.tags, root))]
    order = np.argsort(-used.sum(axis=(0, 2)), kind="stable")
    for head in order[:t]:
        for side, name in enumerate(("left", "right")):
            n_children = used[side, head].sum()
            if n_children > MIN_SHARE:
                first, further = decisions[side, :, head, 0]
                shares = _likeliest(model.tags, children[side, head])
                rows.append(
                    (model.tags[head], name, n_children, _short(first), _short(further), shares)
                )
    title = ("HEAD", "SIDE", "CHILDREN", "FIRST", "FURTHER", "TAGS")
    return [title, *((h, s, f"{n:.4g}", a, b, c) for h, s, n, a, b, c in rows)]


def grammar_json(
    model: DependencyModelWithValence, parameters: FloatArray, counts: FloatArray
) -> dict[str, Any]:
    """Return a grammar for JSON: the tags, and the probability and count of each parameter by name.

    Parameters
    ----------
    model
        The model.
    parameters, counts
        (M,) values of the parameters.
    """
    return {
        "tags": list(model.tags),
        "parameters": dict(zip(model.names, parameters.tolist(), strict=True)),
        "counts": dict(zip(model.names, counts.tolist(), strict=True)),
    }


def _parts(
    model: DependencyModelWithValence, values: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values of root tags, of children (side, head, child), and of decisions."""
    t = len(model.tags)
    root, children, decisions = np.split(values, [t, t + 2 * t * t])
    return root, children.reshape(2, t, t), decisions.reshape(2, 2, t, 2)


def _likeliest(tags: Sequence[str], shares: FloatArray) -> str:
    order = np.argsort(-shares, kind="stable")[:MAX_CHILDREN]
    return "  ".join(f"{tags[i]} {_short(shares[i])}" for i in order if shares[i] >= MIN_SHARE)


def _short(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")


def arcs_as_text(
    sentence: TaggedSentence, heads: Sequence[int], encoding: str | None = None
) -> str:
    """Return a tree as lines of text, one word per line, with arcs on the left.

    If the sentence has annotated heads, words with a different head are marked.

    Parameters
    ----------
    sentence
        The words.
    heads
        The heads of the tree, from 0; -1 for the root.
    encoding
        The encoding of the output; ASCII is used if it lacks box-drawing characters.
    """
    drawing = _drawn(heads)
    rows = []
    for word, (text, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True)):
        note = "root" if heads[word] == ROOT else ""
        right = GAP if sentence.heads is None else sentence.heads[word]
        if right not in (GAP, heads[word]):
            expected = "root" if right == ROOT else f"{sentence.words[right]} ({right + 1})"
            note = f"{note}, " if note else ""
            note = f"{note}in the file: {expected}"
        rows.append((drawing[word], str(word + 1), text, tag, note))
    text = aligned(rows, right=(1,))
    return text if _can_write(encoding) else text.translate(ASCII)


def _can_write(encoding: str | None) -> bool:
    try:
        "╭".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _drawn(heads: Sequence[int]) -> list[str]:
    """Return the drawing of the arcs at each word."""
    levels = _levels(heads)
    width = 2 * max(levels.values(), default=0) + 1
    grid = np.zeros((len(heads), width), dtype=np.int64)
    for (word, head), level in levels.items():
        column, low, high = width - 1 - 2 * level, min(word, head), max(word, head)
        grid[low:high, column] |= DOWN
        grid[low + 1 : high + 1, column] |= UP
        grid[[low, high], column] |= RIGHT
        grid[[low, high], column + 1 :] |= LEFT | RIGHT
    text = np.array(list(LINES))[grid]
    for word, head in levels:
        place = width - 2 * levels[word, head]  # right of the bend of its arc
        text[word, place if word in heads else -1] = "▶"
    return ["".join(row) for row in text]


def _levels(heads: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return the distance from the words at which each arc is drawn."""
    level: dict[tuple[int, int], int] = {}
    arcs = [(word, head) for word, head in enumerate(heads) if head != ROOT]
    for arc in sorted(arcs, key=lambda arc: abs(arc[0] - arc[1])):
        under = [n for other, n in level.items() if _overlap(arc, other)]
        beside = {n for other, n in level.items() if arc[0] == other[1] or arc[1] == other[0]}
        first = 1 + max(under, default=0)
        level[arc] = next(n for n in itertools.count(first) if n not in beside)
    return level


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return min(one) < max(other) and min(other) < max(one)
