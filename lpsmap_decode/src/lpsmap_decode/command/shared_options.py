"""Options shared by several commands: their types and checks, limits and the solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import click
from click.core import ParameterSource

from lpsmap_core.api import AUTO, DEFAULT_GAP, MAX_MEMORY
from lpsmap_decode.corpus.jobs import MAP

UNSOLVED = 3
"""Exit code if a component is not solved, or its assignment is not proved optimal."""

SEARCH_OPTIONS = {"gap": ("task", (MAP,)), "solver": ("task", (MAP,))}
"""Options that apply only to an exact search, for `check_options_apply`."""


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


def check_options_apply(only_with: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Validate that the options of this call apply.

    Parameters
    ----------
    only_with
        For each parameter that applies only with some values of another one: the other, and these
        values.

    Raises
    ------
    click.UsageError
        If one is set that does not apply.
    """
    context = click.get_current_context()
    for name, (other, values) in only_with.items():
        is_set = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if is_set and context.params[other] not in values:
            raise click.UsageError(
                f"--{name.replace('_', '-')} requires --{other} {' or '.join(values)}; got "
                f"--{other} {context.params[other]}."
            )


def memory_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--max-memory``, passed on in bytes."""
    return click.option(
        "--max-memory",
        metavar="GB",
        type=NumberRange(0.0, min_open=True),
        default=MAX_MEMORY / 1e9,
        show_default=f"{MAX_MEMORY / 1e9:.2g}",
        callback=lambda context, parameter, value: 1e9 * value,
        help="Gigabytes that reading the file may take; larger ones are refused.",
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
