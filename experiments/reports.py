"""The pages of all experiments, from a folder of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments import ROOT
from experiments.catalogue import EXPERIMENTS
from experiments.records import Record, read_records
from experiments.runs import Experiment

__all__ = ["write_pages"]

REPEATED = ("Differences", "Findings")
"""Sections of the README of an experiment that its page repeats."""

MORE_SEEDS = 9
"""Number of seeds among which rows beyond the default are looked for."""


def write_pages(folder: Path, out: Path) -> list[Path]:
    """Write the pages of all experiments with records, and their figures.

    Parameters
    ----------
    folder
        Folder of the records.
    out
        Folder of the pages.

    Returns
    -------
    list of Path
        The pages.

    Raises
    ------
    ValueError
        If a line of a file is not a record.
    """
    records = list(read_records(folder))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for page in dict.fromkeys(experiment.page for experiment in EXPERIMENTS.values()):
        sections, used, verdicts = [], [], []
        for experiment in EXPERIMENTS.values():
            own = [record for record in records if record.experiment == experiment.name]
            if own and experiment.page == page:
                sections.append(experiment.report(own, out))
                if all(record.size == "full" for record in own):
                    sections += without_record(experiment, own)
                    sections += sections_of(experiment.name)
                    verdicts += experiment.verdicts(own)
                used += own
        if used:
            path = out / f"{page.name}.md"
            path.write_text(page.text(sections, used, verdicts), encoding="utf-8")
            written.append(path)
    return written


def without_record(experiment: Experiment, records: Sequence[Record]) -> list[str]:
    """Return a section about rows without a complete record of theirs, or beyond the default."""
    of_row = {record.row: record for record in records}
    found: dict[str, list[str]] = {}
    rows = experiment.rows("full", None)
    own = {row.name for row in rows}
    for row in experiment.rows("full", MORE_SEEDS):
        if row.name in of_row and row.name not in own:
            title = "Rows with records that only `--seeds` runs again"
            found.setdefault(title, []).append(row.name)
    for row in rows:
        record = of_row.get(row.name)
        if record is None:
            found.setdefault("Rows that have not been run", []).append(row.name)
        elif not record.has_settings("full", asdict(row.settings)):
            found.setdefault("Rows whose records are of earlier settings", []).append(row.name)
        elif not record.complete:
            epoch = record.result["curve"][-1]["epoch"]
            name = f"{row.name} (at epoch {epoch})"
            found.setdefault("Rows that have not ended", []).append(name)
    parts = [
        f"{title}: {', '.join(f'`{name}`' for name in rows)}." for title, rows in found.items()
    ]
    return ["\n\n".join(["### Rows to run", *parts])] if parts else []


def sections_of(name: str) -> list[str]:
    """Return the sections of an experiment's README that a reader of its results needs.

    Their headings have the name of the experiment, so that links tell them apart.
    """
    readme = ROOT / "experiments" / name / "README.md"
    sections = readme.read_text(encoding="utf-8").split("\n## ")
    found = dict(section.split("\n", 1) for section in sections[1:])
    return [f"### {title} ({name})\n{found[title]}".strip() for title in REPEATED if title in found]
