"""Markdown pages of tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.records import Record

__all__ = ["INK", "PALETTE", "PAPERS", "Page", "by", "picture", "styled", "table"]

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

    def text(self, sections: Sequence[str], records: Sequence[Record]) -> str:
        """Return the whole page: the origin of the numbers, and the sections of experiments."""
        origins = {
            name: sorted({str(record.origin[name]) for record in records})
            for name in ("commit", "machine", "date")
        }
        dates = origins.pop("date")
        sizes = ", ".join(sorted({record.size for record in records}))
        missing = sum(not record.complete for record in records)
        curves = [record.result.get("curve") or [{"seconds": 0.0}] for record in records]
        hours = sum(curve[-1]["seconds"] for curve in curves) / 3600
        lines = [
            f"- {name}: {', '.join(f'`{value}`' for value in origins[name])}" for name in origins
        ]
        head = [
            f"# {self.title}",
            f"{self.introduction} Intervals have 95 % confidence over seeds.",
            "\n".join(
                [
                    f"- runs: {len(records)} of size {sizes}, {missing} of them not complete",
                    f"- training: {hours:.1f} hours of one core, evaluation aside",
                    f"- dates: {dates[0]} to {dates[-1]}",
                    *lines,
                ]
            ),
        ]
        return "\n\n".join([*head, *sections]) + "\n"


PAPERS = Page(
    "papers",
    "The papers' results",
    "The reproduced tables and figures of the two SparseMAP papers, beside the printed numbers.",
)
"""The page of the experiments of the papers."""
