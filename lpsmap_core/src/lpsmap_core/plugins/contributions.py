"""Contributions of plugins of one kind, by name, with name conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from lpsmap_core.plugins.disabled_plugins import DISABLE

__all__ = ["OWN", "Contributions", "DuplicateNameError", "Plugin", "Registration"]

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
        distribution = entry_point.dist
        if distribution is None:  # for an entry point that was constructed by hand
            return cls(entry_point.name, "unknown", "unknown")
        name = distribution.metadata["Name"] or "unknown"
        return cls(entry_point.name, name, distribution.version)

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
        """Return the value that is registered by the name given for an option.

        Parameters
        ----------
        name
            The name.
        option
            Name of the option, for errors.
        *others
            Further values that the option may have, for errors.

        Raises
        ------
        ValueError
            If no plugin registers the name.
        DuplicateNameError
            If two plugins register it.
        """
        if name not in self:
            raise ValueError(
                f"{option}: got {name!r}; expected one of {', '.join([*others, *self])}."
            )
        return self[name].value

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
