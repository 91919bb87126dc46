"""The page of estimators: their table and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from experiments.estimators.settings import TASKS
from experiments.estimators.variants import VARIANTS
from experiments.pages import PALETTE, Page, by, commits, picture, styled, table
from experiments.records import Record
from experiments.statistics import interval

__all__ = ["PAGE", "report"]

PAGE = Page(
    "estimators",
    "Estimators of latent structures",
    "The estimators of `lpsmap_torch.estimators` on two tasks, with the same networks, data and "
    "settings. These are not results of a paper.",
)

TITLES = {"trees": "ListOps", "rationales": "SNLI"}

Groups: TypeAlias = dict[tuple[str, str], list[Record]]
"""The records of every task and variant, by seed."""

LEGEND = """\
- **ListOps**: the number of arguments of every operator in an expression of at most 40 tokens, from
  the number of its modifiers in a latent tree (`LatentTree`).
- **SNLI**: the class of a pair from at most three words of its hypothesis (`Rationale`). The
  network does not see the premise.
- **accuracy**: on test data, with the values that one would deploy. Estimators that train with
  marginals deploy the same marginals, all others the best structure.
- **best**: the accuracy with the best structure.
- **nonzero**: percent of the arcs or words with a value above zero in training.
- **ms**: median milliseconds of processor time of a training step on one core, measured in turns in
  one process."""


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    timed = [r for r in records if r.row == "timing"]
    runs = [r for r in records if r.row != "timing"]
    groups = by(runs, lambda r: (str(r.settings["task"]), str(r.settings["variant"]["name"])))
    milliseconds = timed[0].result["milliseconds"] if timed and timed[0].complete else {}
    parts = [
        "## All estimators",
        LEGEND,
        table_of(groups, milliseconds),
        commits(records),
        structures(groups),
        settings_of(runs),
        curves(groups, folder),
    ]
    return "\n\n".join(part for part in parts if part)


def table_of(groups: Groups, milliseconds: dict[str, dict[str, float]]) -> str:
    """Return a row for every variant; a run that did not end has its best dev accuracy in brackets.

    Parameters
    ----------
    groups
        The records.
    milliseconds
        Times of steps by task and variant.
    """
    measures = ("accuracy", "best", "nonzero")
    lines = []
    for name in names_of(groups):
        line, seeds = [name], []
        for task in TASKS:
            some = groups.get((task, name), [])
            tests = [r.result["test"] for r in some if r.complete]
            known = [p["dev"] for r in some for p in r.result.get("curve", [])]
            cells = [str(interval([test[m] for test in tests])) for m in measures if tests]
            line += cells or [f"({max(known):.2f})" if known else "–", "–", "–"]
            time = milliseconds.get(task, {}).get(name)
            line.append("–" if time is None else f"{time:.1f}")
            seeds.append(str(len(tests)))
        lines.append([*line, " / ".join(seeds)])
    columns = [f"{TITLES[task]} {m}" for task in TASKS for m in (*measures, "ms")]
    return table(["estimator", *columns, "seeds"], lines)


def names_of(groups: Groups) -> list[str]:
    """Return the names of variants with records, in the table's order."""
    found = {name for _, name in groups}
    return [variant.name for variant in VARIANTS if variant.name in found]


def structures(groups: Groups) -> str:
    """Return the mean numbers of structures with weight, of the sparse estimators."""
    found = []
    for task in TASKS:
        for name in names_of(groups):
            tests = [r.result["test"] for r in groups.get((task, name), []) if r.complete]
            numbers = [test["structures"] for test in tests if test["structures"]]
            if name.startswith("sparsemap") and numbers:
                found.append(f"{TITLES[task]}, {name}: {interval(numbers)}")
    return f"Structures with weight in an instance, by mean: {'; '.join(found)}." if found else ""


def settings_of(records: Sequence[Record]) -> str:
    """Return the settings that all variants share."""
    shown = []
    for task, some in by(records, lambda r: str(r.settings["task"])).items():
        one = some[0].settings
        shown.append(
            f"{TITLES[task]}: {one['steps']} steps of {one['batch_size']} instances, learning rate "
            f"{one['learning_rate']:g}, {one['score_decay']:g} as the weight of the mean square of "
            "the scores in the loss"
        )
    return f"{'. '.join(shown)}." if shown else ""


def curves(groups: Groups, folder: Path) -> str:
    """Return the figure of dev accuracies along the training, means over seeds."""
    names = names_of(groups)
    if not names:
        return ""
    with styled():
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, task in zip(figure.subplots(1, len(TASKS)), TASKS, strict=True):
            for i, name in enumerate(names):
                every = [r.result.get("curve", []) for r in groups.get((task, name), [])]
                n = min(map(len, every), default=0)
                if n:
                    axes.plot(
                        [point["steps"] for point in every[0][:n]],
                        np.mean([[point["dev"] for point in one[:n]] for one in every], axis=0),
                        color=PALETTE[i % len(PALETTE)],
                        linestyle="-" if i < len(PALETTE) else "--",
                        label=name,
                    )
            axes.set(title=TITLES[task], xlabel="steps", ylabel="dev accuracy")
        handles = {str(line.get_label()): line for axes in figure.axes for line in axes.lines}
        figure.legend(
            handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=7
        )
    return picture(figure, folder, "estimators.png", "Dev accuracy, means over seeds")
