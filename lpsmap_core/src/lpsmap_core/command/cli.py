"""The command line ``lpsmap``."""

from __future__ import annotations

import atexit
import difflib
import gc
import importlib.metadata
import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

import lpsmap_core
from lpsmap_core.command import new_plugin
from lpsmap_core.command.compile_types import compile_types
from lpsmap_core.local.solvers import override_level
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.error_origin import error_with_origin
from lpsmap_core.plugins.hookspecs import PROJECT
from lpsmap_core.plugins.install_advice import install_advice
from lpsmap_core.plugins.registry import (
    Contributions,
    DuplicateNameError,
    Plugin,
    Registration,
    installed,
    normalised,
)
from lpsmap_core.solution.table_rendering import text_table

# skips the last garbage collection over all loaded modules, which takes half a second
atexit.register(gc.freeze)

LEVELS = {1: "1 oracle", 2: "2 compiled oracle", 3: "3 closed form"}


# -------------------------------------------------------------------- named types

TYPO_SIMILARITY = 0.6
"""Similarity above which the name of a group counts as a misspelling; 1 is equality."""


def complete_types(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Return the names of installed factor types that begin with what was typed."""
    return [name for name in installed().factors if name.startswith(typed)]


def chosen_types(names: Sequence[str]) -> list[Registration]:
    """Return the factor types for `names` of types or distributions.

    The error for other names suggests similar ones, or says what a distribution of that name lacks.
    """
    factors = installed().factors
    try:
        return [r for name in names for r in _registrations_of(factors, name)]
    except DuplicateNameError as error:
        raise click.ClickException(str(error)) from error


def _registrations_of(factors: Contributions, name: str) -> list[Registration]:
    """Return the factor type called `name`, or all types of the distribution called `name`."""
    if name in factors:
        return [factors[name]]
    plain = normalised(name)
    for contested, claims in factors.conflicts.items():
        if plain in {normalised(claim.plugin.distribution) for claim in claims}:
            raise DuplicateNameError(factors.conflict_message(contested))
    pack = [r for r in factors.values() if normalised(r.plugin.distribution) == plain]
    if pack:
        return pack
    others = (*factors, *(r.plugin.distribution for r in factors.values()))
    by_plain = {normalised(other): other for other in others}
    near = [by_plain[x] for x in difflib.get_close_matches(plain, by_plain, 3)]
    advice = f" Did you mean {' or '.join(near)}?" if near else ""
    script = " For a class that is not installed, call lpsmap_core.testing.check_factor(instance)."
    raise click.BadParameter(
        f"{name!r} {_missing_reason(name)}{advice} `lpsmap factors` lists them."
        f"{script if ':' in name or name.isidentifier() else ''}"
    )


def _missing_reason(name: str) -> str:
    """Return why there are no factor types for a name, or what its distribution has instead."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "is neither an installed factor type, nor a distribution that has one."
    groups = {entry_point.group for entry_point in distribution.entry_points}
    if PROJECT in groups:
        return "is installed, but has no factor types; `lpsmap plugins` lists what it has."
    typos = difflib.get_close_matches(PROJECT, groups, 1, cutoff=0.5)
    has = f"; its group {typos[0]!r} is ignored. Rename the group" if typos else ""
    return f"is installed, but has no entry point in the group {PROJECT!r}{has}."


def misspelt_groups() -> list[tuple[str, str]]:
    """Return distributions with a group of entry points that resembles that of plugins."""
    groups = importlib.metadata.entry_points().groups - {PROJECT}
    return sorted(
        {
            (Plugin.of_entry_point(entry_point).distribution, typo)
            for typo in difflib.get_close_matches(PROJECT, groups, 10, TYPO_SIMILARITY)
            for entry_point in importlib.metadata.entry_points(group=typo)
        }
    )


# -------------------------------------------------------------------- commands


class _Commands(click.Group):
    """Core's commands, and those of plugins, which are only loaded for other names."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command, with warnings printed without source lines."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return super().main(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        """Run a command, and report errors such as a full disk, or those of a plugin."""
        try:
            return super().invoke(context)
        except (BrokenPipeError, click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # the reader of a pipe has closed it, or click reports the error
        except OSError as error:
            _discard_output()
            raise click.ClickException(str(error)) from error
        except Exception as error:
            name = context.invoked_subcommand
            if name is None or name in self.commands:
                raise
            authors = installed().commands[name].plugin.distribution
            raise click.ClickException(
                f"{name}: {error_with_origin(error)}. Tell the authors of {authors}."
            ) from error

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*self.commands, *installed().commands})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.commands:
            return self.commands[name]
        try:
            registration = installed().commands.get(name)
        except DuplicateNameError as error:
            raise click.ClickException(str(error)) from error
        return registration.value if registration else None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of `arguments`; for a missing one, say what may be meant."""
        name = arguments[0]
        if not context.resilient_parsing and self.get_command(context, name) is None:
            commands = self.list_commands(context)
            near = difflib.get_close_matches(name, commands, 1)
            if near:
                context.fail(f"No such command {name!r}; did you mean {near[0]}?")
            if not installed().of_kind("decoders"):
                advice = install_advice("lpsmap-decode")
                context.fail(f"No such command {name!r}; for those on files, {advice}.")
        return super().resolve_command(context, arguments)


def _discard_output() -> None:
    """Discard output that cannot be written, which Python would try to write again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    words = getattr(message, "details", "") or message  # details name the components
    click.echo(f"Warning: {words}", err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(lpsmap_core.__version__, prog_name="lpsmap")
def main() -> None:
    """Sparse structured inference in factor graphs.

    List plugins, describe a model, and find its best assignment:

    \b
    lpsmap plugins
    lpsmap info grid.uai
    lpsmap solve grid.uai --task map
    """  # noqa: D301 - click interprets the character


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and types in SHELL.

    For bash, add this to ~/.bashrc: eval "$(lpsmap completion bash)"
    """
    chosen = get_completion_class(shell)
    assert chosen is not None
    click.echo(chosen(main, {}, "lpsmap", "_LPSMAP_COMPLETE").source())


@main.command()
def factors() -> None:
    """List the installed factor types.

    Shows the package, level of override and meaning of each; the versions are those of lpsmap
    plugins.
    """
    contributions = installed().factors
    rows = [
        {"FACTOR": r.name, "PACKAGE": r.plugin.distribution}
        | {"LEVEL": LEVELS[override_level(r.value)], "MEANING": _first_sentence(r.value)}
        for r in sorted(contributions.values(), key=lambda r: (r.plugin.distribution, r.name))
    ]
    advice = "No factor types are installed; those of this project come with: pip install lpsmap"
    click.echo(text_table(rows, []) if rows else advice)
    _fail_on_conflicts([contributions])


def _first_sentence(kind: type[Factor]) -> str:
    """Return the summary of the docstring of a factor type on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


@main.command()
def plugins() -> None:
    """List the installed plugins and their contributions.

    Shows the package and the import time of each.
    """
    registry = installed()
    kinds: dict[str, Contributions] = {kind: registry.of_kind(kind) for kind in registry.kinds}
    for plugin in registry.plugins:
        click.echo(
            f"{plugin.name} ({plugin.distribution} {plugin.version}, "
            f"imported in {1e3 * plugin.seconds:.0f} ms)"
        )
        for kind, contributions in kinds.items():
            names = sorted(r.name for r in contributions.values() if r.plugin == plugin)
            if names:
                click.echo(f"    {kind}: {', '.join(names)}")
    for distribution, group in misspelt_groups():
        click.echo(
            f"Warning: {distribution} has entry points in the group {group!r}, which is ignored; "
            f"expected {PROJECT!r}. Its author can rename the group.",
            err=True,
        )
    _fail_on_conflicts(kinds.values())


@main.command("compile")
@click.argument("names", metavar="[PACKAGE_OR_FACTOR]...", nargs=-1, shell_complete=complete_types)
@click.option("--all", "everything", is_flag=True, help="All installed factor types.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of parallel processes.  [default: LPSMAP_THREADS, or all cores]",
)
@click.option("--native", is_flag=True, help="Also what lpsmap-kernels has for other processors.")
def compile_command(
    names: tuple[str, ...], everything: bool, jobs: int | None, native: bool
) -> None:
    """Compile in advance what the first solves would compile.

    This is for images and for CI. PACKAGE_OR_FACTOR is the name of an installed factor type, or of
    a distribution that has some. Without names, only core is compiled. For every type, a separate
    process solves and differentiates the type's examples, so that later processes load compiled
    code from the cache.

    The exit code is 1 if a type fails.
    """
    chosen = [r.name for r in chosen_types(names)]
    if everything:
        chosen = list(installed().factors)
    if not compile_types(sorted(set(chosen)), jobs, native):
        raise SystemExit(1)


@main.command("new-plugin")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(new_plugin.KINDS)),
    default="factor",
    show_default=True,
    help="What it offers.",
)
@click.option("--factor", help="Name of the factor type.  [default: NAME in CamelCase]")
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder in which the package's folder is created.  [default: here]",
)
def new_plugin_command(name: str, kind: str, factor: str | None, into: Path) -> None:
    """Create a package with a new plugin.

    It has a factor type, file format, solver or engine, with tests and an entry point.
    """
    try:
        folder = new_plugin.write(name, into, factor, kind)
    except (ValueError, OSError, ImportError, DuplicateNameError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Created the package {folder}. Next:\n")
    click.echo(f"    cd {folder}\n    pip install -e '.[test]'\n    pytest")


def _fail_on_conflicts(kinds: Iterable[Contributions]) -> None:
    """Raise an error that names the plugins if a name has a conflict."""
    conflicts = [c.conflict_message(name) for c in kinds for name in c.conflicts]
    if conflicts:
        raise click.ClickException("\n".join(conflicts))
