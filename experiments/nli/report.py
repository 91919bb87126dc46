"""The tables and figures of both papers, beside the printed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.nli.model import Alignment, Architecture
from experiments.pace import table_of_pace
from experiments.pages import INK, PALETTE, by, commits, picture, styled, table
from experiments.records import Record
from experiments.statistics import difference, interval, mean_or_best, span

__all__ = ["report"]

PRINTED = {
    ("snli", "decomposable"): {
        "softmax": 84.62,
        "matching": 84.16,
        "LP-matching": 85.04,
        "LP-sequence": 83.67,
    },
    ("mnli", "decomposable"): {
        "softmax": 69.42,
        "matching": 70.36,
        "LP-matching": 70.64,
        "LP-sequence": 71.17,
    },
    ("snli", "esim"): {"softmax": 86.52, "sequence": 86.62, "matching": 86.05},
    ("mnli", "esim"): {"softmax": 76.05, "sequence": 75.54, "matching": 76.13},
}
"""Test accuracies: LP-SparseMAP, Table 3; SparseMAP, Table 2."""

PRINTED_VALIDATION = {
    ("snli", "decomposable"): {
        "softmax": 84.44,
        "matching": 84.57,
        "LP-matching": 84.70,
        "LP-sequence": 83.96,
    },
    ("mnli", "decomposable"): {
        "softmax": 70.06,
        "matching": 70.84,
        "LP-matching": 70.57,
        "LP-sequence": 71.10,
    },
}
"""Validation accuracies: LP-SparseMAP, Table 3."""

PRINTED_NONZERO = {
    ("snli", "esim"): {"softmax": 100, "sequence": 19, "matching": 15},
    ("mnli", "esim"): {"softmax": 100, "sequence": 13, "matching": 8},
}
"""Percent of the pairs of words that have weight: SparseMAP, Table 2."""

PRINTED_TRANSITION = {"snli": 1.6, "mnli": 2.5}
"""Transition scores of LP-sequence: LP-SparseMAP, section 5.2."""

MAX_PATHS = 3
"""Largest number of structures drawn over an alignment."""

CORPUS_NAMES = {"snli": "SNLI", "mnli": "MultiNLI"}


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    long = [record for record in records if record.settings.get("patience")]
    short = [record for record in records if record not in long]
    parts = [
        "## Natural language inference",
        "Test accuracy with learned embeddings, on parts of SNLI and MultiNLI (LP-SparseMAP, Table "
        "3; SparseMAP, Table 2). *Nonzero* is the share of the pairs of words that have weight. "
        "*If solved*: the same networks with alignments solved to convergence in the test. A row "
        "that did not end has its best dev accuracy in brackets.",
        table_of_alignments(short),
        commits(short),
        table_of_differences(short),
        *until_it_falls(long),
        *table_of_pace(
            records,
            lambda r: ", ".join(
                [CORPUS_NAMES[r.settings["corpus"]], r.row.split("-", 1)[1].rsplit("-", 1)[0]]
            ),
        ),
        *figures(short, folder),
    ]
    return "\n\n".join(part for part in parts if part)


Variant: TypeAlias = tuple[str, str, str, str]
"""Corpus, network, alignment and regime."""


def variants(records: Sequence[Record]) -> dict[Variant, list[Record]]:
    """Return records by variant, in the tables' order."""
    order = [list(CORPUS_NAMES), [n.value for n in Architecture], [a.value for a in Alignment]]

    def variant(record: Record) -> Variant:
        settings = record.settings
        corpus, network, alignment, regime = (
            str(settings[key]) for key in ("corpus", "network", "alignment", "regime")
        )
        return corpus, network, alignment, regime

    def place(record: Record) -> list[int]:
        return [names.index(name) for names, name in zip(order, variant(record), strict=False)]

    return by(sorted(records, key=place), variant)


def table_of_alignments(records: Sequence[Record]) -> str:
    """Return a row for every variant, beside the printed one."""
    lines = []
    for (corpus, network, alignment, regime), some in variants(records).items():
        results = [r.result for r in some if r.complete]
        n = max(len(results), 1)
        tests = [one["test"] for one in results]
        accuracies = [test["accuracy"] for test in tests]
        ends = [one["solved"] for one in results if "solved" in one]
        scores = [test["transition"] for test in tests if "transition" in test]
        printed = PRINTED_NONZERO.get((corpus, network), {}).get(alignment)
        validation = PRINTED_VALIDATION.get((corpus, network), {}).get(alignment)
        lines.append(
            [
                CORPUS_NAMES[corpus],
                network,
                alignment,
                "" if alignment == Alignment.SOFTMAX.value else regime,
                len(results),
                mean_or_best(some, "accuracy"),
                span(accuracies),
                f"{PRINTED[corpus, network][alignment]:.2f}",
                interval([one["dev"] for one in results]) if results else "",
                f"{validation:.2f}" if validation else "",
                f"{interval([test['nonzero'] for test in tests])} %" if tests else "",
                "" if printed is None else f"{printed} %",
                f"{interval([end['accuracy'] for end in ends])}" if ends else "",
                f"{interval([end['nonzero'] for end in ends])} %" if ends else "",
                f"{interval(scores)} ({PRINTED_TRANSITION[corpus]})" if scores else "",
                f"{sum(one['steps_per_second'] for one in results) / n:.2f}",
                f"{sum(one['curve'][-1]['seconds'] for one in results) / 60 / n:.1f}",
            ]
        )
    headings = ["corpus", "network", "alignment", "inference", "seeds", "accuracy", "range"]
    headings += ["printed", "best dev accuracy", "printed", "nonzero", "printed"]
    headings += ["accuracy if solved", "nonzero if solved", "transition (printed)"]
    headings += ["steps/s", "minutes"]
    return table(headings, lines)


def until_it_falls(records: Sequence[Record]) -> list[str]:
    """Return the tables of rows that train until dev accuracy falls, and their introduction."""
    if not records:
        return []
    epochs = [best_epoch(record) for record in records if record.complete]
    last = f" The best epochs are {min(epochs)} to {max(epochs)}." if epochs else ""
    return [
        "Trained until dev accuracy has had no new best for "
        f"{records[0].settings['patience']} epochs, where the other rows end after "
        f"20.{last}",
        table_of_alignments(records),
        commits(records),
        table_of_differences(records),
    ]


def best_epoch(record: Record) -> int:
    """Return the epoch of the model that is tested."""
    return int(max(record.result["curve"], key=lambda point: point["dev"])["epoch"])


def table_of_differences(records: Sequence[Record]) -> str:
    """Return the differences of alignments from softmax, paired by seed."""
    found = variants([record for record in records if record.complete])
    plain = {
        (corpus, network, r.settings["seed"]): r.result["test"]["accuracy"]
        for (corpus, network, alignment, _), some in found.items()
        for r in some
        if alignment == Alignment.SOFTMAX.value
    }
    lines = []
    for (corpus, network, alignment, regime), some in found.items():
        pairs = [
            (r.result["test"]["accuracy"], plain[corpus, network, r.settings["seed"]])
            for r in some
            if (corpus, network, r.settings["seed"]) in plain
        ]
        if alignment != Alignment.SOFTMAX.value and pairs:
            above = difference(*zip(*pairs, strict=True))
            printed = PRINTED[corpus, network]
            gain = printed[alignment] - printed[Alignment.SOFTMAX.value]
            names = [CORPUS_NAMES[corpus], network, alignment, regime]
            lines.append([*names, len(pairs), above, f"{gain:+.2f}"])
    headings = ["corpus", "network", "alignment", "inference", "seeds", "above softmax", "printed"]
    return table(headings, lines) if lines else ""


def figures(records: Sequence[Record], folder: Path) -> list[str]:
    """Return the figures of both corpora: sparsity along the training, and alignments."""
    found = []
    first = [record for record in records if record.settings["seed"] == 0]
    for corpus, some in by(first, lambda r: str(r.settings["corpus"])).items():
        groups = {key[1:]: group[0].result for key, group in variants(some).items()}
        curves = {key: one["curve"] for key, one in groups.items() if one.get("curve")}
        name = CORPUS_NAMES[corpus]
        if curves:
            caption = f"{name}: pairs of words with weight along the training, over dev pairs"
            found.append(picture(draw_sparsity(curves), folder, f"nli-{corpus}.png", caption))
        drawn = {key: one["alignments"] for key, one in groups.items() if one.get("alignments")}
        if drawn:
            caption = (
                f"LP-SparseMAP, Figure 4, and SparseMAP, Figure 5, on {name}: alignments of dev "
                "pairs, premises from top to bottom. White is no weight. The upper half of a cell "
                "is the attention of the premise's word, the lower half that of the hypothesis's "
                "word. Where records have structures, the likeliest sequences of both directions "
                "are lines over them, and the likeliest matchings circles; without structures, "
                "cells of at least half a percent have a border"
            )
            picture_name = f"nli-{corpus}-alignments.png"
            found.append(picture(draw_alignments(drawn), folder, picture_name, caption))
    return found


def words_of(variant: tuple[str, ...]) -> str:
    """Return the label of a variant in a figure."""
    network, alignment, regime = variant
    is_plain = alignment == Alignment.SOFTMAX.value or network == Architecture.ESIM.value
    return f"{network}\n{alignment}" + ("" if is_plain else f", {regime}")


def draw_sparsity(curves: dict[Any, Any]) -> Figure:
    """Draw shares of pairs with weight against epochs, a panel for each network."""
    networks = [n.value for n in Architecture if any(key[0] == n.value for key in curves)]
    with styled():
        figure = Figure(figsize=(4.5 * len(networks), 3))
        panels = figure.subplots(1, len(networks), squeeze=False)[0]
        for axes, network in zip(panels, networks, strict=True):
            for key, curve in curves.items():
                if key[0] == network:
                    axes.plot(
                        [point["epoch"] for point in curve],
                        [point["nonzero"] for point in curve],
                        color=PALETTE[list(Alignment).index(Alignment(key[1]))],
                        linestyle="--" if key[1].startswith("LP") and key[2] == "solved" else "-",
                        label=words_of(key).split("\n")[1],
                    )
            axes.axhline(20, color="#bbbbbb", linewidth=0.8)
            axes.set(title=network, xlabel="epoch", ylabel="% nonzero", ylim=(0, 103))
            axes.legend(frameon=False, fontsize=7, loc=(0.58, 0.45))
    return figure


def draw_alignments(drawn: dict[Any, Any]) -> Figure:
    """Draw a line of alignments for every pair, a column for every variant."""
    pairs = next(iter(drawn.values()))
    n = len(drawn)
    with styled():
        figure = Figure(figsize=(2.2 * n + 1.5, 2.4 * len(pairs)), layout="constrained")
        grid = figure.subplots(len(pairs), n, squeeze=False)
        for j, (key, alignments) in enumerate(drawn.items()):
            for i, alignment in enumerate(alignments):
                draw_alignment(grid[i, j], alignment, premise=j == 0)
            grid[0, j].set_title(words_of(key), fontsize=8)
    return figure


def draw_alignment(axes: Axes, alignment: dict[str, Any], *, premise: bool) -> None:
    """Draw the weights of one pair, two in each cell: from the premise, from the hypothesis."""
    rows = np.array([line.split() for line in alignment["rows"]], dtype=float)
    other = alignment.get("columns")
    columns = rows if other is None else np.array([x.split() for x in other], dtype=float)
    m, n = rows.shape
    both = np.stack([rows, columns], axis=1).reshape(2 * m, n)
    axes.imshow(both, cmap="Blues", vmin=0, vmax=100, aspect="auto", extent=(0, n, m, 0))
    axes.set_xticks(np.arange(n) + 0.5, alignment["hypothesis"].split(), rotation=60, fontsize=6)
    axes.set_yticks(np.arange(m) + 0.5, alignment["premise"].split() if premise else [""] * m)
    axes.tick_params(length=0, labelsize=6)
    for k in range(1, m):
        axes.axhline(k, color="white", linewidth=0.6)
    structures = alignment.get("structures", [])
    if len(structures) == 2:
        draw_paths(axes, structures)
    elif structures:
        draw_matchings(axes, structures[0])
    else:
        for i, j in np.argwhere(np.maximum(rows, columns) > 0):
            border = Rectangle((j, i), 1, 1, fill=False, edgecolor=INK, linewidth=0.4, zorder=3)
            axes.add_patch(border)


def draw_paths(axes: Axes, directions: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Draw the sequences of both directions as paths through the halves of the cells."""
    for axis, (paths, colour) in enumerate(zip(directions, PALETTE[1:3], strict=True)):
        for path in paths[:MAX_PATHS]:
            pairs = np.array(sorted(path["pairs"], key=lambda pair: pair[axis]), dtype=float)
            places = pairs[:, ::-1] + [0.5, 0.25 + 0.5 * axis]
            axes.plot(*places.T, color=colour, linewidth=0.4 + 1.6 * path["p"], alpha=0.9)


def draw_matchings(axes: Axes, matchings: Sequence[dict[str, Any]]) -> None:
    """Draw the likeliest matchings as circles of different sizes, as thick as their weights."""
    for k, matching in enumerate(matchings[:MAX_PATHS]):
        pairs = np.array(matching["pairs"], dtype=float)
        axes.scatter(
            pairs[:, 1] + 0.5, pairs[:, 0] + 0.5, s=50 - 15 * k, facecolor="none",
            edgecolor=PALETTE[1 + k], linewidth=0.4 + 1.6 * matching["p"],
        )  # fmt: skip
