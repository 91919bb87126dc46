"""Plugins that the environment variable ``LPSMAP_DISABLE_PLUGINS`` leaves out."""

from __future__ import annotations

import os
import re
from importlib.metadata import EntryPoint, entry_points

from lpsmap_core.plugins.hookspecs import PROJECT

__all__ = ["DISABLE", "disabled_names", "is_disabled", "matching_names"]

DISABLE = "LPSMAP_DISABLE_PLUGINS"
"""Environment variable: ``all``, or a list of distributions or entry points with commas."""


def disabled_names() -> set[str]:
    """Return the names that the variable has, as package indices compare them."""
    return {_normalised(name) for name in os.environ.get(DISABLE, "").split(",") if name.strip()}


def matching_names(entry_point: EntryPoint) -> set[str]:
    """Return which of the variable's names leave an entry point out; ``all`` does all."""
    distribution = "" if entry_point.dist is None else entry_point.dist.metadata["Name"] or ""
    return {"all", _normalised(entry_point.name), _normalised(distribution)} & disabled_names()


def is_disabled(distribution: str) -> bool:
    """Whether an installed distribution has plugins, all of which the variable leaves out."""
    own = [
        each
        for each in entry_points(group=PROJECT)
        if each.dist is not None and _normalised(each.dist.metadata["Name"] or "") == distribution
    ]
    return bool(own) and all(map(matching_names, own))


def _normalised(name: str) -> str:
    """Return a distribution's name as package indices compare names."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
