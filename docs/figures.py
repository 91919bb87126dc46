"""Draw the pictures of the README and the docs: ``python docs/figures.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from lpsmap import AtMostOne, DepTree, FactorGraph, Xor, plot
from lpsmap_core.command.cli import main

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


Tree = tuple[tuple[int, int], tuple[int, int] | None, list["Tree"]]  # item, slot, tails


def foldings(i: int, j: int) -> list[Tree]:
    """Return the derivations of the stretch from position i to before j; see the page's program."""
    if i == j:
        return [((i, j), None, [])]
    found: list[Tree] = [((i, j), None, [rest]) for rest in foldings(i + 1, j)]
    for k in range(i + 1, j):
        for inner in foldings(i + 1, k):
            found += [((i, j), (i, k), [inner, rest]) for rest in foldings(k + 1, j)]
    return found


def draw_derivation(axis: Axes, tree: Tree) -> None:
    """Draw items as boxes over their stretches, and hyperedges as lines from head to tails."""
    (i, j), slot, tails = tree
    for tail in tails:
        (a, b), _, _ = tail
        axis.plot([(i + j) / 2, (a + b) / 2], [j - i, b - a], color="C0" if slot else "0.6", lw=1.5)
        draw_derivation(axis, tail)
    box = {"boxstyle": "round,pad=0.25", "fc": "white", "ec": "C0" if slot else "0.6"}
    axis.text((i + j) / 2, j - i, f"{i}, {j}", ha="center", va="center", fontsize=8, bbox=box)
    if slot:
        words = f"pair {slot[0]}, {slot[1]}"
        axis.text((i + j) / 2 + 0.3, j - i, words, va="center", fontsize=8, color="C0")


def derivations() -> None:
    """Draw all derivations of nested pairs of three positions."""
    trees = foldings(0, 3)
    figure, axes = plt.subplots(1, len(trees), figsize=(9, 2.6), layout="constrained")
    for axis, tree in zip(axes, trees, strict=True):
        draw_derivation(axis, tree)
        axis.set_xlim(-0.4, 3.4)
        axis.set_ylim(-0.4, 3.7)
        axis.axis("off")
    figure.savefig(IMAGES / "derivations.png", dpi=130)
    plt.close(figure)


def grid(n: int, path: Path) -> None:
    """Write the grid of the page on the command line, of n x n variables."""
    rng = np.random.default_rng(0)
    at = np.arange(n * n).reshape(n, n)
    edges = [*zip(at[:, :-1].flat, at[:, 1:].flat, strict=True)]
    edges += zip(at[:-1].flat, at[1:].flat, strict=True)
    lines = ["MARKOV", str(n * n), "2 " * n * n, str(n * n + len(edges))]
    lines += [f"1 {i}" for i in range(n * n)] + [f"2 {i} {j}" for i, j in edges]
    for weight in np.exp(rng.normal(size=n * n)):
        lines += ["2", f"1 {weight:.3f}"]
    for weight in np.exp(rng.normal(scale=2.0, size=len(edges))):
        lines += ["4", f"{weight:.3f} 1 1 {weight:.3f}"]
    path.write_text("\n".join(lines))


def search() -> None:
    """Draw a search, by the command that the page shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "grid.uai")
        grid(24, path)
        options = ["--task", "map", "--solver", "lpsmap", "--trace", str(IMAGES / "search.png")]
        main(["solve", str(path), *options], standalone_mode=False)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    alignment()
    parses()
    derivations()
    search()
