"""The figure of the experiment: learning curves, and induced trees as arcs over the tokens."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from torch import Tensor

from valency.batches import Batch, Corpus
from valency.expressions import MIN_ARGUMENTS, OPERATORS, Expression, argument_counts
from valency.model import Structure, ValencyTagger, fixed_arcs
from valency.training import Run

COLOURS = {
    Structure.LEFT_TO_RIGHT: "#6b7280",
    Structure.TREE: "#2563a8",
    Structure.TREE_BUDGET: "#c2571a",
    Structure.GOLD: "#3f7d3a",
}
GOLD = COLOURS[Structure.GOLD]
INK, FAINT = "#1f2430", "#9aa1ad"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
MIN_WEIGHT = 0.02  # lighter arcs are left out of the drawing
MIN_NUMBER = 0.15  # and lighter ones than this have no number


def draw(runs: Sequence[Run], expressions: Sequence[Expression], path: pathlib.Path) -> None:
    """Write the figure of one run per structure to `path` (its suffix gives the format).

    The trees are those that the latent structures among `runs` induce on `expressions`, beside the
    gold ones.
    """
    latent = [run for run in runs if run.settings.structure.is_latent]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.6 + 2.5 * len(expressions) * bool(latent)), dpi=150)
        both: Any = figure.subfigures(
            2, 1, height_ratios=[3.4, max(0.2, 2.5 * len(expressions) * bool(latent))]
        )
        curves, trees = both
        for axes, measure in zip(curves.subplots(1, 2), ("accuracy", "f1"), strict=True):
            draw_curves(axes, runs, measure)
        curves.subplots_adjust(left=0.05, right=0.89, bottom=0.16, top=0.88, wspace=0.45)
        if latent:
            draw_trees(trees, latent, expressions)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_trees(figure: SubFigure, runs: Sequence[Run], expressions: Sequence[Expression]) -> None:
    """The gold tree of every expression, and the one that each run induces."""
    grid = figure.subplots(len(expressions), len(runs) + 1, squeeze=False)
    for row, expression in zip(grid, expressions, strict=True):
        batch = Corpus([expression]).batch(np.zeros(1, dtype=np.intp))
        draw_tree(row[0], expression, fixed_arcs(batch.heads, batch.valid)[0], GOLD)
        for axes, run in zip(row[1:], runs, strict=True):
            draw_induced(axes, run.model, expression, batch)
    titles = [("gold", GOLD)]
    titles += [
        (f"induced by {r.settings.structure.value}", COLOURS[r.settings.structure]) for r in runs
    ]
    for axes, (title, colour) in zip(grid[0], titles, strict=True):
        axes.set_title(title, color=colour, weight="bold")
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.06, top=0.94, wspace=0.04)
    figure.text(
        0.5,
        0.008,
        "Arcs run from head to modifier, the first token is the root; width and number: weight (no"
        " number: 1, or below .15). Below each operator: arguments predicted / true.",
        ha="center",
        color=INK,
        fontsize=8.5,
    )


def draw_curves(axes: Axes, runs: Sequence[Run], measure: str) -> None:
    """Validation `measure` ("accuracy" or "f1") of every run over its training."""
    ends: list[float] = []
    for run in sorted(runs, key=lambda run: getattr(run.curve[-1].validation, measure)):
        structure = run.settings.structure
        epochs = [point.epoch for point in run.curve]
        values = [getattr(point.validation, measure) for point in run.curve]
        axes.plot(epochs, values, color=COLOURS[structure], linewidth=2, solid_capstyle="round")
        # Labels stand at the ends of the lines, moved up where two would overlap.
        ends.append(max(values[-1], ends[-1] + 7 if ends else 0.0))
        axes.annotate(
            f"{structure.value}  {values[-1]:.1f}",
            (epochs[-1], ends[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[structure],
            annotation_clip=False,
        )
    title = {"accuracy": "Accuracy", "f1": "Macro F1"}[measure]
    axes.set_title(f"{title} on held-out expressions, %", loc="left", weight="bold")
    axes.set_xlabel("epochs")
    axes.set_ylim(0, 100)
    axes.margins(x=0.01)
    axes.grid(axis="y", color="#e4e7ec", linewidth=0.8)
    axes.set_axisbelow(True)


@torch.no_grad()
def draw_induced(axes: Axes, model: ValencyTagger, expression: Expression, batch: Batch) -> None:
    """The model's arcs, with predicted and true valencies below the operators."""
    arcs = model.arcs(batch)
    predicted = model.tag(arcs)[0].argmax(-1) + MIN_ARGUMENTS
    draw_tree(axes, expression, arcs[0], COLOURS[model.structure])
    for position, true in enumerate(argument_counts(expression)):
        if true:
            right = int(predicted[position]) == true
            axes.text(
                position,
                -0.2,
                f"{int(predicted[position])} / {true}",
                ha="center",
                va="top",
                fontsize=8,
                color=GOLD if right else "#b3261e",
            )


def draw_tree(axes: Axes, expression: Expression, weights: Tensor, colour: str) -> None:
    """Tokens in a row, arcs (length, length) above them."""
    drawn = (weights > MIN_WEIGHT).nonzero().tolist()
    reach = max((abs(m - h) for m, h in drawn), default=1)
    for modifier, head in drawn:
        draw_arc(axes, head, modifier, float(weights[modifier, head]), reach, colour)
    for position, token in enumerate(expression):
        axes.text(
            position,
            -0.06,
            token.lstrip("["),
            ha="center",
            va="top",
            fontsize=8.5,
            weight="bold" if token in OPERATORS else "normal",
        )
    axes.set_xlim(-0.8, len(expression) - 0.2)
    axes.set_ylim(-0.32, 1.18)
    axes.axis("off")


def draw_arc(axes: Axes, head: int, modifier: int, weight: float, reach: int, colour: str) -> None:
    """One arc of the given weight."""
    style: dict[str, Any] = {"color": colour, "alpha": 0.15 + 0.85 * weight}
    height = 0.12 + 0.75 * abs(head - modifier) / reach
    control = height * 4 / 3  # a cubic curve reaches three quarters of its control points
    corners = [(head, 0), (head, control), (modifier, control), (modifier, 0)]
    curve = Path([*corners], [Path.MOVETO, *[Path.CURVE4] * 3])
    axes.add_patch(PathPatch(curve, fill=False, linewidth=0.5 + 1.5 * weight, **style))
    axes.plot(modifier, 0.015, marker="v", markersize=3.5, markeredgewidth=0, **style)
    if MIN_NUMBER <= weight < 0.995:
        background = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(
            (head + modifier) / 2,
            height,
            f"{weight:.2f}".lstrip("0"),
            ha="center",
            va="center",
            fontsize=6.5,
            color=colour,
            bbox=background,
        )
