"""The hooks that plugins implement, and how plugins specify more of them.

A plugin is an installed distribution with an entry point in the group ``lpsmap`` that names a
module. Its hook implementations return classes or values, and have no side effects. Each is called
when something of its kind is first needed. `docs/how-to/hooks.md` has an example of each.

A plugin whose module has the attribute ``lpsmap_hookspecs``, a list of modules, adds the hooks that
these specify, as lpsmap-decode does for file formats and solvers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pluggy

if TYPE_CHECKING:  # the registry is below what it registers
    import click

    from lpsmap_core import Backend, Engine, Factor, FactorGraph, Start

__all__ = [
    "API_VERSION",
    "PROJECT",
    "Kind",
    "hookimpl",
    "hookspec",
    "lpsmap_backends",
    "lpsmap_commands",
    "lpsmap_engines",
    "lpsmap_factors",
    "lpsmap_graphs",
    "lpsmap_starts",
    "subclasses",
]

PROJECT = "lpsmap"

API_VERSION = 3
"""Version of the hooks and of their results, incremented by changes that break plugins.

A plugin's module declares the version that it is written for: ``lpsmap_api_version = 3``. Plugins
of another version are skipped.
"""

hookimpl = pluggy.HookimplMarker(PROJECT)

Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(NamedTuple):
    """What a hook returns: a list of values with names."""

    expected: str
    """Description of the values, for errors."""
    accepts: Callable[[Any], bool]
    """Whether a value is of this kind."""
    names: Callable[[Any], Sequence[str]]
    """Returns the names under which a value is registered, or raises a TypeError."""


def subclasses(base: str, names: Callable[[Any], Sequence[str]] = lambda cls: [cls.name]) -> Kind:
    """Return the kind of the subclasses of a class.

    Parameters
    ----------
    base
        The class, as ``"module:Name"``, which is imported when the first value is registered.
    names
        As in `Kind`.
    """
    module, _, name = base.partition(":")

    def accepts(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, getattr(import_module(module), name))

    return Kind(f"subclasses of {name}", accepts, names)


def hookspec(kind: Kind) -> Callable[[Function], Function]:
    """Return a decorator that marks a function as the specification of a hook of a `kind`."""

    def mark(function: Function) -> Function:
        function.lpsmap_kind = kind  # type: ignore[attr-defined]
        return pluggy.HookspecMarker(PROJECT)(function)

    return mark


def _class_name(cls: type) -> list[str]:
    return [cls.__name__]


def _is_command(value: Any) -> bool:
    import click  # only needed by the command line

    return isinstance(value, click.Command) and bool(value.name)


@hookspec(subclasses("lpsmap_core:Factor", _class_name))
def lpsmap_factors() -> Sequence[type[Factor]]:  # type: ignore[empty-body]
    """Return the factor types of a pack, registered by class name."""


@hookspec(subclasses("lpsmap_core:FactorGraph", _class_name))
def lpsmap_graphs() -> Sequence[type[FactorGraph]]:  # type: ignore[empty-body]
    """Return the factor graphs of an adapter, registered by class name.

    Only called for names that are not factor types, so that adapters may be slow to import.
    """


@hookspec(Kind("click commands with names", _is_command, lambda command: [command.name]))
def lpsmap_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return subcommands of the command ``lpsmap``, registered by name."""


@hookspec(subclasses("lpsmap_core:Backend"))
def lpsmap_backends() -> Sequence[type[Backend]]:  # type: ignore[empty-body]
    """Return array libraries and their devices, registered by name.

    The conformance kit runs every closed form in array-API code on all of them.
    """


@hookspec(subclasses("lpsmap_core:Engine"))
def lpsmap_engines() -> Sequence[type[Engine]]:  # type: ignore[empty-body]
    """Return engines, which solve graphs, registered by name.

    Called at the first solve or plan. `Engine.prefers` says which components an engine takes.
    """


@hookspec(subclasses("lpsmap_core:Start"))
def lpsmap_starts() -> Sequence[type[Start]]:  # type: ignore[empty-body]
    """Return starts, which find starting points of core's loop, registered by name.

    Called at the first solve of factors that share variables.
    """
