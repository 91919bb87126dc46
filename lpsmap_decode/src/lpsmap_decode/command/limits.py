"""Options that `lpsmap solve` and `lpsmap decode` share: when to stop, and who solves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TextIO

import click
from click.core import ParameterSource

from lpsmap_core.api import AUTO, DEFAULT_GAP
from lpsmap_decode.corpus.work import MAP

__all__ = ["NumberRange", "is_terminal", "limit_options", "refuse_search_options"]

SEARCH_OPTIONS = "gap", "solver"
"""Options that mean something to an exact search alone."""


class NumberRange(click.FloatRange):
    """A range of numbers, which leaves out what is none, and the infinite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return an option as a number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads a stream as it is written; there is none where a shell closed it."""
    return stream is not None and stream.isatty()


def refuse_search_options(task: str) -> None:
    """End the command if it has options that only a search for the best has.

    Raises
    ------
    click.UsageError
        If the task is another one.
    """
    context = click.get_current_context()
    for name in SEARCH_OPTIONS:
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and task != MAP:
            raise click.UsageError(f"--{name} goes with --task {MAP}; got --task {task}.")


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``--max-time``, ``--gap`` and ``--solver``."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--max-time",
            type=NumberRange(0.0, min_open=True),
            help="Seconds for each model, compiling aside.  [default: no limit]",
        ),
        click.option(
            "--gap",
            type=NumberRange(0.0),
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
