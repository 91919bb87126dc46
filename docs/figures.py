"""Draw the pictures of the README and the docs: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from lpsmap import AtMostOne, DepTree, FactorGraph, Xor
from lpsmap_core import plot

IMAGES = Path(__file__).parent / "images"


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise every row by itself."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def alignment() -> None:
    """Draw the same scores normalised row by row, and as a joint sparse alignment."""
    rng = np.random.default_rng(7)
    m, n = 8, 11
    place = np.abs(np.arange(n)[None, :] - np.linspace(1, n - 2, m)[:, None])
    scores = 1.4 * rng.standard_normal((m, n)) - 0.35 * place
    scores[:, 4] += 1.5  # a word that every row would like
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.solve()
    panels = {
        "scores": scores,
        "softmax of every row": softmax(scores),
        "LP-SparseMAP: rows Xor, columns AtMostOne": u.value,
    }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.1), layout="constrained")
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        is_scores = title == "scores"
        axis.imshow(values, cmap="Greys" if is_scores else "Blues", vmin=None if is_scores else 0)
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        if is_scores:
            continue
        for (i, j), value in np.ndenumerate(values):
            if value > 0.005:
                shade = "white" if value > 0.6 else "black"
                text = f"{value:.2f}".lstrip("0")
                axis.text(j, i, text, ha="center", va="center", fontsize=6.5, color=shade)
    figure.savefig(IMAGES / "alignment.png", dpi=130)
    plt.close(figure)


def parses() -> None:
    """Draw the three parses of the page on structures."""
    words = ["She", "saw", "the", "man", "with", "a", "telescope"]
    scores = np.zeros((7, 7))
    scores[[0, 1, 2, 3, 5, 6], [1, 1, 3, 1, 6, 4]] = 2.0
    scores[4, [1, 3, 0]] = 1.05, 0.82, 0.63
    graph = FactorGraph()
    tree = graph.add(DepTree(graph.variable_from(scores), single_root=True))
    graph.solve()
    figure = plot.arcs(graph.structures(tree)[0], words).figure
    figure.savefig(IMAGES / "parses.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    alignment()
    parses()
