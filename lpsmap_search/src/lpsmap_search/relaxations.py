"""The relaxations that bound boxes, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lpsmap_search.box_space import BoxSpace

RELAXATIONS = {
    "chord": "lpsmap_search.chord_space:ChordSpace",
    "lagrangian": "lpsmap_search.lagrangian_space:LagrangianSpace",
    "mccormick": "lpsmap_search.paper:McCormickSpace",
}
"""Modules and classes of the spaces; they are imported on first use, with their dependencies."""


def relaxation_named(name: str) -> Callable[..., BoxSpace[Any]]:
    """Return the space class of a relaxation.

    Raises
    ------
    ValueError
        If the relaxation is unknown.
    """
    if not isinstance(name, str) or name not in RELAXATIONS:
        names = ", ".join(map(repr, RELAXATIONS))
        raise ValueError(f"relaxation: got {name!r}; expected one of {names}.")
    module, _, attribute = RELAXATIONS[name].partition(":")
    relaxation: Callable[..., BoxSpace[Any]] = getattr(importlib.import_module(module), attribute)
    return relaxation
