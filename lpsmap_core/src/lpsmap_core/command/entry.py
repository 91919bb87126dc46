"""Entry point of the console script ``lpsmap``, which works without click."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or exit with a message if click is not installed."""
    try:
        import click  # noqa: F401 - required by all commands
    except ModuleNotFoundError:
        sys.exit('The command lpsmap needs click: pip install "lpsmap-core[cli]"')
    from lpsmap_core.command import cli

    cli.main()
