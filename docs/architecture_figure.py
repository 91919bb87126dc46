"""Draw the path of a solve and of a gradient: ``python docs/architecture_figure.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

IMAGES = Path(__file__).parent / "images"

WIDTH, HEIGHT = 1.62, 0.8
"""Of a box."""

BOXES = {
    "scores": (0, 2, "scores", "arrays, tensors"),
    "graph": (1, 2, "FactorGraph", "graph.py"),
    "layout": (2, 2, "Layout", "layout/layout.py"),
    "loop": (3, 2, "Engine", "engine/loop.py"),
    "local": (4, 2, "LocalSolver.solve", "local/"),
    "factor": (5, 2, "Factor.solve_map", "packs, plugins"),
    "gradient": (0, 0, "gradient", "of the scores"),
    "solution": (1, 0, "Solution", "solution/solution.py"),
    "solved": (2, 0, "SolvedGraph", "engine/protocol.py"),
    "backward": (3, 0, "Jacobian", "engine/backward.py"),
    "jvp": (4, 0, "LocalSolver.jvp", "on the faces"),
}
"""Column, row, name and place of what a solve and a gradient pass."""

ARROWS = [
    ("scores", "graph", "solve", "->", ""),
    ("graph", "layout", "solve", "->", ""),
    ("layout", "loop", "solve", "->", ""),
    ("loop", "local", "solve", "<->", ""),
    ("local", "factor", "solve", "<->", ""),
    ("loop", "solved", "solve", "->", "marginals, certificates"),
    ("solved", "solution", "solve", "->", ""),
    ("local", "jvp", "box", "->", "faces"),
    ("jvp", "backward", "gradient", "<->", ""),
    ("backward", "solved", "gradient", "<->", ""),
    ("solution", "gradient", "gradient", "->", ""),
]
"""From where, to where, of what, the kind of arrow, and what passes."""

SCHEMES = {
    "architecture.svg": {"text": "#222", "box": "#888", "solve": "#1f77b4", "gradient": "#c0392b"},
    "architecture-dark.svg": {
        "text": "#ddd",
        "box": "#999",
        "solve": "#6cb6ff",
        "gradient": "#ff8a80",
    },
}
"""Colours on light and on dark pages."""


def edge(name: str, other: str) -> tuple[float, float]:
    """Return where an arrow between two boxes touches the first of them."""
    (x, y, *_), (other_x, other_y, *_) = BOXES[name], BOXES[other]
    if y == other_y:
        return 2.0 * x + (WIDTH / 2 if other_x > x else -WIDTH / 2), y
    return 2.0 * x, y + (HEIGHT / 2 if other_y > y else -HEIGHT / 2)


def draw(axis: Axes, colors: dict[str, str]) -> None:
    """Draw boxes and arrows."""
    for column, row, name, place in BOXES.values():
        x = 2.0 * column
        corner = x - WIDTH / 2, row - HEIGHT / 2
        axis.add_patch(plt.Rectangle(corner, WIDTH, HEIGHT, fill=False, ec=colors["box"]))
        axis.text(x, row + 0.14, name, ha="center", va="center", fontsize=9, color=colors["text"])
        axis.text(x, row - 0.2, place, ha="center", va="center", fontsize=7, color=colors["box"])
    for start, end, kind, style, words in ARROWS:
        begin, stop = edge(start, end), edge(end, start)
        arrow = {"arrowstyle": style, "color": colors[kind], "lw": 1.4}
        axis.annotate("", stop, begin, arrowprops=arrow)
        x, y = (begin[0] + stop[0]) / 2, (begin[1] + stop[1]) / 2
        axis.text(x + 0.25, y - 0.1, words, va="center", fontsize=7.5, color=colors[kind])
    for row, kind, words in ((2.75, "solve", "a solve"), (-0.75, "gradient", "a gradient")):
        axis.text(-WIDTH / 2, row, words, va="center", fontsize=10, color=colors[kind])


def main() -> None:
    """Write the picture for light pages and for dark ones."""
    for name, colors in SCHEMES.items():
        with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            figure, axis = plt.subplots(figsize=(10.5, 3.4), layout="constrained")
            draw(axis, colors)
            axis.set_xlim(-1.0, 11.0)
            axis.set_ylim(-1.0, 3.0)
            axis.axis("off")
            figure.savefig(IMAGES / name, transparent=True, metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
