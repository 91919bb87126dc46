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
                    sections += findings(experiment.name)
                    verdicts += experiment.verdicts(own)
                used += own
        if used:
            path = out / f"{page.name}.md"
            path.write_text(page.text(sections, used, verdicts), encoding="utf-8")
            written.append(path)
    return written


def without_record(experiment: Experiment, records: Sequence[Record]) -> list[str]:
    """Return a section about the rows of an experiment that have no record of their settings."""
    of_row = {record.row: record for record in records}
    older, missing = [], []
    for row in experiment.rows("full", None):
        found = of_row.get(row.name)
        if found is None:
            missing.append(f"`{row.name}`")
        elif not found.answers("full", asdict(row.settings)):
            older.append(f"`{row.name}`")
    parts = []
    if missing:
        parts.append(f"Rows that have not been run: {', '.join(missing)}.")
    if older:
        parts.append(f"Rows whose records are of earlier settings: {', '.join(older)}.")
    return ["\n\n".join(["### Rows to run", *parts])] if parts else []


def findings(name: str) -> list[str]:
    """Return the section of an experiment's README that explains the results of the full run."""
    readme = ROOT / "experiments" / name / "README.md"
    sections = readme.read_text(encoding="utf-8").split("\n## ")
    return [f"### {section}".strip() for section in sections if section.startswith("Findings\n")]
