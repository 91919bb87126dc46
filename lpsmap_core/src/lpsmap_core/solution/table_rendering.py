"""Rendering of small tables as aligned text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

MAX_CELL_WIDTH = 72
"""Maximum number of characters of a text cell. Longer ones are truncated with an ellipsis."""


def text_table(rows: Sequence[Mapping[str, str]], numbers: Sequence[str]) -> str:
    """Return `rows` of named cells as aligned text. The columns in `numbers` are right-aligned."""
    aligned = []
    for name in _columns(rows):
        cells = [name, *(_shortened(row.get(name, "")) for row in rows)]
        width = max(map(len, cells))
        right = name in numbers
        aligned.append([c.rjust(width) if right else c.ljust(width) for c in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def html_table(rows: Sequence[Mapping[str, str]], numbers: Sequence[str], caption: str) -> str:
    """Return `rows` of named cells, which contain HTML, as a table with a caption."""
    columns = _columns(rows)
    lines = ["<table>", f"<caption>{html.escape(caption)}</caption>"]
    lines.append("<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in columns) + "</tr>")
    for row in rows:
        cells = "".join(
            f'<td style="text-align: {"right" if name in numbers else "left"}">'
            f"{row.get(name, '')}</td>"
            for name in columns
        )
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def _columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _shortened(cell: str) -> str:
    return cell if len(cell) <= MAX_CELL_WIDTH else cell[: MAX_CELL_WIDTH - 3] + "..."
