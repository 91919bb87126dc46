"""Which engine solves a graph: core's own, or one that is asked for by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.layout.layout import Part

__all__ = ["AUTO", "EngineChoice", "choose_engine", "find_engines_by"]

AUTO = "auto"
"""The name that leaves the choice to the library."""

Find = Callable[[str], type[Engine]]


class EngineChoice(NamedTuple):
    """The engine of a graph, and why it is this one."""

    engine: Engine
    reason: str


_OWN = EngineChoice(CompiledEngine(), "serves every graph")

_finders: list[Find] = []


def find_engines_by(find: Find) -> None:
    """Let a function find engines by their names; plugins, who have them, are a floor above."""
    _finders[:] = [find]


def choose_engine(name: str, part: Part, options: Options) -> EngineChoice:
    """Return the engine for a graph.

    Raises
    ------
    ValueError
        If there is no engine of this name, or it refuses the graph or the options.
    """
    if name == AUTO:
        choice = _OWN
    else:
        (find,) = _finders
        choice = EngineChoice(find(name)(), "was asked for")
    refusal = choice.engine.refuses(part, options)
    if refusal is not None:
        raise ValueError(refusal)
    return choice
