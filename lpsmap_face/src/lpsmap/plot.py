"""Plots of structures: trees over a sentence, tag lattices, alignments.

Needs matplotlib: ``pip install "lpsmap[plot]"``. Every function draws into the given axes, or into
a new figure, and returns the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Distribution, Structure
from lpsmap_core.api import FloatArray

try:
    import matplotlib.pyplot as plt
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path
except ImportError as error:
    raise ImportError(
        'lpsmap.plot needs matplotlib; install it with: pip install "lpsmap[plot]"'
    ) from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["alignment", "arcs", "lattice"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that most colour-blind readers can distinguish (Okabe & Ito 2008)."""

SHARED = "#404040"
"""The colour of parts common to all structures."""


def arcs(
    distribution: Distribution,
    words: Sequence[str] | None = None,
    ax: Axes | None = None,
    most: int = len(COLOURS),
) -> Axes:
    """Draw the trees of a distribution over one sentence; the width of an arc is its probability.

    Arcs in all trees are dark; the others have the colour of the most likely tree that contains
    them, and are labelled with their probability unless it is that of this tree.

    Parameters
    ----------
    distribution
        The distribution of a factor whose structures decode to ``heads``, such as ``DepTree``.
    words
        The words; their positions by default.
    ax
        The axes to draw into; None for a new figure.
    most
        The maximum number of trees in the legend.

    Raises
    ------
    ValueError
        If the structures have no heads, or the number of words differs from that of heads.
    """
    trees = _decoded(distribution, "heads", "arcs", "a DepTree")
    n = len(trees[0])
    words = _labels(words, n, "words")
    gap = max(0.6, 0.12 * max(map(len, words)))  # inches
    ax = _axes(ax, (max(4.0, gap * n + 1.0), 3.0))
    owner: dict[tuple[int, int], int] = {}
    weight: dict[tuple[int, int], float] = {}
    for k, (heads, structure) in enumerate(zip(trees, distribution, strict=True)):
        for arc in enumerate(heads):
            owner.setdefault(arc, k)
            weight[arc] = weight.get(arc, 0.0) + structure.probability
    height = max(1.0, max(abs(h - m) for m, h in weight if h >= 0) if n > 1 else 1.0)
    for (word, head), p in sorted(weight.items(), key=lambda item: item[1]):
        colour = SHARED if p > 1 - 1e-9 else COLOURS[owner[word, head] % len(COLOURS)]
        _arc(ax, word, head, height, colour, p)
    for i, text in enumerate(words):
        ax.text(i, -0.12 * height, text, ha="center", va="top", fontsize=11)
    for k, structure in enumerate(list(distribution)[:most]):
        ax.plot([], [], color=COLOURS[k % len(COLOURS)], label=f"{structure.probability:.2f}", lw=2)
    if len(distribution) > 1:
        ax.legend(title="trees", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.set_xlim(-0.6, n - 0.4)
    ax.set_ylim(-0.4 * height, 1.35 * height)
    ax.axis("off")
    return ax


def lattice(
    distribution: Distribution,
    tags: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the sequences of a distribution as paths through the lattice of tags.

    The size of nodes and steps is their probability.

    Parameters
    ----------
    distribution
        The distribution of a factor whose structures decode to ``tags``, such as ``Sequence``.
    tags
        Names of the states; their indices by default.
    words
        The words at the positions; their indices by default.
    ax
        The axes to draw into; None for a new figure.

    Raises
    ------
    ValueError
        If the structures have no tags, or the number of labels does not match.
    """
    paths = _decoded(distribution, "tags", "lattice", "a Sequence")
    marginals = _marginals(distribution)
    length, n_states = marginals.shape
    tags, words = _labels(tags, n_states, "tags"), _labels(words, length, "words")
    ax = _axes(ax, (max(4.0, 0.9 * length), max(2.0, 0.6 * n_states)))
    step: dict[tuple[int, int, int], float] = {}
    owner: dict[tuple[int, int, int], int] = {}
    for k, (path, structure) in enumerate(zip(paths, distribution, strict=True)):
        for t in range(length - 1):
            key = (t, path[t], path[t + 1])
            owner.setdefault(key, k)
            step[key] = step.get(key, 0.0) + structure.probability
    for (t, i, j), p in step.items():
        colour = SHARED if p > 1 - 1e-9 else COLOURS[owner[t, i, j] % len(COLOURS)]
        ax.plot([t, t + 1], [i, j], color=colour, lw=0.8 + 5 * p, solid_capstyle="round", zorder=1)
    place, state = np.meshgrid(range(length), range(n_states), indexing="ij")
    ax.scatter(place, state, s=14, color="0.85", zorder=2)
    used = marginals > 0
    ax.scatter(
        place[used], state[used], s=14 + 300 * marginals[used], color="white", ec="black", zorder=3
    )
    for i, j in np.argwhere(used & (marginals < 1 - 1e-9)):
        ax.annotate(
            _percent(marginals[i, j]), (i, j), (0, -13), textcoords="offset points",
            ha="center", va="center", fontsize=8, zorder=4,
        )  # fmt: skip
    ax.set_xticks(range(length), words)
    ax.set_yticks(range(n_states), tags)
    ax.set_xlim(-0.5, length - 0.5)
    ax.set_ylim(n_states - 0.4, -0.6)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def alignment(
    values: Distribution | npt.ArrayLike,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    ax: Axes | None = None,
    most: int = 3,
) -> Axes:
    """Draw an alignment as a heat map, with the most likely structures outlined.

    Parameters
    ----------
    values
        (m, n) marginals; or the distribution of a factor over m x n variables, whose structures are
        outlined on its marginals.
    rows, columns
        Labels; none by default.
    ax
        The axes to draw into; None for a new figure.
    most
        The number of outlined structures.

    Raises
    ------
    ValueError
        If there are not two axes, or the number of labels does not match.
    """
    structures: list[Structure] = list(values)[:most] if isinstance(values, Distribution) else []
    marginals = _marginals(values) if isinstance(values, Distribution) else np.asarray(values)
    if marginals.ndim != 2:
        raise ValueError(
            f"alignment: values has shape {marginals.shape}; expected two axes. Pass one alignment "
            "of a batch."
        )
    m, n = marginals.shape
    ax = _axes(ax, (max(3.0, 0.45 * n), max(2.0, 0.45 * m)))
    ax.imshow(marginals, cmap="Greys", vmin=0.0, vmax=1.6, aspect="equal")
    for i, j in np.argwhere(marginals > 0.005):
        ax.text(j, i, _percent(marginals[i, j]), ha="center", va="center", fontsize=7)
    for k, structure in enumerate(structures):
        inset = 0.09 * k
        for i, j in np.argwhere(structure.variables > 0.5):
            corner, side = (j - 0.46 + inset, i - 0.46 + inset), 0.92 - 2 * inset
            ax.add_patch(Rectangle(corner, side, side, fill=False, ec=COLOURS[k], lw=1.6))
        ax.plot([], [], color=COLOURS[k], label=f"{structure.probability:.2f}", lw=2)
    if structures:
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.set_xticks(*_ticks(columns, n, "columns"), rotation=0 if columns is None else 90)
    ax.set_yticks(*_ticks(rows, m, "rows"))
    ax.tick_params(length=0, axis="both")
    return ax


# -------------------------------------------------------------------- helpers


def _arc(ax: Axes, word: int, head: int, height: float, colour: str, p: float) -> None:
    """Draw one arc with its arrow head and, if it is not certain, its probability."""
    if head < 0:
        points: list[tuple[float, float]] = [(word, 1.2 * height), (word, 0.0)]
        codes = [Path.MOVETO, Path.LINETO]
        place = (word + 0.08, 1.2 * height)
    else:
        begin = head + (0.12 if word > head else -0.12)
        top = 4 / 3 * abs(word - head) * (0.9 if height > 1 else 0.7)
        points = [(begin, 0.0), (begin, top), (word, top), (word, 0.0)]
        codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        place = ((begin + word) / 2, 0.75 * top)
    style: dict[str, Any] = {"lw": 0.8 + 2.4 * p, "alpha": 0.35 + 0.65 * p, "color": colour}
    ax.add_patch(PathPatch(Path(points, codes), fill=False, capstyle="butt", **style))
    ax.plot(word, 0.0, marker="v", ms=6, color=colour, alpha=style["alpha"], clip_on=False)
    if p < 1 - 1e-9:
        box = {"fc": "white", "ec": "none", "pad": 0.8}
        ax.text(*place, _percent(p), ha="left" if head < 0 else "center", va="center",
                fontsize=8, color=colour, bbox=box)  # fmt: skip


def _marginals(distribution: Distribution) -> FloatArray:
    """Return the expected variables of the structures."""
    return sum(s.probability * s.variables for s in distribution) + np.zeros(())


def _decoded(distribution: Distribution, name: str, function: str, example: str) -> list[Any]:
    found = [structure.decoded.get(name) for structure in distribution]
    if not found or any(item is None for item in found):
        raise ValueError(
            f"{function}: got {str(distribution).splitlines()[0]!r}; expected structures that "
            f"decode to {name!r}, such as those of {example}: graph.structures(factor)[0]."
        )
    return found


def _labels(labels: Sequence[str] | None, n: int, name: str) -> list[str]:
    labels = [str(i) for i in range(n)] if labels is None else list(labels)
    if len(labels) != n:
        raise ValueError(f"{name}: got {len(labels)}; expected {n} labels.")
    return labels


def _ticks(labels: Sequence[str] | None, n: int, name: str) -> tuple[list[int], list[str]]:
    return ([], []) if labels is None else (list(range(n)), _labels(labels, n, name))


def _percent(p: float) -> str:
    return f"{p:.2f}".lstrip("0")


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
