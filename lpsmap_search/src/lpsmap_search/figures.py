"""Plots of training: bounds, likelihood and accuracy over time, and trees.

Needs matplotlib: ``pip install "lpsmap-search[plot]"``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lpsmap_search.tagged_sentence import GAP, ROOT, TaggedSentence

try:
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve
    from matplotlib.ticker import LogLocator, NullFormatter
except ImportError as error:
    raise ImportError(
        'lpsmap_search.figures needs matplotlib; install it with: pip install "lpsmap-search[plot]"'
    ) from error

from lpsmap_decode.figures import check_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bounds", "check_picture", "training", "trees"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that most colour-blind readers can distinguish (Okabe & Ito 2008)."""

SHARED = "#404040"
"""The colour of correct arcs."""

WORD = 0.09
"""Width of a letter in inches."""

ROOT_HEIGHT = 0.8
"""The height of the arrow at a root."""

ROW = 0.42
"""Inches per unit of height."""


def bounds(history: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Plot the objective and the bound of a search over time.

    After Gormley & Eisner (2013, Figure 5).

    Parameters
    ----------
    history
        Rows of seconds, objective, and bound; an infinite bound means no bound.
    ax
        The axes to draw into; None for a new figure.
    """
    rows = np.asarray(history, dtype=np.float64).reshape(-1, 3)
    seconds, objective, bound = np.where(np.isfinite(rows), rows, np.nan).T
    ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")[1] if ax is None else ax
    title = f"objective {objective[-1]:.6g}"
    if np.isfinite(bound).any():
        ax.fill_between(seconds, objective, bound, step="post", color="0.92", lw=0)
        ax.step(seconds, bound, where="post", color=COLOURS[1], label="bound")
        gap = (bound[-1] - objective[-1]) / max(1.0, abs(objective[-1]))
        is_void = bound[-1] >= 0.0 > objective[-1]
        title += ", the bound is void" if is_void else f", gap {100.0 * gap:.2g} %"
    ax.step(seconds, objective, where="post", color=COLOURS[0], label="objective")
    ax.set_title(title, fontsize=10)
    _time_axis(ax, seconds)
    ax.set_ylabel("log-likelihood")
    ax.legend(frameon=False)
    return ax


def training(
    runs: Mapping[str, npt.ArrayLike], axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Plot likelihood and accuracy of several methods over time.

    After Gormley & Eisner (2013, Figure 6).

    Parameters
    ----------
    runs
        For each method, rows of seconds, log-likelihood, and directed accuracy from 0 to 1; NaN if
        unknown. Names that agree up to a comma share a colour; the second of them is dashed.
    axes
        Two axes, for likelihood and accuracy.
    """
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(10.0, 3.6), layout="constrained")[1]
    likelihood, accuracy = axes
    colours: dict[str, str] = {}
    everything = []
    for name, history in runs.items():
        rows = np.asarray(history, dtype=np.float64).reshape(-1, 3)
        seconds, values, shares = rows.T
        kind = name.split(",")[0]
        style = "--" if kind in colours else "-"
        colour = colours.setdefault(kind, COLOURS[len(colours) % len(COLOURS)])
        likelihood.step(seconds, values, where="post", color=colour, ls=style, label=name)
        accuracy.step(seconds, 100.0 * shares, where="post", color=colour, ls=style)
        everything.append(seconds)
    for ax, label in ((likelihood, "log-likelihood"), (accuracy, "directed accuracy, %")):
        _time_axis(ax, np.concatenate(everything))
        ax.set_ylabel(label)
    likelihood.figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return axes


def trees(
    sentences: Sequence[TaggedSentence],
    found: Sequence[Sequence[int]],
    columns: int = 2,
) -> Figure:
    """Draw a tree above each sentence, and its annotated tree below.

    Arcs in both trees are dark, the others coloured. A vertical arrow marks the root.

    Parameters
    ----------
    sentences
        The sentences.
    found
        For each sentence, the heads of its words, from 0; -1 for the root.
    columns
        Number of sentences in a row.

    Raises
    ------
    ValueError
        If there are no sentences, or the trees do not match them.
    """
    if not sentences or [len(s) for s in sentences] != [len(heads) for heads in found]:
        raise ValueError(
            "found: got trees of other lengths; expected a head for each word of each sentence."
        )
    columns = min(columns, len(sentences))
    width = max(sum(map(_width, s.words, s.tags)) for s in sentences)
    has_gold = any(sentence.heads is not None for sentence in sentences)
    tops = list(itertools.starmap(_top, zip(sentences, found, strict=True)))
    heights = [max(tops[i : i + columns]) for i in range(0, len(tops), columns)]
    figure, axes = plt.subplots(
        len(heights),
        columns,
        figsize=(columns * (width + 0.4), ROW * sum(heights) * (2.0 if has_gold else 1.3)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for ax in axes.flat:
        ax.axis("off")
    for i, (sentence, heads) in enumerate(zip(sentences, found, strict=True)):
        ax, height = axes.flat[i], heights[i // columns]
        _tree(ax, sentence, heads)
        ax.set_xlim(0.0, width)
        ax.set_ylim(-height if has_gold else -0.3 * height, height)
    return figure


def _top(sentence: TaggedSentence, heads: Sequence[int]) -> float:
    """Return the height of the drawing above and below the words."""
    gold = ((word, head) for word, head in enumerate(sentence.heads or ()) if head != GAP)
    arcs = [*enumerate(heads), *gold]
    return 0.5 + max(itertools.starmap(_height, arcs))


def _tree(ax: Axes, sentence: TaggedSentence, heads: Sequence[int]) -> None:
    """Draw one sentence with its trees; x is in inches."""
    pairs = list(zip(sentence.words, sentence.tags, strict=True))
    widths = np.array(list(itertools.starmap(_width, pairs)))
    middle = np.cumsum(widths) - 0.5 * widths
    for x, (word, tag) in zip(middle, pairs, strict=True):
        ax.text(x, 0.0, word, ha="center", va="bottom", fontsize=10)
        if tag != word:
            ax.text(x, 0.0, tag, ha="center", va="top", fontsize=7, color="0.4")
    gold = sentence.heads or (GAP,) * len(heads)
    for i, (mine, its) in enumerate(zip(heads, gold, strict=True)):
        _arc(ax, middle, (i, mine), 1.0, SHARED if its in (GAP, mine) else COLOURS[1])
        if its != GAP:
            _arc(ax, middle, (i, its), -1.0, SHARED if mine == its else COLOURS[0])


def _arc(
    ax: Axes, middle: npt.NDArray[np.float64], arc: tuple[int, int], sign: float, colour: str
) -> None:
    """Draw the arc from a head to a word, above or below the words."""
    word, head = arc
    base, end = 0.45 * sign, middle[word]
    if head == ROOT:
        points, codes = [(end, base + ROOT_HEIGHT * sign), (end, base)], None
    else:
        begin = middle[head] + (0.08 if word > head else -0.08)
        peak = base + sign * 4.0 / 3.0 * _height(word, head)
        points = [(begin, base), (begin, peak), (end, peak), (end, base)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    ax.add_patch(
        FancyArrowPatch(
            path=Curve(points, codes),
            arrowstyle="-|>",
            mutation_scale=8,
            color=colour,
            lw=1.2,
        )
    )


def _height(word: int, head: int) -> float:
    """Return the height of an arc."""
    return ROOT_HEIGHT if head == ROOT else 0.2 + 0.35 * abs(word - head)


def _width(word: str, tag: str) -> float:
    """Return the width of a word in inches."""
    return max(WORD * len(word), 0.7 * WORD * len(tag), 0.25) + 0.15


def _time_axis(ax: Axes, seconds: npt.NDArray[np.float64]) -> None:
    """Label a logarithmic time axis."""
    positive = seconds[seconds > 0.0]
    if positive.size and positive.max() > positive.min():
        ax.set_xscale("log")
        ax.set_xlim(positive.min(), positive.max())
        few = positive.max() < 100.0 * positive.min()
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("seconds")
    ax.spines[["top", "right"]].set_visible(False)
