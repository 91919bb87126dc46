"""The command ``lpsmap assign``."""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import numpy as np

from lpsmap_assignment.dimacs import AssignmentFormat, read_arcs
from lpsmap_core import ConvergenceWarning
from lpsmap_decode import FileFormatError

__all__ = ["assign"]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def assign(file: Path) -> None:
    """Print the cheapest assignment.

    FILE ends in .asn. Each line has a source and its sink, and the last line the total cost. The
    exit code is 3 if there is no assignment, and 1 if the file cannot be read.
    """
    try:
        arcs, named = read_arcs(file), AssignmentFormat().read(file)
    except (OSError, FileFormatError) as error:
        raise click.ClickException(str(error)) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the exit code reports it
        solution = named.graph.solve_map()
    if not solution.ok:
        click.echo("no assignment", err=True)
        raise SystemExit(3)
    chosen = np.flatnonzero(named.variables["arcs"].value > 0.5)
    for arc in chosen[np.argsort(arcs.source[chosen])]:
        click.echo(f"{arcs.source[arc]} {arcs.sink[arc]}")
    click.echo(f"cost {arcs.cost[chosen].sum()}")
