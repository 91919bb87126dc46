"""Markdown pages of tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.records import Record

__all__ = [
    "INK",
    "PALETTE",
    "PAPERS",
    "Outcome",
    "Page",
    "Verdict",
    "by",
    "commits",
    "picture",
    "styled",
    "table",
]

T = TypeVar("T")

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that most colour-blind readers can distinguish (Okabe & Ito 2008)."""

INK = "#1f2430"

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
}
"""Settings of matplotlib for all figures."""


def styled() -> AbstractContextManager[None]:
    """Return the plotting context of figures."""
    settings: Any = STYLE
    return mpl.rc_context(settings)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table: the first column is left-aligned, the others right-aligned."""
    lines = [list(headings), ["---", *["--:"] * (len(headings) - 1)]]
    lines += [[str(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def picture(figure: Figure, folder: Path, name: str, caption: str) -> str:
    """Write a figure; return the Markdown that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=130, bbox_inches="tight")
    return f"![{caption}]({name})\n\n*{caption}*"


def by(records: Sequence[Record], key: Callable[[Record], T]) -> dict[T, list[Record]]:
    """Group records by a key, in order of first appearance; sort each group by seed."""
    found: dict[T, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return {k: sorted(some, key=lambda r: r.settings["seed"]) for k, some in found.items()}


def commits(records: Sequence[Record]) -> str:
    """Return the commits of the rows of a table, with the number of records of each."""
    found = Counter(str(record.origin["commit"]) for record in records)
    named = ", ".join(f"`{commit}` ({n})" for commit, n in sorted(found.items()))
    return f"Commits of these rows: {named}." if found else ""


def table_of_runs(records: Sequence[Record]) -> str:
    """Return the section that lists the runs of all rows: their command, commit and hours."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in sorted(records, key=lambda one: (one.experiment, one.origin["date"])):
        words = record.origin["command"].split()
        rows = words[words.index("--row") + 1] if "--row" in words else "*"
        key = (f"`{rows}`", f"`{record.origin['commit']}`", record.clock)
        found.setdefault(key, []).append(record)
    lines = [[*key, len(some), f"{sum(r.hours for r in some):.2f}"] for key, some in found.items()]
    return "\n\n".join(
        [
            "## Runs",
            "`python -m experiments run` made the records, with `--row` as below; it skips rows "
            "with a record in its folder. Hours are of the training, evaluation aside. Clock: "
            "*processor* time, or the *wall's* on a machine shared with other work.",
            table(["rows", "commit", "clock", "records", "hours"], lines),
        ]
    )


class Outcome(str, Enum):
    """Whether a result of a paper is reproduced."""

    REPRODUCED = "reproduced"
    NEAR = "near"
    NOT = "not reproduced"


@dataclass(frozen=True)
class Verdict:
    """The outcome for a table or figure of a paper, and why, in a sentence."""

    item: str
    outcome: Outcome
    why: str


def box(verdicts: Sequence[Verdict]) -> str:
    """Return the box at the beginning of a page; nothing without verdicts."""
    if not verdicts:
        return ""
    lines = [[one.item, f"**{one.outcome.value}**", one.why] for one in verdicts]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    head = "| of the papers | outcome | why |\n| --- | --- | --- |"
    return f":::{{admonition}} What is reproduced\n\n{head}\n{text}\n:::"


@dataclass(frozen=True)
class Page:
    """A page of sections of experiments.

    Attributes
    ----------
    name
        The name of its file, without the suffix.
    title, introduction
        Its first lines.
    """

    name: str
    title: str
    introduction: str

    def text(
        self, sections: Sequence[str], records: Sequence[Record], verdicts: Sequence[Verdict] = ()
    ) -> str:
        """Return the whole page: what is reproduced, where the numbers are from, and sections."""
        origins = {
            name: sorted({str(record.origin[name]) for record in records})
            for name in ("commit", "machine", "date")
        }
        dates = origins.pop("date")
        sizes = ", ".join(sorted({record.size for record in records}))
        missing = sum(not record.complete for record in records)
        hours = {"processor": 0.0, "wall": 0.0}
        for record in records:
            hours[record.clock] += record.hours
        lines = [
            f"- {name}: {', '.join(f'`{value}`' for value in origins[name])}" for name in origins
        ]
        head = [
            f"# {self.title}",
            box(verdicts),
            f"{self.introduction} Intervals have 95 % confidence over seeds.",
            "\n".join(
                [
                    f"- runs: {len(records)} of size {sizes}, {missing} of them not complete",
                    f"- training, evaluation aside: {hours['processor']:.1f} hours of processor "
                    f"time, and earlier {hours['wall']:.1f} hours of a core shared with other work",
                    "- steps/s and minutes of a row: means over its records, of either clock",
                    f"- dates: {dates[0]} to {dates[-1]}",
                    *lines,
                ]
            ),
        ]
        parts = [*head, *sections, table_of_runs(records)]
        return "\n\n".join(part for part in parts if part) + "\n"


PAPERS = Page(
    "papers",
    "The papers' results",
    "The reproduced tables and figures of the two SparseMAP papers, beside the printed numbers.",
)
"""The page of the experiments of the papers."""
