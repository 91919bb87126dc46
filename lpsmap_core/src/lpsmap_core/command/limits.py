"""Options that `lpsmap solve` and `lpsmap decode` share: when to stop, and who solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lpsmap_core.decoding.decode import DEFAULT_GAP
from lpsmap_core.engine.choice import AUTO

__all__ = ["limit_options"]


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``--max-time``, ``--gap`` and ``--solver``."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--max-time",
            type=click.FloatRange(0.0, min_open=True),
            help="Seconds for each model.  [default: no limit]",
        ),
        click.option(
            "--gap",
            type=click.FloatRange(0.0),
            default=DEFAULT_GAP,
            show_default=True,
            help="With --task map: how near to the best, relative to its score, is good enough.",
        ),
        click.option(
            "--solver",
            metavar="NAME",
            default=AUTO,
            show_default=True,
            help="With --task map: who looks for the best. lpsmap is the library's own search; "
            "`lpsmap plugins` lists others.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
