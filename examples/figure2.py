"""The paper's comparison of solvers for one factor: active set and conditional gradient.

`python examples/figure2.py` reproduces Figure 2 of Niculae et al. (2018): for a tree factor of 20
nodes with random scores, the distance of the objective from its maximum and the number of trees in
the solution, against the number of iterations. Each iteration calls the MAP oracle once, the first
for the best tree.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from conditional_gradient import conditional_gradient
from lpsmap import ConvergenceWarning, DepTree, FactorGraph

FloatArray = npt.NDArray[np.float64]

VARIANTS = {"vanilla": "vanilla", "away": "away-step", "pairwise": "pairwise"}
COLOURS = {
    "vanilla": "#7f7f7f",
    "away-step": "#009e73",
    "pairwise": "#d55e00",
    "active set": "#0072b2",
}
FLOOR = 1e-14
"""Smaller distances from the maximum are rounding errors, and are drawn at this value."""


@dataclass(frozen=True)
class Course:
    """A solver's objective and number of trees after 1, 2, ... iterations."""

    objective: FloatArray
    trees: npt.NDArray[np.int64]
    solved: bool


def maximum(scores: FloatArray) -> float:
    """Return the maximal objective, by the closed form of the tree."""
    graph = FactorGraph()
    graph.add(DepTree(graph.variable_from(scores)))
    return graph.solve().objective.item()


def active_set(scores: FloatArray, iterations: int) -> Course:
    """Run the active set with increasing iteration limits."""
    graph = FactorGraph()
    tree = graph.add(DepTree(graph.variable_from(scores)))
    objective, trees = [], []
    for limit in range(1, iterations + 1):
        solution = graph.solve(max_inner_iter=limit)
        objective.append(solution.objective.item())
        trees.append(len(solution.structures(tree)[0]))
        if solution.ok:
            break
    return Course(np.array(objective), np.array(trees), solution.ok)


def all_courses(scores: FloatArray, iterations: int, tol: float) -> dict[str, Course]:
    """Run all solvers on the same scores."""
    graph = FactorGraph()
    tree = graph.add(DepTree(graph.variable_from(scores)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is intended
        courses = {"active set": active_set(scores, iterations)}
        for variant, name in VARIANTS.items():
            found = conditional_gradient(tree, variant, max_iter=iterations - 1, tol=tol)
            courses[name] = Course(found.objective, found.support_size, found.converged)
    return courses


def draw(courses: dict[str, Course], best: float) -> Figure:
    """Draw distance from the maximum and number of trees, side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for name, colour in COLOURS.items():
        course = courses[name]
        distance = np.maximum(best - course.objective, FLOOR)
        for axes, values in ((left, distance), (right, course.trees)):
            iterations = np.arange(1, len(values) + 1)
            axes.plot(iterations, values, color=colour, label=name)
            if course.solved:
                axes.plot(iterations[-1], values[-1], "o", color=colour, markersize=5)
    left.set_ylabel("distance of the objective from its maximum")
    right.set_ylabel("trees in the solution")
    right.legend(frameon=False, title="a dot: solved", alignment="left", reverse=True)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="iterations")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    right.yaxis.set_major_formatter("{x:g}")
    return figure


def summary(courses: dict[str, Course], best: float) -> str:
    """Return a table of the final state of each solver."""
    lines = [f"{'solver':<12}{'iterations':>11}{'solved':>8}{'distance':>10}{'trees':>7}"]
    for name, course in courses.items():
        distance = max(best - course.objective[-1], 0.0)
        lines.append(
            f"{name:<12}{len(course.objective):>11}{'yes' if course.solved else 'no':>8}"
            f"{distance:>10.1e}{course.trees[-1]:>7}"
        )
    return "\n".join(lines)


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.IntRange(min=2), default=20, help="Words of the sentence.")
@click.option("--seed", type=int, default=0, help="Seed of the scores.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Standard deviation of the scores.",
)
@click.option(
    "--iterations", type=click.IntRange(min=2), default=2000, help="Limit for each solver."
)
@click.option(
    "--tol",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-6,
    help="Gap at which conditional gradient stops.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("build/figure2.png"))  # fmt: skip
def main(nodes: int, seed: int, scale: float, iterations: int, tol: float, out: Path) -> None:
    """Compare the active set with conditional gradient on one tree; draw and print the results."""
    scores = scale * np.random.default_rng(seed).standard_normal((nodes, nodes))
    best, courses = maximum(scores), all_courses(scores, iterations, tol)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure = draw(courses, best)
    figure.savefig(out, dpi=130)
    plt.close(figure)
    click.echo(summary(courses, best))
    click.echo(f"drawn to {out}")


if __name__ == "__main__":
    main()
