"""Grammars and trees as text and as pictures."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpsmap_search import TaggedSentence, sampled_sentences, verb_noun_adjective
from lpsmap_search.grammar_text import aligned, arcs_as_text, grammar_json, grammar_rows

SENTENCE = TaggedSentence(
    ("This", "item", "is", "a", "small", "one"),
    ("DET", "NOUN", "AUX", "DET", "ADJ", "NOUN"),
    (1, 5, 5, 5, 5, -1),
)


def test_trees_are_drawn_beside_their_words() -> None:
    drawn = """\
      ╭─▶  1  This   DET
╭▶────┴──  2  item   NOUN
│ ╭─────▶  3  is     AUX
│ │ ╭───▶  4  a      DET
│ │ │ ╭─▶  5  small  ADJ
╰─┴─┴─┴──  6  one    NOUN  root"""
    assert arcs_as_text(SENTENCE, SENTENCE.heads or ()) == drawn


def test_chains_turn_and_other_heads_are_named() -> None:
    drawn = """\
  .--  1  This   DET   root, in the file: item (2)
.-+>-  2  item   NOUN  in the file: one (6)
'>+--  3  is     AUX   in the file: one (6)
.-+>-  4  a      DET   in the file: one (6)
'>+--  5  small  ADJ   in the file: one (6)
  '->  6  one    NOUN  in the file: root"""
    assert arcs_as_text(SENTENCE, (-1, 0, 1, 2, 3, 4), "ascii") == drawn


def joined(lines: list[str], width: int) -> set[tuple[int, int]]:
    """Return which words a drawing without crossings joins, by following its columns."""
    pairs = set()
    for column in range(0, width - 1, 2):
        corners = [(word, line[column]) for word, line in enumerate(lines)]
        turns = [(word, corner) for word, corner in corners if corner in "╭┬╰┴├"]
        for (one, first), (two, second) in itertools.pairwise(turns):
            if first in "╭┬├" and second in "╰┴├":
                pairs.add((one, two))
    return pairs


def test_every_arc_is_drawn() -> None:
    model, parameters = verb_noun_adjective()
    rng = np.random.default_rng(0)
    n_checked = 0
    for sentence in sampled_sentences(model, parameters, 100, rng, max_words=8):
        assert sentence.heads is not None
        drawn = arcs_as_text(sentence, sentence.heads)
        lines = drawn.splitlines()
        arcs = {tuple(sorted(arc)) for arc in enumerate(sentence.heads) if arc[1] >= 0}
        assert drawn.count("▶") == len(arcs)
        if "┼" not in drawn:
            n_checked += 1
            assert joined(lines, lines[0].index("1") - 2) >= arcs, drawn
    assert n_checked > 50


def test_a_grammar_is_a_table_of_its_counts() -> None:
    model, parameters = verb_noun_adjective()
    counts = np.zeros(model.n_parameters)
    counts[[model.names.index("root V"), model.names.index("V left N")]] = 2.0, 3.0
    title, root, *rows = grammar_rows(model, parameters, counts)
    assert root == ("root", "", "2", "", "", "V .85  N .13  A .02")
    assert rows == [("V", "left", "3", ".85", ".10", "N .90  V .05  A .05")]
    lines = aligned([title, root, *rows], right=(2, 3, 4)).splitlines()
    assert lines[2].index(".85") + 3 == lines[0].index("FIRST") + 5
    written = grammar_json(model, parameters, counts)
    assert written["parameters"]["V left no child continue"] == 0.85


figures = pytest.importorskip("lpsmap_search.figures", exc_type=ImportError)


def overlapping(texts: list[Any], renderer: Any) -> list[str]:
    """Return texts that cover others."""
    shown = [t for t in texts if t.get_text() and t.get_visible()]
    boxes = [t.get_window_extent(renderer).shrunk(0.98, 0.9) for t in shown]
    return [
        f"{shown[i].get_text()} and {shown[j].get_text()}"
        for i, j in itertools.combinations(range(len(shown)), 2)
        if boxes[i].overlaps(boxes[j])
    ]


def test_words_of_trees_do_not_overlap_and_arcs_have_colours() -> None:
    other = TaggedSentence(("incomprehensibilities", "a"), ("NOUN", "DET"), None)
    figure = figures.trees([SENTENCE, other], [(1, 5, 5, 5, 3, -1), (-1, 0)])
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    first, second = figure.axes
    for ax in figure.axes:
        assert not overlapping(ax.texts, renderer)
    assert len(first.patches) == 12
    assert len(second.patches) == 2
    colours = [patch.get_edgecolor() for patch in first.patches]
    assert len({*colours}) == 3
    assert sum(colour == colours[0] for colour in colours) == 10


def test_bounds_and_training_have_readable_labels() -> None:
    history = [(0.01, -30.0, 0.0), (0.1, -20.0, 0.0), (1.0, -18.0, -9.0), (40.0, -18.0, -17.9)]
    ax = figures.bounds(history)
    assert "gap 0.56 %" in ax.get_title()
    assert len(ax.lines) == 2
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [-30.0, -20.0, -18.0, -18.0])
    assert "the bound is void" in figures.bounds(history[:2]).get_title()
    assert len(figures.bounds([(1.0, -3.0, np.inf)]).lines) == 1
    runs = {name: history for name in ("search", "em", "search, rules", "em, rules")}
    axes = figures.training(runs)
    assert [line.get_linestyle() for line in axes[0].lines] == ["-", "-", "--", "--"]
    assert axes[0].lines[0].get_color() == axes[0].lines[2].get_color()
    for one in (ax, *axes):
        one.figure.canvas.draw()
        labels = one.get_xticklabels()
        low, high = one.get_xlim()
        inside = [t for t in labels if low <= t.get_position()[0] <= high]
        assert not overlapping(inside, one.figure.canvas.get_renderer())


def test_other_trees_and_suffixes_are_refused() -> None:
    with pytest.raises(ValueError, match="found: got trees of other lengths"):
        figures.trees([SENTENCE], [(0,)])
    with pytest.raises(ValueError, match="got the suffix '.x'; expected one of"):
        figures.check_picture(Path("a.x"))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delitem(sys.modules, "lpsmap_search.figures")
    with pytest.raises(ImportError, match=r'pip install "lpsmap-search\[plot\]"'):
        import lpsmap_search.figures  # noqa: F401
