"""The command line ``lpsmap``."""

from __future__ import annotations

import click

import lpsmap_core
from lpsmap_core.explain import explain
from lpsmap_core.factor import override_level
from lpsmap_core.registry import installed

LEVELS = {1: "1 oracle", 2: "2 compiled oracle", 3: "3 closed form"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(lpsmap_core.__version__, prog_name="lpsmap")
def main() -> None:
    """Sparse structured inference in factor graphs."""


main.add_command(explain)


@main.command()
def factors() -> None:
    """List the installed factor types: name, package, version, level of override."""
    rows = [
        (r.name, r.distribution, r.version, LEVELS[override_level(r.cls)])
        for r in sorted(installed().factors.values(), key=lambda r: (r.distribution, r.name))
    ]
    if not rows:
        click.echo("No factor types are installed. Try: pip install lpsmap-factors-logic")
        return
    header = ("FACTOR", "PACKAGE", "VERSION", "LEVEL")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
    for row in [header, *rows]:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
