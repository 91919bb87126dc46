"""Contributions of plugins of one kind, by name, with name conflicts."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lpsmap_core.plugins.disabled_plugins import DISABLE

__all__ = ["OWN", "Contributions", "DuplicateNameError", "Plugin", "Registration"]

OWN = "lpsmap-core"
"""The distribution whose contributions cannot be disabled."""


class DuplicateNameError(RuntimeError):
    """Two plugins register the same name."""


@dataclass(frozen=True)
class Plugin:
    """A plugin and its distribution.

    Attributes
    ----------
    name
        Name of the entry point.
    distribution, version
        The distribution that has the entry point.
    seconds
        Time that the import took.
    """

    name: str
    distribution: str
    version: str
    seconds: float = 0.0

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
        self._found: dict[str, Registration] = {}
        self.conflicts: dict[str, tuple[Registration, Registration]] = {}

    def add(self, mine: Registration) -> None:
        """Add the registration `mine`."""
        other = self._found.setdefault(mine.name, mine)
        if other.value is not mine.value:
            self.conflicts.setdefault(mine.name, (other, mine))

    @functools.cached_property
    def values_without_conflict(self) -> list[Any]:
        """The values of names without conflict, once all registrations are added."""
        return [registration.value for registration in self.values()]

    def __getitem__(self, name: str) -> Registration:
        """Return a registration.

        Raises
        ------
        KeyError
            If no plugin registers the name.
        DuplicateNameError
            If two plugins register it.
        """
        if name in self.conflicts:
            raise DuplicateNameError(self.conflict_message(name))
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found  # Mapping's method would raise for a name with a conflict

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._found if name not in self.conflicts)

    def __len__(self) -> int:
        return len(self._found) - len(self.conflicts)

    def conflict_message(self, name: str) -> str:
        """Return the plugins that register a name with a conflict, and how to resolve it."""
        first, second = self.conflicts[name]
        if first.plugin.key == second.plugin.key:
            return (
                f"{name} is registered twice by {first.plugin.distribution} {first.plugin.version} "
                f"({_module_of(first.value)} and {_module_of(second.value)}). Ask its author to "
                f"rename one, or disable it: {DISABLE}={first.plugin.distribution}"
            )
        claims = " and ".join(
            f"{claim.plugin.distribution} {claim.plugin.version} ({_module_of(claim.value)})"
            for claim in (first, second)
        )
        others = {p.distribution: None for p in (first.plugin, second.plugin)}
        others.pop(OWN, None)
        ways = " or ".join(f"{DISABLE}={distribution}" for distribution in others)
        return (
            f"{name} is claimed by two installed plugins, {claims}. Uninstall "
            f"{' or '.join(others)}, ask its author to rename it, or disable the whole plugin: "
            f"{ways}"
        )


def _module_of(value: Any) -> str:
    """Return the module that defines a class, or the function behind a command."""
    return str(getattr(getattr(value, "callback", None) or value, "__module__", "?"))
