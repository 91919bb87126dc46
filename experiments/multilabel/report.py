"""Table 4 of the LP-SparseMAP paper, beside the printed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.multilabel.data import SETS
from experiments.multilabel.model import Loss
from experiments.pages import PALETTE, by, picture, styled, table
from experiments.records import Record
from experiments.statistics import difference, interval

__all__ = ["report"]

PRINTED = {"unstructured": 42.28, "hinge": 37.70, "sparsemap": 43.43}
"""Table 4, bibtex."""


KEYS = "data", "loss", "regime", "glorot"
"""Settings that identify a row of the table."""


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    parts = [
        "## Multilabel classification",
        "Example F1 on test (LP-SparseMAP, Table 4): of rounded marginals, and of the best label "
        "set. *Solved* is to 1e-6, *cut* the paper's 100 iterations at step size .1. A row that "
        "did not end has its best F1 on held-out examples in brackets.",
        table_of_losses(records),
        table_of_differences(records),
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
        structured = loss != Loss.UNSTRUCTURED.value
        has_printed = data == "bibtex" and loss in PRINTED and not glorot
        proved = sum(one["test"]["proved"] for one in results if structured) / n
        lines.append(
            [
                data,
                f"{loss}, Glorot" if glorot else loss,
                regime if structured else "",
                len(results),
                shown(some, "rounded"),
                shown(some, "best") if structured and results else "",
                f"{proved:.0%}" if structured and results else "",
                f"{PRINTED[loss]:.2f}" if has_printed else "",
                f"{sum(one['steps_per_second'] for one in results) / n:.2f}",
                f"{sum(one['curve'][-1]['seconds'] for one in results) / 60 / n:.1f}",
            ]
        )
    headings = ["data", "loss", "inference", "seeds", "rounded", "best", "proved", "printed"]
    return table([*headings, "steps/s", "minutes"], lines)


def shown(records: Sequence[Record], decoding: str) -> str:
    """Return the mean test F1 of complete runs, or in brackets the results of incomplete ones."""
    complete = [r.result["test"][decoding] for r in records if r.complete]
    if complete:
        return str(interval(complete))
    known = [point["dev"] for r in records for point in r.result.get("curve", [])]
    return f"({max(known):.2f})" if known else "–"


def table_of_differences(records: Sequence[Record]) -> str:
    """Return the differences of structured losses from the unstructured one, paired by seed."""
    lines = []
    complete = [r for r in records if r.complete]
    plain = {
        (r.settings["data"], r.settings["seed"]): r.result["test"]["rounded"]
        for r in complete
        if r.settings["loss"] == Loss.UNSTRUCTURED.value and not r.settings["glorot"]
    }
    groups = by(complete, lambda r: tuple(r.settings[k] for k in KEYS))
    for (data, loss, regime, _), some in groups.items():
        pairs = [
            (r.result["test"]["rounded"], plain[data, r.settings["seed"]])
            for r in some
            if (data, r.settings["seed"]) in plain
        ]
        if loss != Loss.UNSTRUCTURED.value and pairs:
            first, second = zip(*pairs, strict=True)
            printed = PRINTED.get(loss, 0.0) - PRINTED["unstructured"]
            there = data == "bibtex" and loss in PRINTED
            lines.append(
                [data, loss, regime, len(pairs), difference(first, second),
                 f"{printed:+.2f}" if there else ""]
            )  # fmt: skip
    headings = ["data", "loss", "inference", "seeds", "F1 above the unstructured", "printed"]
    return table(headings, lines) if lines else ""


def curves(records: Sequence[Record], folder: Path) -> str:
    """Return the figure of held-out F1 along the training, a panel for every data set."""
    groups = by(
        [r for r in records if r.settings["seed"] == 0 and r.result.get("curve")],
        lambda r: str(r.settings["data"]),
    )
    if not groups:
        return ""
    with styled():
        figure = Figure(figsize=(3.2 * len(groups), 2.6))
        for axes, (data, some) in zip(
            figure.subplots(1, len(groups), squeeze=False)[0], groups.items(), strict=True
        ):
            for record in some:
                curve, loss = record.result["curve"], Loss(record.settings["loss"])
                is_other = record.settings["regime"] == "cut" or record.settings["glorot"]
                axes.plot(
                    [point["epoch"] for point in curve],
                    [point["dev"] for point in curve],
                    color=PALETTE[list(Loss).index(loss)],
                    linestyle="--" if is_other else "-",
                )
            axes.set(title=data, xlabel="epoch")
        keys = [Line2D([], [], color=colour) for colour in PALETTE[: len(Loss)]]
        axes.legend(keys, [loss.value for loss in Loss], frameon=False, fontsize=7)
    caption = (
        "Example F1 on held-out examples along the training; dashed: cut at 100 iterations, or "
        "the unstructured model with Glorot's initial weights"
    )
    return picture(figure, folder, "multilabel.png", caption)
