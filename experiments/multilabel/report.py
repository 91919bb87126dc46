"""Table 4 of the LP-SparseMAP paper, beside the printed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.multilabel.data import SETS
from experiments.multilabel.model import Loss, Regime
from experiments.multilabel.rows import DESCRIPTION
from experiments.pages import PALETTE, by, commits, picture, styled, table
from experiments.records import Record
from experiments.statistics import difference, interval, mean_or_best, span

__all__ = ["report"]

PRINTED = {"unstructured": 42.28, "hinge": 37.70, "sparsemap": 43.43}
"""Table 4, bibtex."""

STATISTICS = ("samples", "train", "test", "features", "labels", "density", "cardinality")

PRINTED_STATISTICS = {"bibtex": (7395, 4880, 2515, 1836, 159, 0.015, 2.402)}
"""Table 6."""

DECODINGS = ("rounded", "best", "regularised")
"""Decodings of structured models, as records name them."""

PAIRED = "data", "glorot", "seed"
"""Settings that a structured loss shares with the unstructured one that it is compared with."""

KEYS = "data", "loss", "regime", "glorot"
"""Settings that identify a row of the table."""


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    described = [record for record in records if record.row == DESCRIPTION]
    records = [record for record in records if record.row != DESCRIPTION]
    parts = [
        "## Multilabel classification",
        "Example F1 on test (LP-SparseMAP, Table 4): of rounded marginals, and of the best label "
        "set. *Solved* is to 1e-6, *cut* the paper's 100 iterations at step size .1. A row that "
        "did not end has its best F1 on held-out examples in brackets.",
        table_of_losses(records),
        commits(records),
        table_of_differences(records),
        *decodings(records),
        *statistics_of_data(described),
        curves(records, folder),
    ]
    return "\n\n".join(part for part in parts if part)


def table_of_losses(records: Sequence[Record]) -> str:
    """Return a row for every data set, loss and regime."""
    lines = []
    groups = by(records, lambda r: tuple(r.settings[k] for k in KEYS))
    order = {data: i for i, data in enumerate(SETS)}
    for (data, loss, regime, glorot), some in sorted(
        groups.items(), key=lambda item: (order[item[0][0]], list(Loss).index(Loss(item[0][1])))
    ):
        results = [r.result for r in some if r.complete]
        n = max(len(results), 1)
        rounded = [one["test"]["rounded"] for one in results]
        structured = loss != Loss.UNSTRUCTURED.value
        has_printed = data == "bibtex" and loss in PRINTED and not glorot
        proved = sum(one["test"]["proved"] for one in results if structured) / n
        lines.append(
            [
                data,
                named(loss, glorot),
                regime if structured else "",
                len(results),
                mean_or_best(some, "rounded"),
                span(rounded),
                mean_or_best(some, "best") if structured and results else "",
                f"{proved:.0%}" if structured and results else "",
                f"{PRINTED[loss]:.2f}" if has_printed else "",
                f"{sum(one['steps_per_second'] for one in results) / n:.2f}",
                f"{sum(one['curve'][-1]['seconds'] for one in results) / 60 / n:.1f}",
            ]
        )
    headings = ["data", "loss", "inference", "seeds", "rounded", "range", "best", "proved"]
    return table([*headings, "printed", "steps/s", "minutes"], lines)


def named(loss: str, glorot: bool) -> str:
    """Return the name of a loss and its initial weights."""
    return f"{loss}, Glorot" if glorot else loss


def table_of_differences(records: Sequence[Record]) -> str:
    """Return the differences of structured losses from the unstructured one, paired by seed."""
    lines = []
    complete = [r for r in records if r.complete]
    plain = {
        tuple(r.settings[key] for key in PAIRED): r.result["test"]["rounded"]
        for r in complete
        if r.settings["loss"] == Loss.UNSTRUCTURED.value
    }
    groups = by(complete, lambda r: tuple(r.settings[k] for k in KEYS))
    for (data, loss, regime, glorot), some in groups.items():
        own = [(r.result["test"]["rounded"], tuple(r.settings[k] for k in PAIRED)) for r in some]
        pairs = [(f1, plain[key]) for f1, key in own if key in plain]
        if loss != Loss.UNSTRUCTURED.value and pairs:
            first, second = zip(*pairs, strict=True)
            printed = PRINTED.get(loss, 0.0) - PRINTED["unstructured"]
            there = data == "bibtex" and loss in PRINTED
            lines.append(
                [data, named(loss, glorot), regime, len(pairs),
                 difference(first, second),
                 f"{printed:+.2f}" if there else ""]
            )  # fmt: skip
    headings = ["data", "loss", "inference", "seeds", "F1 above the unstructured", "printed"]
    return table(headings, lines) if lines else ""


def statistics_of_data(records: Sequence[Record]) -> list[str]:
    """Return the table of data sets, beside the printed one, and its introduction."""
    lines = []
    for record in records:
        for data, found in record.result.items():
            lines.append([data, *(number(found[name]) for name in STATISTICS)])
            if data in PRINTED_STATISTICS:
                lines.append([f"{data}, printed", *map(number, PRINTED_STATISTICS[data])])
    if not lines:
        return []
    return [
        "Data sets (LP-SparseMAP, Table 6):",
        table(["data", *STATISTICS], lines),
        commits(records),
    ]


def number(value: float) -> str:
    """Return a number as in Table 6: whole, or with three decimals."""
    return f"{value}" if isinstance(value, int) else f"{value:.3f}"


def decodings(records: Sequence[Record]) -> list[str]:
    """Return the table of decodings of structured models, and its introduction."""
    lines = []
    order = {data: i for i, data in enumerate(SETS)}
    some = [r for r in records if r.complete and "regularised" in r.result["test"]]
    for (data, loss, regime, glorot), group in sorted(
        by(some, lambda r: tuple(r.settings[k] for k in KEYS)).items(),
        key=lambda item: order[item[0][0]],
    ):
        tests = [r.result["test"] for r in group]
        f1 = [interval([test[name] for test in tests]) for name in DECODINGS]
        sizes = [
            f"{sum(test['labels'][name] for test in tests) / len(tests):.2f}"
            for name in ("gold", *DECODINGS)
        ]
        fractional = sum(test["fractional"] for test in tests) / len(tests)
        name = named(loss, glorot)
        lines.append([data, name, regime, len(tests), *f1, *sizes, f"{fractional:.2f}"])
    if not lines:
        return []
    headings = ["data", "loss", "inference", "seeds", *DECODINGS]
    headings += [f"labels: {name}" for name in ("gold", *DECODINGS)]
    return [
        "Example F1 of the decodings, the mean number of labels that each predicts, and that of "
        "labels with a fractional marginal. *Regularised* is the best label set if the score of a "
        "set includes LP-SparseMAP's regulariser, which is one half less for every label.",
        table([*headings, "fractional"], lines),
        commits(some),
    ]


def curves(records: Sequence[Record], folder: Path) -> str:
    """Return the figure of held-out F1 along the training, a panel for every data set."""
    groups = by(
        [r for r in records if r.settings["seed"] == 0 and r.result.get("curve")],
        lambda r: str(r.settings["data"]),
    )
    if not groups:
        return ""
    with styled():
        n_columns = min(3, len(groups))
        n_rows = -(-len(groups) // n_columns)
        size = (3.2 * n_columns, 2.6 * n_rows)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(n_rows, n_columns, squeeze=False).flat
        for (data, some), axes in zip(groups.items(), panels, strict=False):
            for record in some:
                curve, loss = record.result["curve"], Loss(record.settings["loss"])
                style = "--" if record.settings["regime"] == Regime.CUT.value else "-"
                axes.plot(
                    [point["steps"] for point in curve],
                    [point["dev"] for point in curve],
                    color=PALETTE[list(Loss).index(loss)],
                    linestyle=":" if record.settings["glorot"] else style,
                )
            axes.set(title=data, xlabel="steps")
        keys = [Line2D([], [], color=colour) for colour in PALETTE[: len(Loss)]]
        for empty in panels:
            empty.axis("off")
        axes.legend(keys, [loss.value for loss in Loss], frameon=False, fontsize=7)
    caption = (
        "Example F1 on held-out examples along the training of the first seed; dashed: cut at 100 "
        "iterations, dotted: Glorot's initial weights"
    )
    return picture(figure, folder, "multilabel.png", caption)
