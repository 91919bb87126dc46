"""Options shared by `lpsmap solve` and `lpsmap decode`: limits and the solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TextIO

import click
from click.core import ParameterSource

from lpsmap_core.api import AUTO, DEFAULT_GAP, MAX_MEMORY
from lpsmap_decode.corpus.jobs import MAP

__all__ = [
    "NumberRange",
    "is_terminal",
    "limit_options",
    "memory_option",
    "refuse_search_options",
]

SEARCH_OPTIONS = "gap", "solver"
"""Options that apply only to an exact search."""


class NumberRange(click.FloatRange):
    """A range of finite numbers."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return an option as a number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; it is None if the shell closed it."""
    return stream is not None and stream.isatty()


def refuse_search_options(task: str) -> None:
    """Raise an error if options of the exact search are given for another task.

    Raises
    ------
    click.UsageError
        If the task is not an exact search.
    """
    context = click.get_current_context()
    for name in SEARCH_OPTIONS:
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and task != MAP:
            raise click.UsageError(f"--{name} requires --task {MAP}; got --task {task}.")


def memory_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--max-memory``, passed on in bytes."""
    return click.option(
        "--max-memory",
        metavar="GB",
        type=NumberRange(0.0, min_open=True),
        default=MAX_MEMORY / 1e9,
        show_default=f"{MAX_MEMORY / 1e9:.2g}",
        callback=lambda context, parameter, value: 1e9 * value,
        help="Gigabytes that reading a model may take; larger ones are refused.",
    )(command)


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``--max-time``, ``--gap`` and ``--solver``."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--max-time",
            type=NumberRange(0.0, min_open=True),
            help="Seconds for each model, without compilation.  [default: no limit]",
        ),
        click.option(
            "--gap",
            type=NumberRange(0.0),
            default=DEFAULT_GAP,
            show_default=True,
            help="With --task map: relative gap between score and bound at which the search stops.",
        ),
        click.option(
            "--solver",
            metavar="NAME",
            default=AUTO,
            show_default=True,
            help="With --task map: the solver. lpsmap is the built-in search; `lpsmap plugins` "
            "lists others.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
