"""The command line ``lpsmap``."""

from __future__ import annotations

import click

import lpsmap_core
from lpsmap_core.factor import override_level
from lpsmap_core.registry import installed
from lpsmap_core.testing.command import check_registered, registrations_of
from lpsmap_core.testing.draws import DRAWS

LEVELS = {1: "1 oracle", 2: "2 compiled oracle", 3: "3 closed form"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(lpsmap_core.__version__, prog_name="lpsmap")
def main() -> None:
    """Sparse structured inference in factor graphs."""


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


@main.command()
@click.argument("names", metavar="PACKAGE_OR_FACTOR", nargs=-1, required=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the random problems.")
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=DRAWS,
    show_default=True,
    help="Random problems a check.",
)
def check(names: tuple[str, ...], seed: int, draws: int) -> None:
    """Hold factor types to the factor protocol, on the examples that they offer.

    PACKAGE_OR_FACTOR is the name of an installed factor type, or of a distribution that brings
    some. The exit code is 1 if a check fails.
    """
    registry = installed()
    chosen = [r for name in names for r in registrations_of(registry, name)]
    if not check_registered(chosen, seed, draws):
        raise SystemExit(1)
