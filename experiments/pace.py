"""The time of a training step along the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.pages import commits, table
from experiments.records import Record

__all__ = ["table_of_pace"]

SHARES = (0.0, 0.25, 0.5, 1.0)
"""Places of the shown epochs along the training."""


def table_of_pace(records: Sequence[Record], label: Callable[[Record], str]) -> list[str]:
    """Return the table of milliseconds of a step, and its introduction; nothing without times.

    Only records whose seconds are processor time have a row: of each label, that of the lowest
    seed.

    Parameters
    ----------
    records
        Records of any seeds.
    label
        Returns the first cell of a row.
    """
    timed = [r for r in records if r.clock == "processor" and len(r.result.get("curve", [])) > 1]
    first = {label(r): r for r in sorted(timed, key=lambda r: -r.settings["seed"])}
    lines, shown = [], []
    for record in (r for r in timed if r is first[label(r)]):
        curve = record.result["curve"]
        epochs = [1 + round(share * (len(curve) - 2)) for share in SHARES]
        cells = [f"{milliseconds(curve[epoch - 1], curve[epoch]):.1f}" for epoch in epochs]
        seed = record.settings["seed"]
        lines.append([label(record), f"{seed}", f"{len(curve) - 1}", *cells])
        shown.append(record)
    if not lines:
        return []
    headings = ["row", "seed", "epochs", "first epoch", "after a quarter", "half", "last epoch"]
    return [
        "Does a step become faster as the model grows certain? Milliseconds of processor time of a "
        "training step:",
        table(headings, lines),
        commits(shown),
    ]


def milliseconds(before: dict[str, float], after: dict[str, float]) -> float:
    """Return the mean milliseconds of the steps between two points of a curve."""
    return 1e3 * (after["seconds"] - before["seconds"]) / (after["steps"] - before["steps"])
