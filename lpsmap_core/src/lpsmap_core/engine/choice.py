"""Which engines solve a graph: those that prefer its components, or one that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from lpsmap_core.engine.compiled import CompiledEngine, run_in_tiers
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.engine.together import Preference, SharedEngine
from lpsmap_core.layout.layout import Part

__all__ = ["AUTO", "EngineChoice", "choose_engine", "find_engines_by", "run_with"]

Result = TypeVar("Result")

AUTO = "auto"
"""The name that leaves the choice to the library."""


class EngineChoice(NamedTuple):
    """The engine of a graph, and why it is this one."""

    engine: Engine
    reason: str


class _Finders(NamedTuple):
    """How engines of plugins are found."""

    named: Callable[[str], type[Engine]]
    offered: Callable[[], Iterable[type[Engine]]]


_OWN = EngineChoice(CompiledEngine(), "serves every graph")

_finders: list[_Finders] = []


def find_engines_by(
    named: Callable[[str], type[Engine]], offered: Callable[[], Iterable[type[Engine]]]
) -> None:
    """Let functions find engines; plugins, who have them, are a floor above.

    Parameters
    ----------
    named
        Returns the engine of a name.
    offered
        Returns all engines that there are.
    """
    _finders[:] = [_Finders(named, offered)]


def choose_engine(name: str, part: Part, options: Options) -> EngineChoice:
    """Return the engine for a graph.

    Raises
    ------
    ValueError
        If there is no engine of this name, or it refuses the graph or the options.
    """
    choice = _automatic(part, options) if name == AUTO else _asked_for(name, part, options)
    return _not_refused(choice, part, options)


def _not_refused(choice: EngineChoice, part: Part, options: Options) -> EngineChoice:
    """Return a choice, unless the engine refuses the part or the options."""
    refusal = choice.engine.refuses(part, options)
    if refusal is not None:
        raise ValueError(refusal)
    return choice


def _asked_for(name: str, part: Part, options: Options) -> EngineChoice:
    """Return the engine of a name, beside core's for the components that it does not serve."""
    (find,) = _finders
    choice = EngineChoice(find.named(name)(), "was asked for")
    served = choice.engine.serves(part)
    if served is None or served.all():
        return choice
    engine = _not_refused(choice, part, options).engine
    others = {bucket.type.__name__ for bucket in part.buckets if not served[bucket.component].all()}
    return EngineChoice(
        SharedEngine([Preference(engine, served)]),
        f"was asked for as {name}, and {_OWN.engine.name} has the components that it does not "
        f"serve, of {', '.join(sorted(others))}",
    )


def run_with(name: str, work: Callable[[], Result], size: Callable[[], int]) -> Result:
    """Do the work of a solve as the engine of a name wants it done.

    Engines of plugins are called once, whatever they raise.

    Parameters
    ----------
    name
        As for `choose_engine`.
    work, size
        As for `run_in_tiers`.
    """
    return run_in_tiers(work, size) if name in (AUTO, CompiledEngine.name) else work()


def _automatic(part: Part, options: Options) -> EngineChoice:
    """Return core's engine, beside those that prefer components."""
    (find,) = _finders
    preferences = []
    for engine_type in find.offered():
        if engine_type.prefers is Engine.prefers:
            continue
        engine = engine_type()
        components = engine.prefers(part, options)
        if components is not None and components.any():
            preferences.append(Preference(engine, components))
    if not preferences:
        return _OWN
    names = " and ".join(preference.engine.name for preference in preferences)
    return EngineChoice(
        SharedEngine(preferences),
        f"gives {names} what it prefers, and {_OWN.engine.name} the rest",
    )
