"""The choice of engines for a graph: those that prefer its components, or the one requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options, options_of_engine
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.engine.shared_engine import Preference, SharedEngine
from lpsmap_core.layout.layout import Part
from lpsmap_core.plugins.registry import installed

AUTO = "auto"
"""The name by which the library chooses."""


class EngineChoice(NamedTuple):
    """The engine of a graph, and the reason for the choice."""

    engine: Engine
    reason: str
    preferences: Sequence[Preference] = ()
    """Engines other than core's, with their components; the first of several solves a component."""


_CORE = EngineChoice(CompiledEngine(), "serves every graph")


def choose_engine(name: str, part: Part, options: Options) -> EngineChoice:
    """Return the engine for a graph.

    Parameters
    ----------
    name
        Name of the engine, or ``"auto"``.
    part
        The part of the graph that has factors.
    options
        Options of the solve.

    Raises
    ------
    ValueError
        If there is no engine of this name, or if it refuses the graph or the options.
    """
    options = options_of_engine(options)
    choice = _automatic(part, options) if name == AUTO else _requested(name, part, options)
    return _not_refused(choice, part, options)


def _not_refused(choice: EngineChoice, part: Part, options: Options) -> EngineChoice:
    """Return a choice, unless the engine refuses the part or the options."""
    refusal = choice.engine.refuses(part, options)
    if refusal is not None:
        raise ValueError(refusal)
    return choice


def _requested(name: str, part: Part, options: Options) -> EngineChoice:
    engine_type: type[Engine] = installed().engines.named(name, "engine", AUTO)
    return beside_core(engine_type(), "was requested", part, options)


def beside_core(engine: Engine, reason: str, part: Part, options: Options) -> EngineChoice:
    """Return the choice of an engine, and of core's for the components that it does not serve.

    The reason is such as "was requested". It is an error if the engine refuses the graph.
    """
    everything = Preference(engine, np.ones(part.n_components, dtype=bool))
    alone = () if isinstance(engine, CompiledEngine) else (everything,)
    choice = _not_refused(EngineChoice(engine, reason, alone), part, options)
    served = engine.serves(part)
    if served is None or served.all():
        return choice
    shared = [Preference(engine, served)]
    others = {bucket.type.__name__ for bucket in part.buckets if not served[bucket.component].all()}
    return EngineChoice(
        SharedEngine(shared),
        f"{reason} as {engine.name}, and {_CORE.engine.name} has the components that it does not "
        f"serve, of {', '.join(sorted(others))}",
        shared,
    )


def _automatic(part: Part, options: Options) -> EngineChoice:
    """Return core's engine, combined with the engines that prefer components."""
    preferences = []
    for engine_type in (registration.value for registration in installed().engines.values()):
        if engine_type.prefers is Engine.prefers:
            continue
        engine = engine_type()
        components = engine.prefers(part, options)
        if components is not None and components.any():
            preferences.append(Preference(engine, components))
    if not preferences:
        return _CORE
    names = " and ".join(preference.engine.name for preference in preferences)
    return EngineChoice(
        SharedEngine(preferences),
        f"gives {names} what it prefers, and {_CORE.engine.name} the rest",
        preferences,
    )
