"""The names of ``lpsmap`` that are resolved on first use, so that it imports no unused pack."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from lpsmap.advice import advice_on
from lpsmap_core import installed
from lpsmap_core.api import Registry

__all__ = ["listed_names", "resolve"]

OWN = (
    *("ALGORITHM_1", "ConvergenceWarning", "Factor", "FactorGraph", "PFactorGraph", "Solution"),
    *("Status", "Variables", "__version__", "stack"),
)
"""Names that need no pack."""


def resolve(name: str) -> Any:
    """Return what ``lpsmap`` offers by `name`, if it is not imported already.

    Raises
    ------
    ImportError
        If there is no such name, in ``from lpsmap import ...``, which would hide the message of an
        AttributeError.
    AttributeError
        Otherwise. The message advises what to import, to install, or to write instead.
    """
    if name == "PFactorGraph":
        return import_module("lpsmap.earlier").PFactorGraph
    if name == "plot":
        return import_module("lpsmap.plot")
    if name == "__all__":  # `import *` does not import torch or matplotlib
        registry = installed()
        return [*_names(registry), *(_graphs(registry) if "torch" in sys.modules else ())]
    if name.startswith("_"):
        raise AttributeError(f"module 'lpsmap' has no attribute {name!r}")
    registry = installed()
    if name == "solve_many" and _has(registry, "lpsmap-decode"):
        return import_module("lpsmap_decode").solve_many
    registration = registry.factors.get(name) or registry.graphs.get(name)
    if registration is not None:
        return registration.value
    message = f"module 'lpsmap' has no attribute {name!r}; {advice_on(name, registry.factors)}"
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":
        raise ImportError(message)
    raise AttributeError(message, name=name, obj=None)  # otherwise Python adds suggestions


def listed_names() -> list[str]:
    """Return all names of ``lpsmap``, for completion; torch is not imported."""
    registry = installed()
    return sorted([*_names(registry), *_graphs(registry), "plot"])


def _graphs(registry: Registry) -> list[str]:
    """Return the names of graphs of adapters."""
    return ["TorchFactorGraph"] if _has(registry, "lpsmap-torch") else []


def _names(registry: Registry) -> list[str]:
    """Return the names that ``from lpsmap import *`` imports."""
    of_decode = ["solve_many"] if _has(registry, "lpsmap-decode") else []
    return sorted([*OWN, *of_decode, *registry.factors])


def _has(registry: Registry, distribution: str) -> bool:
    """Return whether a distribution has a plugin that is installed and not disabled."""
    return any(plugin.distribution == distribution for plugin in registry.plugins)
