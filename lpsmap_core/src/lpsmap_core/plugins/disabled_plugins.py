"""Plugins that the environment variable ``LPSMAP_DISABLE_PLUGINS`` disables."""

from __future__ import annotations

import os
import re
from importlib.metadata import EntryPoint, entry_points

from lpsmap_core.plugins.hookspecs import PROJECT

__all__ = ["DISABLE", "disabled_names", "is_disabled", "matching_names", "normalised"]

DISABLE = "LPSMAP_DISABLE_PLUGINS"
"""Environment variable: ``all``, or a comma-separated list of distributions or entry points."""


def disabled_names() -> set[str]:
    """Return the names in the variable, in normalised form."""
    return {normalised(name) for name in os.environ.get(DISABLE, "").split(",") if name.strip()}


def matching_names(entry_point: EntryPoint) -> set[str]:
    """Return the names in the variable that disable an entry point; ``all`` disables all."""
    distribution = "" if entry_point.dist is None else entry_point.dist.metadata["Name"] or ""
    return {"all", normalised(entry_point.name), normalised(distribution)} & disabled_names()


def is_disabled(distribution: str) -> bool:
    """Return whether an installed distribution has plugins, and all of them are disabled."""
    plugins = [
        each
        for each in entry_points(group=PROJECT)
        if each.dist is not None and normalised(each.dist.metadata["Name"] or "") == distribution
    ]
    return bool(plugins) and all(map(matching_names, plugins))


def normalised(name: str) -> str:
    """Return a distribution's name in the normalised form of package indexes."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
