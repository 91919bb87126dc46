"""The registry of installed plugins and their contributions.

Plugins are loaded when a contribution is first needed. A broken plugin is skipped, with a warning
that names it. Access to a name that two plugins register raises an error that names both.
"""

from __future__ import annotations

import difflib
import functools
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pluggy

from lpsmap_core.plugins import hookspecs
from lpsmap_core.plugins.contributions import (
    OWN,
    Contributions,
    DuplicateNameError,
    Plugin,
    Registration,
)
from lpsmap_core.plugins.disabled_plugins import DISABLE, disabled_names, matching_names
from lpsmap_core.plugins.packs import FACE
from lpsmap_jit.callers import stacklevel

__all__ = [
    "Contributions",
    "DuplicateNameError",
    "Plugin",
    "PluginWarning",
    "Registration",
    "Registry",
    "installed",
    "registered",
]

KINDS = {
    "factors": "Factor",
    "graphs": "FactorGraph",
    "formats": "FileFormat",
    "commands": None,
    "backends": "Backend",
    "engines": "Engine",
    "starts": "Start",
    "decoders": "Decoder",
    "solvers": "MapSolver",
}
"""The kinds of contributions, each with the base class, in `lpsmap_core`, of what its hook
returns."""


class PluginWarning(UserWarning):
    """An installed plugin is broken, completely or in part."""


class _ApiVersionError(RuntimeError):
    """A plugin is written for another version of the hooks. The message says what to upgrade."""


class Registry:
    """The contributions of a set of plugins: each of `KINDS` is an attribute, by name.

    Attributes
    ----------
    plugins
        The registered plugins.
    """

    factors: Contributions
    graphs: Contributions
    formats: Contributions
    commands: Contributions
    backends: Contributions
    engines: Contributions
    starts: Contributions
    decoders: Contributions
    solvers: Contributions

    def __init__(self) -> None:
        self.plugins: list[Plugin] = []
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    def register(self, module: object, plugin: Plugin) -> None:
        """Register hook implementations.

        Parameters
        ----------
        module
            A module or other object with functions marked as hook implementations.
        plugin
            The plugin.

        Raises
        ------
        RuntimeError
            If the plugin is written for another version of the hooks.
        ValueError
            If it is registered already.

        Warns
        -----
        PluginWarning
            For every function that resembles a hook but is not one.
        """
        _check_api_version(module, plugin)
        self._manager.register(module, name=plugin.key)
        self.plugins.append(plugin)
        self._forget()
        for advice in _misspelt(self._manager, module):
            _warn(
                f"lpsmap: the plugin {plugin.name!r} of {plugin.distribution} {plugin.version} "
                f"{advice} Until then it is never called."
            )

    def unregister(self, plugin: Plugin) -> None:
        """Remove a plugin."""
        self._manager.unregister(name=plugin.key)
        self.plugins.remove(plugin)
        self._forget()

    def _forget(self) -> None:
        for kind in KINDS:
            vars(self).pop(kind, None)

    def __getattr__(self, kind: str) -> Contributions:
        """Call the hook of one of `KINDS`, and keep the contributions as an attribute."""
        if kind not in KINDS:
            raise AttributeError(f"the registry has no contributions called {kind!r}")
        contributions = Contributions()
        plugins = {plugin.key: plugin for plugin in self.plugins}
        for implementation in getattr(self._manager.hook, f"lpsmap_{kind}").get_hookimpls():
            plugin = plugins[implementation.plugin_name]
            try:
                values = _checked_values(kind, implementation.function())
            except (Exception, SystemExit) as error:
                _warn_skipped(plugin, error)
                continue
            for name, value in values:
                contributions.add(Registration(name, value, plugin))
        if kind == "factors":
            _reserve_own_names(contributions)
        setattr(self, kind, contributions)
        return contributions


def _checked_values(kind: str, result: Any) -> list[tuple[str, Any]]:
    """Return names and values from the result of a hook, which must be a sequence of a kind."""
    name = KINDS[kind]
    base = None if name is None else getattr(_core(), name)
    expected = "click commands with names" if base is None else f"subclasses of {name}"
    if isinstance(result, (str, type)) or not isinstance(result, Iterable):
        raise TypeError(f"lpsmap_{kind} returned {result!r}; expected a list of {expected}")
    values = list(result)
    for value in values:
        is_class = isinstance(value, type)
        if not (_is_command(value) if base is None else is_class and issubclass(value, base)):
            raise TypeError(f"lpsmap_{kind} returned {value!r}; expected {expected}")
    if kind == "formats":
        return [(suffix, value) for value in values for suffix in _suffixes(value)]
    attribute = "__name__" if kind in ("factors", "graphs") else "name"
    return [(getattr(value, attribute), value) for value in values]


def _core() -> Any:
    """Return core's public names; the import is dynamic, since they are in higher layers."""
    return import_module("lpsmap_core")


def _is_command(value: Any) -> bool:
    import click  # only needed by the command line

    return isinstance(value, click.Command) and bool(value.name)


def _suffixes(cls: Any) -> tuple[str, ...]:
    """Return the validated suffixes of a format."""
    suffixes = cls.suffixes
    if not isinstance(suffixes, (tuple, list)) or not all(map(_is_suffix, suffixes)):
        raise TypeError(
            f"{cls.__name__}.suffixes is {suffixes!r}; expected a tuple of suffixes with a dot and "
            "in lower case, such as ('.uai',)"
        )
    return tuple(suffixes)


def _is_suffix(value: Any) -> bool:
    return isinstance(value, str) and Path(f"x{value}").suffix == value == value.lower() != ""


def _reserve_own_names(contributions: Contributions) -> None:
    """Register the names of ``lpsmap`` itself, so that plugins' types with these names conflict."""
    core = Plugin("lpsmap", OWN, _core().__version__)
    for name in FACE:
        if name in contributions:
            contributions.add(Registration(name, getattr(_core(), name), core))


# -------------------------------------------------------------------- installed plugins


@functools.cache
def installed() -> Registry:
    """Return the registry of the plugins installed in this environment, core first.

    The environment variable ``LPSMAP_DISABLE_PLUGINS`` disables plugins by the names of
    distributions or entry points; ``all`` disables all.

    Warns
    -----
    PluginWarning
        For every plugin that cannot be imported or registered, and for every name in
        ``LPSMAP_DISABLE_PLUGINS`` that matches no plugin.
    """
    registry = Registry()
    for entry_point in _enabled(list(entry_points(group=hookspecs.PROJECT))):
        start = time.perf_counter()
        try:
            module = entry_point.load()
            seconds = time.perf_counter() - start
            registry.register(module, Plugin.of_entry_point(entry_point, seconds))
        except (Exception, SystemExit) as error:  # SystemExit would end the whole process
            _warn_skipped(Plugin.of_entry_point(entry_point), error)
    return registry


def _enabled(points: list[EntryPoint]) -> list[EntryPoint]:
    """Return the entry points that are not disabled. Those of core cannot be disabled."""
    core = [each for each in points if Plugin.of_entry_point(each).distribution == OWN]
    plugins = [each for each in points if each not in core]
    for name in sorted(disabled_names() - {"all"}.union(*map(matching_names, plugins))):
        _warn(
            f"{DISABLE} names {name!r}, which is not an installed plugin; expected all, or a "
            "comma-separated list of distributions or entry points. `lpsmap plugins` lists them."
        )
    return core + [each for each in plugins if not matching_names(each)]


@contextmanager
def registered(*modules: object) -> Iterator[Registry]:
    """Register modules with hook implementations temporarily, for tests.

    Parameters
    ----------
    *modules
        Modules, or other objects with hook implementations.

    Yields
    ------
    Registry
        The registry of the installed plugins, with these added.
    """
    registry, added = installed(), []
    try:
        for module in modules:
            name = getattr(module, "__name__", type(module).__name__)
            plugin = Plugin(f"{name}-{id(module)}", "registered-by-hand", "0")
            registry.register(module, plugin)
            added.append(plugin)
        yield registry
    finally:
        for plugin in added:
            registry.unregister(plugin)


# -------------------------------------------------------------------- validation


def _check_api_version(module: object, plugin: Plugin) -> None:
    version, expected = getattr(module, "lpsmap_api_version", None), hookspecs.API_VERSION
    if type(version) is not int:
        raise _ApiVersionError(
            f"its lpsmap_api_version is {version!r}; expected the version of the plugin API that "
            f"it is written for, such as {expected}. Tell the authors of {plugin.distribution}"
        )
    if version != expected:
        outdated = "lpsmap-core" if version > expected else plugin.distribution
        raise _ApiVersionError(
            f"it is written for version {version} of the plugin API, and the installed lpsmap-core "
            f"has version {expected}. Upgrade {outdated}"
        )


def _misspelt(manager: pluggy.PluginManager, module: object) -> Iterator[str]:
    """Yield advice about functions that resemble hooks but are not."""
    hooks = [f"lpsmap_{kind}" for kind in KINDS]
    for name, function in vars(module).items() if hasattr(module, "__dict__") else ():
        if not callable(function) or isinstance(function, type):
            continue
        near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.85)
        if manager.parse_hookimpl_opts(module, name) is None:
            if name in hooks:
                yield f"has a function {name} without decorator; add @lpsmap_core.hookimpl."
            elif near:
                yield f"has a function {name}, which is not a hook; did you mean {near[0]}?"
        elif name not in hooks:
            nearest = near or difflib.get_close_matches(name, hooks, n=1, cutoff=0.0)
            yield f"implements {name}, which is not a hook; did you mean {nearest[0]}?"


def _warn_skipped(plugin: Plugin, error: BaseException) -> None:
    cause = f"{type(error).__name__}: {error}. Update or uninstall {plugin.distribution}."
    if isinstance(error, _ApiVersionError):
        cause = f"{error}."
    _warn(
        f"lpsmap skips the plugin {plugin.name!r} of {plugin.distribution} {plugin.version}: "
        f"{cause} Other plugins are not affected."
    )


def _warn(message: str) -> None:
    warnings.warn(message, PluginWarning, stacklevel=stacklevel())
