"""The registry of installed plugins and their contributions.

Plugins are loaded when a contribution is first needed. A broken plugin is skipped, with a warning
that names it. Access to a name that two plugins register raises an error that names both.
"""

from __future__ import annotations

import difflib
import functools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pluggy

from lpsmap_core.engine.backends import Backend
from lpsmap_core.engine.choice import AUTO
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins import hookspecs
from lpsmap_core.plugins.contributions import (
    OWN,
    Contributions,
    DuplicateNameError,
    Plugin,
    Registration,
)
from lpsmap_core.plugins.disabled_plugins import DISABLE, disabled_names, matching_names
from lpsmap_core.plugins.formats import FileFormat
from lpsmap_core.plugins.packs import FACE, missing_pack_advice
from lpsmap_core.solution.assignment import OWN_SEARCH
from lpsmap_core.solution.decoder import Decoder
from lpsmap_core.solution.map_solver import MapSolver
from lpsmap_jit.callers import stacklevel

__all__ = [
    "Contributions",
    "DuplicateNameError",
    "Plugin",
    "PluginWarning",
    "Registration",
    "Registry",
    "decoder_for",
    "engine_named",
    "installed",
    "installed_engines",
    "registered",
    "solver_named",
]


class PluginWarning(UserWarning):
    """An installed plugin is broken, completely or in part."""


class _ApiVersionError(RuntimeError):
    """A plugin is written for another version of the hooks. The message says what to upgrade."""


class _HookKind(NamedTuple):
    """The kind of object that a hook returns a sequence of."""

    expected: str
    accepts: Callable[[Any], bool]
    names: Callable[[Any], Iterable[str]]


def _subclasses(base: type[Any], names: Callable[[Any], Iterable[str]]) -> _HookKind:
    return _HookKind(
        f"subclasses of {base.__name__}",
        lambda value: isinstance(value, type) and issubclass(value, base),
        names,
    )


def _suffixes(cls: type[FileFormat]) -> tuple[str, ...]:
    """Return the validated suffixes of a format."""
    found = cls.suffixes
    if not isinstance(found, (tuple, list)) or not all(map(_is_suffix, found)):
        raise TypeError(
            f"{cls.__name__}.suffixes is {found!r}; expected a tuple of suffixes with a dot and in "
            "lower case, such as ('.uai',)"
        )
    return tuple(found)


def _is_suffix(value: Any) -> bool:
    return isinstance(value, str) and Path(f"x{value}").suffix == value == value.lower() != ""


def _is_command(value: Any) -> bool:
    import click  # only needed by the command line

    return isinstance(value, click.Command) and bool(value.name)


KINDS = {
    "lpsmap_factors": _subclasses(Factor, lambda cls: [cls.__name__]),
    "lpsmap_graphs": _subclasses(FactorGraph, lambda cls: [cls.__name__]),
    "lpsmap_formats": _subclasses(FileFormat, _suffixes),
    "lpsmap_commands": _HookKind(
        "click commands with names", _is_command, lambda value: [value.name]
    ),
    "lpsmap_backends": _subclasses(Backend, lambda cls: [cls.name]),
    "lpsmap_engines": _subclasses(Engine, lambda cls: [cls.name]),
    "lpsmap_decoders": _subclasses(Decoder, lambda cls: [cls.name]),
    "lpsmap_solvers": _subclasses(MapSolver, lambda cls: [cls.name]),
}
"""The results of each hook."""


def _by_hook(hook: str) -> Any:
    """Return a property of a registry: the contributions through a hook."""
    return property(lambda registry: registry._contributions_of(hook))


class Registry:
    """The contributions of a set of plugins."""

    def __init__(self) -> None:
        self.plugins: list[Plugin] = []
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._contributions: dict[str, Contributions] = {}

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
        self._contributions.clear()
        for advice in _misspelt(self._manager, module):
            warnings.warn(
                f"lpsmap: the plugin {plugin.name!r} of {plugin.distribution} {plugin.version} "
                f"{advice} Until then it is never called.",
                PluginWarning,
                stacklevel=stacklevel(),
            )

    def unregister(self, plugin: Plugin) -> None:
        """Remove a plugin."""
        self._manager.unregister(name=plugin.key)
        self.plugins.remove(plugin)
        self._contributions.clear()

    factors: Contributions = _by_hook("lpsmap_factors")
    """Factor types by class name."""
    graphs: Contributions = _by_hook("lpsmap_graphs")
    """Factor graphs of adapters by class name."""
    formats: Contributions = _by_hook("lpsmap_formats")
    """File formats by suffix."""
    commands: Contributions = _by_hook("lpsmap_commands")
    """Subcommands of the command line by name."""
    backends: Contributions = _by_hook("lpsmap_backends")
    """Array libraries by name."""
    engines: Contributions = _by_hook("lpsmap_engines")
    """Engines by name."""
    decoders: Contributions = _by_hook("lpsmap_decoders")
    """Decoders by name. A decoder can only be used if it is the only one."""
    solvers: Contributions = _by_hook("lpsmap_solvers")
    """Solvers of whole graphs by name."""

    def _contributions_of(self, hook: str) -> Contributions:
        if hook not in self._contributions:
            contributions = Contributions()
            for plugin in self.plugins:
                for name, value in self._call(plugin, hook):
                    contributions.add(Registration(name, value, plugin))
            if hook == "lpsmap_factors":
                _reserve_own_names(contributions)
            self._contributions[hook] = contributions
        return self._contributions[hook]

    def _call(self, plugin: Plugin, hook: str) -> list[tuple[str, Any]]:
        """Return the contributions of a plugin's hook by name; none, with a warning, on failure."""
        module, kind = self._manager.get_plugin(plugin.key), KINDS[hook]
        others = [p for p in self._manager.get_plugins() if p is not module]
        try:
            results = self._manager.subset_hook_caller(hook, others)()
            values = [value for result in results for value in _checked_sequence(hook, result)]
            for value in values:
                if not kind.accepts(value):
                    raise TypeError(f"{hook} returned {value!r}; expected {kind.expected}")
            return [(name, value) for value in values for name in kind.names(value)]
        except (Exception, SystemExit) as error:
            _warn_skipped(plugin, error)
            return []


def _checked_sequence(hook: str, result: Any) -> Iterable[Any]:
    """Return the result of a hook, which must be a sequence."""
    if isinstance(result, (str, type)) or not isinstance(result, Iterable):
        expected = KINDS[hook].expected
        raise TypeError(f"{hook} returned {result!r}; expected a list of {expected}")
    return result


def _reserve_own_names(contributions: Contributions) -> None:
    """Register the names of ``lpsmap`` itself, so that plugins' types with these names conflict."""
    face = import_module("lpsmap_core")  # dynamic, since it is in a higher layer
    core = Plugin("lpsmap", OWN, face.__version__)
    for name in FACE:
        if name in contributions:
            contributions.add(Registration(name, getattr(face, name), core))


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
    for entry_point in _enabled(entry_points(group=hookspecs.PROJECT)):
        plugin = _plugin_of(entry_point)
        try:
            start = time.perf_counter()
            module = entry_point.load()
            plugin = _plugin_of(entry_point, time.perf_counter() - start)
            registry.register(module, plugin)
        except (Exception, SystemExit) as error:  # SystemExit would end the whole process
            _warn_skipped(plugin, error)
    return registry


def _contribution(option: str, name: str, contributions: Contributions, others: list[str]) -> Any:
    """Return the contribution of a name; `others` are valid names that are not contributions."""
    if name not in contributions:
        expected = ", ".join([*others, *contributions])
        raise ValueError(f"{option}: got {name!r}; expected one of {expected}.")
    return contributions[name].value


def engine_named(name: str) -> type[Engine]:
    """Return the installed engine called `name`.

    Raises
    ------
    ValueError
        If no such engine is installed.
    DuplicateNameError
        If two plugins register the name.
    """
    found: type[Engine] = _contribution("engine", name, installed().engines, [AUTO])
    return found


def installed_engines() -> list[type[Engine]]:
    """Return the installed engines, except for names with a conflict."""
    return installed().engines.values_without_conflict


def decoder_for(verb: str) -> Decoder:
    """Return the installed decoder.

    Raises
    ------
    ImportError
        If no decoder is installed. The message names `verb`, and the package to install.
    RuntimeError
        If several decoders are installed.
    """
    found = list(installed().decoders.values())
    if not found:
        advice = missing_pack_advice("lpsmap-decode")
        raise ImportError(f"{verb}: no decoder of best assignments is installed; {advice}")
    if len(found) > 1:
        names = " and ".join(f"{each.name!r} of {each.plugin.distribution}" for each in found)
        ways = " or ".join(f"{DISABLE}={each.plugin.distribution}" for each in found)
        raise RuntimeError(
            f"{verb}: several decoders are installed, {names}; disable all but one: {ways}"
        )
    decoder: Decoder = found[0].value()
    return decoder


def solver_named(name: str) -> type[MapSolver]:
    """Return the installed solver of whole graphs called `name`.

    Raises
    ------
    ValueError
        If no such solver is installed.
    DuplicateNameError
        If two plugins register the name.
    """
    found: type[MapSolver] = _contribution("solver", name, installed().solvers, [AUTO, OWN_SEARCH])
    return found


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


# -------------------------------------------------------------------- installed distributions


def _plugin_of(entry_point: EntryPoint, seconds: float = 0.0) -> Plugin:
    distribution = entry_point.dist
    if distribution is None:  # for an entry point that was constructed by hand
        return Plugin(entry_point.name, "unknown", "unknown", seconds)
    name = distribution.metadata["Name"] or "unknown"
    return Plugin(entry_point.name, name, distribution.version, seconds)


def _enabled(found: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Return the entry points that are not disabled. Those of core cannot be disabled."""
    found = list(found)
    kept = [each for each in found if _plugin_of(each).distribution == OWN]
    plugins = [each for each in found if each not in kept]
    kept += [each for each in plugins if not matching_names(each)]
    met = {"all"}.union(*map(matching_names, plugins))
    for name in sorted(disabled_names() - met):
        warnings.warn(
            f"{DISABLE} names {name!r}, which is not an installed plugin; expected all, or a "
            "comma-separated list of distributions or entry points. `lpsmap plugins` lists them.",
            PluginWarning,
            stacklevel=stacklevel(),
        )
    return kept


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
    for name, function in vars(module).items() if hasattr(module, "__dict__") else ():
        if not callable(function) or isinstance(function, type):
            continue
        near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.85)
        if manager.parse_hookimpl_opts(module, name) is None:
            if name in KINDS:
                yield f"has a function {name} without decorator; add @lpsmap_core.hookimpl."
            elif near:
                yield f"has a function {name}, which is not a hook; did you mean {near[0]}?"
        elif name not in KINDS:
            nearest = near or difflib.get_close_matches(name, KINDS, n=1, cutoff=0.0)
            yield f"implements {name}, which is not a hook; did you mean {nearest[0]}?"


def _warn_skipped(plugin: Plugin, error: BaseException) -> None:
    if isinstance(error, _ApiVersionError):
        cause = f"{error}."
    else:
        cause = f"{type(error).__name__}: {error}. Update or uninstall {plugin.distribution}."
    warnings.warn(
        f"lpsmap skips the plugin {plugin.name!r} of {plugin.distribution} {plugin.version}: "
        f"{cause} Other plugins are not affected.",
        PluginWarning,
        stacklevel=stacklevel(),
    )
