"""Where the console script ``lpsmap`` begins: without click, it says how to get it."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or end with the words that say what it needs."""
    try:
        import click  # noqa: F401 - all commands are written with it
    except ModuleNotFoundError:
        sys.exit('The command lpsmap needs click: pip install "lpsmap-core[cli]"')
    from lpsmap_core.command import cli

    cli.main()
