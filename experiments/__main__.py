"""Run the experiments, and write the pages of their results."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatch
from pathlib import Path

import click
from rich.console import Console

from experiments import ROOT
from experiments.catalogue import EXPERIMENTS
from experiments.reports import write_pages
from experiments.runs import SIZES, Row, Runner

DATA = Path(os.environ.get("LPSMAP_DATA", ROOT.parent / "shared" / "data"))
OUT = Path("build/papers")

FOLDER = click.Path(file_okay=False, path_type=Path)
OUT_OPTION = click.option("--out", type=FOLDER, default=OUT, help="Folder of the records.")
SIZE_OPTION = click.option("--size", type=click.Choice(SIZES), default="small")
SEEDS_OPTION = click.option(
    "--seeds",
    type=click.IntRange(min=1),
    show_default="that of the experiment",
    help="Number of seeds.",
)
NAMES = click.argument("names", nargs=-1, type=click.Choice(sorted(EXPERIMENTS)))


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Run the experiments, and write the pages of their results."""


def chosen_rows(names: tuple[str, ...], size: str, seeds: int | None, pattern: str) -> list[Row]:
    """Return the rows of experiments whose names match a pattern; all experiments by default."""
    experiments = [EXPERIMENTS[name] for name in names or EXPERIMENTS]
    rows = [row for experiment in experiments for row in experiment.rows(size, seeds)]
    return [row for row in rows if fnmatch(f"{row.experiment}-{row.name}", pattern)]


@main.command()
@NAMES
@click.option("--data", type=FOLDER, default=DATA, show_default="$LPSMAP_DATA, or ../shared/data",
              help="Folder of the data sets.")  # fmt: skip
@SIZE_OPTION
@SEEDS_OPTION
@click.option("--row", "pattern", default="*", help="Only rows whose names match, as `*-en-*`.")
@OUT_OPTION
def run(
    names: tuple[str, ...], data: Path, size: str, seeds: int | None, pattern: str, out: Path
) -> None:
    """Run the rows of the experiments NAMES, by default all, that have no record yet.

    A killed command resumes when it is run again. A row with missing data does not stop the others.
    """
    console, failed = Console(), 0
    with Runner(data, out, size, console) as runner:
        for row in chosen_rows(names, size, seeds, pattern):
            try:
                runner.result_of(row)
            except FileNotFoundError as error:
                failed += 1
                missing = f"no {error.filename}; see --data." if error.filename else f"{error}"
                console.print(f"{row.experiment}-{row.name}: {missing}", soft_wrap=True)
    if failed:
        raise click.ClickException(f"{failed} rows have no data.")


@main.command()
@NAMES
@SIZE_OPTION
@SEEDS_OPTION
def rows(names: tuple[str, ...], size: str, seeds: int | None) -> None:
    """List the rows of the experiments NAMES, by default all."""
    for row in chosen_rows(names, size, seeds, "*"):
        click.echo(f"{row.experiment}-{row.name}")


@main.command()
@OUT_OPTION
def report(out: Path) -> None:
    """Write pages of all records in a folder, such as `papers.md`, with figures."""
    try:
        written = write_pages(out, out)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if not written:
        raise click.ClickException(f"{out}: no records there; `run` writes them.")
    for path in written:
        click.echo(path)


if __name__ == "__main__":
    main(prog_name=f"{Path(sys.executable).name} -m experiments")
