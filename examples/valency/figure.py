"""The figure of the experiment: learning curves, and induced trees as arcs over the tokens."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from valency.batches import Corpus
from valency.expressions import MIN_ARGUMENTS, Expression, argument_counts
from valency.model import Structure, ValencyTagger
from valency.training import Run

COLOURS = {
    Structure.LEFT_TO_RIGHT: "#6b7280",
    Structure.TREE: "#2563a8",
    Structure.TREE_BUDGET: "#c2571a",
    Structure.GOLD: "#3f7d3a",
}
INK, FAINT = "#1f2430", "#9aa1ad"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
SMALLEST_WEIGHT = 0.02  # lighter arcs are left out of the drawing


def draw(runs: Sequence[Run], expressions: Sequence[Expression], path: pathlib.Path) -> None:
    """Write the figure of one run per structure to `path` (its suffix gives the format).

    The trees are those that the latent structures among `runs` induce on `expressions`.
    """
    latent = [run for run in runs if run.settings.structure.is_latent]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.6 + 2.5 * len(expressions) * bool(latent)), dpi=150)
        curves, trees = figure.subfigures(
            2, 1, height_ratios=[3.4, max(0.2, 2.5 * len(expressions) * bool(latent))]
        )
        for axes, measure in zip(curves.subplots(1, 2), ("accuracy", "f1"), strict=True):
            draw_curves(axes, runs, measure)
        curves.subplots_adjust(left=0.05, right=0.89, bottom=0.16, top=0.88, wspace=0.45)
        if latent:
            grid = trees.subplots(len(expressions), len(latent), squeeze=False)
            for row, expression in zip(grid, expressions, strict=True):
                for axes, run in zip(row, latent, strict=True):
                    draw_tree(axes, run.model, expression)
            for axes, run in zip(grid[0], latent, strict=True):
                axes.set_title(
                    f"induced by {run.settings.structure.value}",
                    color=COLOURS[run.settings.structure],
                    weight="bold",
                )
            trees.subplots_adjust(left=0.01, right=0.99, bottom=0.06, top=0.94, wspace=0.04)
            trees.text(
                0.5,
                0.008,
                "Arcs run from head to modifier, vertical ones from the root; width and number:"
                " weight (no number: 1). Below each operator: arguments predicted / true.",
                ha="center",
                color=INK,
                fontsize=8.5,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


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
def draw_tree(axes: Axes, model: ValencyTagger, expression: Expression) -> None:
    """Tokens in a row, the model's arcs above them, predicted and true valencies below."""
    batch = Corpus([expression]).batch(torch.zeros(1, dtype=torch.int64).numpy())
    arcs = model.arcs(batch)
    predicted = model.tag(arcs)[0].argmax(-1) + MIN_ARGUMENTS
    weights = arcs[0]
    colour = COLOURS[model.structure]
    reach = max((abs(m - h) for m, h in (weights > SMALLEST_WEIGHT).nonzero().tolist()), default=1)
    for modifier, head in (weights > SMALLEST_WEIGHT).nonzero().tolist():
        draw_arc(axes, head, modifier, float(weights[modifier, head]), reach, colour)
    for position, (token, true) in enumerate(
        zip(expression, argument_counts(expression), strict=True)
    ):
        axes.text(
            position,
            -0.06,
            token.lstrip("["),
            ha="center",
            va="top",
            fontsize=8.5,
            weight="bold" if true else "normal",
        )
        if true:
            right = int(predicted[position]) == true
            axes.text(
                position,
                -0.2,
                f"{int(predicted[position])} / {true}",
                ha="center",
                va="top",
                fontsize=8,
                color="#3f7d3a" if right else "#b3261e",
            )
    axes.set_xlim(-0.8, len(expression) - 0.2)
    axes.set_ylim(-0.32, 1.18)
    axes.axis("off")


def draw_arc(axes: Axes, head: int, modifier: int, weight: float, reach: int, colour: str) -> None:
    """One arc of the given weight; from the root if head and modifier are the same token."""
    style = {"color": colour, "alpha": 0.15 + 0.85 * weight}
    if head == modifier:
        apex = (modifier, 0.93)
        axes.plot([modifier, modifier], [0, 1.1], linewidth=0.5 + 1.5 * weight, **style)
    else:
        height = 0.12 + 0.75 * abs(head - modifier) / reach
        apex = ((head + modifier) / 2, height)
        control = height * 4 / 3  # a cubic curve reaches three quarters of its control points
        corners = [(head, 0), (head, control), (modifier, control), (modifier, 0)]
        curve = Path([*corners], [Path.MOVETO, *[Path.CURVE4] * 3])
        axes.add_patch(PathPatch(curve, fill=False, linewidth=0.5 + 1.5 * weight, **style))
    axes.plot(modifier, 0.015, marker="v", markersize=3.5, markeredgewidth=0, **style)
    if weight < 0.995:
        background = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(
            *apex,
            f"{weight:.2f}".lstrip("0"),
            ha="center",
            va="center",
            fontsize=6.5,
            color=colour,
            bbox=background,
        )
