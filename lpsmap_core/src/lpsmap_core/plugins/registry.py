"""The registry of installed plugins and their contributions.

Plugins are loaded when a contribution is first needed. A broken plugin is skipped, with a warning
that names it. Access to a name that two plugins register raises an error that names both.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

import pluggy

from lpsmap_core.plugins import hookspecs
from lpsmap_core.plugins.hookspecs import PROJECT, Kind
from lpsmap_jit.callers import stacklevel

OWN = "lpsmap-core"
"""The distribution whose contributions cannot be disabled."""


class DuplicateNameError(RuntimeError):
    """Two plugins register the same name."""


@dataclass(frozen=True)
class Plugin:
    """A plugin and its distribution."""

    name: str
    """Name of the entry point."""
    distribution: str
    """The distribution that has the entry point."""
    version: str
    """The version of the distribution."""
    seconds: float = 0.0
    """Time that the import took."""

    @classmethod
    def of_entry_point(cls, entry_point: EntryPoint) -> Plugin:
        """Return the plugin of an entry point."""
        assert entry_point.dist is not None  # it is installed
        name = entry_point.dist.metadata["Name"] or "unknown"
        return cls(entry_point.name, name, entry_point.dist.version)

    @property
    def key(self) -> str:
        """Unique name, since entry points of two distributions may have the same name."""
        return f"{self.distribution}:{self.name}"


@dataclass(frozen=True)
class Registration:
    """A class or value that a plugin registers by a name."""

    name: str
    value: Any
    plugin: Plugin


class Contributions(Mapping[str, Registration]):
    """Contributions of plugins of one kind, by name.

    Access to a name that two plugins register is an error. Iteration omits such names.

    Attributes
    ----------
    conflicts
        For every name that two plugins register, the first two registrations.
    """

    def __init__(self) -> None:
        self._first: dict[str, Registration] = {}
        self.conflicts: dict[str, tuple[Registration, Registration]] = {}

    def add(self, registration: Registration) -> None:
        """Add a `registration`."""
        name, first = registration.name, self._first.setdefault(registration.name, registration)
        if first.value is not registration.value:
            self.conflicts.setdefault(name, (first, registration))

    def named(self, name: str, option: str, *others: str) -> Any:
        """Return the value of the name given for an option, which has some `others` of its own.

        Raises a ValueError if no plugin registers the name.
        """
        if name not in self:
            raise ValueError(
                f"{option}: got {name!r}; expected one of {', '.join([*others, *self])}."
            )
        return self[name].value

    def __getitem__(self, name: str) -> Registration:
        if name in self.conflicts:
            raise DuplicateNameError(self.conflict_message(name))
        return self._first[name]

    def __contains__(self, name: object) -> bool:
        return name in self._first  # Mapping's method would raise for a name with a conflict

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._first if name not in self.conflicts)

    def __len__(self) -> int:
        return len(self._first) - len(self.conflicts)

    def conflict_message(self, name: str) -> str:
        """Return the plugins that register a name with a conflict, and how to resolve it."""
        both = self.conflicts[name]
        distributions = dict.fromkeys(r.plugin.distribution for r in both)
        claims = " and ".join(
            f"{r.plugin.distribution} {r.plugin.version} ({_module_of(r.value)})" for r in both
        )
        removable = [distribution for distribution in distributions if distribution != OWN]
        is_one = both[0].plugin.key == both[1].plugin.key
        claimants = "an installed plugin, twice" if is_one else "two installed plugins"
        return (
            f"{name} is claimed by {claimants}, {claims}. Uninstall {' or '.join(removable)}, ask "
            "its author to rename it, or disable the whole plugin: "
            f"{' or '.join(f'{DISABLE}={distribution}' for distribution in removable)}"
        )


def _module_of(value: Any) -> str:
    """Return the module that defines a class, or the function behind a command."""
    return str(getattr(getattr(value, "callback", None) or value, "__module__", "?"))


class PluginWarning(UserWarning):
    """An installed plugin is broken, completely or in part."""


class _ApiVersionError(RuntimeError):
    """A plugin is written for another version of the hooks. The message says what to upgrade."""


class Registry:
    """The contributions of a set of plugins: each kind is an attribute, such as ``factors``.

    Attributes
    ----------
    plugins
        The registered plugins.
    kinds
        The kinds of contributions: the names of hooks without ``lpsmap_``, and what they return.
    """

    def __init__(self) -> None:
        self.plugins: list[Plugin] = []
        self.kinds: dict[str, Kind] = {}
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._specify(hookspecs)

    def _specify(self, specs: ModuleType) -> None:
        """Add the hooks that a module specifies, if it is new."""
        functions = {name: f for name, f in vars(specs).items() if hasattr(f, "lpsmap_kind")}
        kinds = {n.removeprefix("lpsmap_"): f.lpsmap_kind for n, f in functions.items()}
        if not kinds.keys() <= self.kinds.keys():
            self._manager.add_hookspecs(specs)
            self.kinds |= kinds

    def register(self, module: object, plugin: Plugin) -> None:
        """Register hook implementations, and the hooks that the plugin itself specifies.

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
        for specs in getattr(module, SPECS, ()):
            self._specify(specs)
        self._manager.register(module, name=plugin.key)
        self.plugins.append(plugin)
        self._forget()
        try:
            for advice in self._misspelt(module):
                _warn(
                    f"lpsmap: the plugin {plugin.name!r} of {plugin.distribution} {plugin.version} "
                    f"{advice} Until then it is never called."
                )
        except BaseException:  # such as the warning itself, if warnings are errors
            self.unregister(plugin)
            raise

    def unregister(self, plugin: Plugin) -> None:
        """Remove a plugin."""
        self._manager.unregister(name=plugin.key)
        self.plugins.remove(plugin)
        self._forget()

    def _forget(self) -> None:
        for kind in self.kinds:
            vars(self).pop(kind, None)

    def of_kind(self, kind: str) -> Contributions:
        """Return the contributions of a kind; none if no installed plugin specifies the kind."""
        return getattr(self, kind) if kind in self.kinds else Contributions()

    def __getattr__(self, kind: str) -> Contributions:
        """Call the hook of one of `kinds`, and keep the contributions as an attribute."""
        if kind == "kinds" or kind not in self.kinds:
            raise AttributeError(f"the registry has no contributions called {kind!r}")
        contributions = Contributions()
        plugins = {plugin.key: plugin for plugin in self.plugins}
        for implementation in getattr(self._manager.hook, f"lpsmap_{kind}").get_hookimpls():
            plugin = plugins[implementation.plugin_name]
            try:
                values = _checked_values(kind, self.kinds[kind], implementation.function())
            except (Exception, SystemExit) as error:
                _warn_skipped(plugin, error)
                continue
            for name, value in values:
                contributions.add(Registration(name, value, plugin))
        if kind == "factors":
            _reserve_own_names(contributions)
        setattr(self, kind, contributions)
        return contributions

    def _misspelt(self, module: object) -> Iterator[str]:
        """Yield advice about functions that resemble hooks but are not."""
        hooks = [f"lpsmap_{kind}" for kind in self.kinds]
        for name, function in vars(module).items() if hasattr(module, "__dict__") else ():
            if not callable(function) or isinstance(function, type):
                continue
            near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.85)
            if self._manager.parse_hookimpl_opts(module, name) is None:
                if name in hooks:
                    yield f"has a function {name} without decorator; add @lpsmap_core.hookimpl."
                elif near:
                    yield f"has a function {name}, which is not a hook; did you mean {near[0]}?"
            elif name not in hooks:
                nearest = near or difflib.get_close_matches(name, hooks, n=1, cutoff=0.0)
                yield (
                    f"implements {name}, which no installed plugin specifies; did you mean "
                    f"{nearest[0]}?"
                )


SPECS = "lpsmap_hookspecs"
"""The attribute of a plugin's module that lists modules with specifications of hooks."""


def _checked_values(kind: str, expected: Kind, result: Any) -> list[tuple[str, Any]]:
    """Return names and values from the result of a hook, which must be a sequence of a kind."""
    if isinstance(result, (str, type)) or not isinstance(result, Iterable):
        raise TypeError(
            f"lpsmap_{kind} returned {result!r}; expected a list of {expected.expected}"
        )
    values = list(result)
    for value in values:
        if not expected.accepts(value):
            raise TypeError(f"lpsmap_{kind} returned {value!r}; expected {expected.expected}")
    return [(name, value) for value in values for name in expected.names(value)]


def _reserve_own_names(contributions: Contributions) -> None:
    """Register the names of core, so that plugins' types with these names conflict."""
    core: Any = import_module("lpsmap_core")  # dynamic, since its names are in higher layers
    for name in {*core.__all__} & {*contributions}:
        plugin = Plugin("core", OWN, core.__version__)
        contributions.add(Registration(name, getattr(core, name), plugin))


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
    registry, loaded = Registry(), []
    for entry_point in _enabled(list(entry_points(group=hookspecs.PROJECT))):
        plugin, start = Plugin.of_entry_point(entry_point), time.perf_counter()
        try:
            module = entry_point.load()
        except (Exception, SystemExit) as error:  # SystemExit would end the whole process
            _warn_skipped(plugin, error)
        else:
            loaded.append((module, replace(plugin, seconds=time.perf_counter() - start)))
    # hooks are specified before they are implemented
    for module, plugin in sorted(loaded, key=lambda pair: not hasattr(pair[0], SPECS)):
        try:
            registry.register(module, plugin)
        except Exception as error:
            _warn_skipped(plugin, error)
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


# -------------------------------------------------------------------- disabled plugins

DISABLE = "LPSMAP_DISABLE_PLUGINS"
"""Environment variable: ``all``, or a comma-separated list of distributions or entry points."""


def disabled_names() -> set[str]:
    """Return the names in the variable, in normalised form."""
    return {normalised(name) for name in os.environ.get(DISABLE, "").split(",") if name.strip()}


def matching_names(entry_point: EntryPoint) -> set[str]:
    """Return the names in the variable that disable an entry point; ``all`` disables all."""
    plugin = Plugin.of_entry_point(entry_point)
    return {"all", normalised(plugin.name), normalised(plugin.distribution)} & disabled_names()


def is_disabled(distribution: str) -> bool:
    """Return whether an installed distribution has plugins, and all of them are disabled."""
    points = entry_points(group=PROJECT)
    mine = [p for p in points if normalised(Plugin.of_entry_point(p).distribution) == distribution]
    return bool(mine) and all(map(matching_names, mine))


def normalised(name: str) -> str:
    """Return a distribution's name in the normalised form of package indexes."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
