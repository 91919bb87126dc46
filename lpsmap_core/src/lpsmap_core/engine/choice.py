"""The engines of a graph: the choice for every component, and several that share a part.

Each engine solves the components that it prefers, or those that it serves if the user requests it.
Core's engine solves the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.engine_results import (
    MergedGraph,
    Result,
    merge_ends,
    solve_in_numpy,
    validate_solved,
)
from lpsmap_core.engine.options import Options, options_of_engine
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Part
from lpsmap_core.plugins.registry import installed
from lpsmap_jit.arrays import BoolArray, FloatArray

AUTO = "auto"
"""The name by which the library chooses."""


class Preference(NamedTuple):
    """An engine, and the components that it prefers."""

    engine: Engine
    components: BoolArray


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
    if name == AUTO:
        return _not_refused(_automatic(part, options), part, options)
    engine_type: type[Engine] = installed().engines.named(name, "engine", AUTO)
    return beside_core(engine_type(), "was requested", part, options)


def _not_refused(choice: EngineChoice, part: Part, options: Options) -> EngineChoice:
    """Return a choice, unless the engine refuses the part or the options."""
    refusal = choice.engine.refuses(part, options)
    if refusal is not None:
        raise ValueError(refusal)
    return choice


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
    reason += f" as {engine.name}, and {_CORE.engine.name} has the components that it does not "
    reason += f"serve, of {', '.join(sorted(others))}"
    return _not_refused(EngineChoice(SharedEngine(shared), reason, shared), part, options)


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


# -------------------------------------------------------------------- engines that share a part


class SharedEngine(Engine):
    """Solves components by the engines that prefer them, and all others by core's engine.

    Parameters
    ----------
    preferences
        The engines and their preferred components, in order of priority.
    """

    name = "shared"

    def __init__(self, preferences: Sequence[Preference]) -> None:
        self.preferences = preferences
        self.core = CompiledEngine()

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why core's engine, which continues unfinished components, cannot solve a part."""
        return self.core.refuses(part, options)

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedGraph:
        """Solve a part; see `Engine.solve`.

        With a warm start, only engines with `needs_no_start` get their preferred components.
        """
        results, start = self._solve_preferred(part, eta, eta_v, skip, options, warm)
        finished = np.zeros(part.n_components, dtype=bool)
        for result in results:
            finished |= result.components
        if not finished.any() or not (finished | skip).all():
            rest = self.core.solve(part, eta, eta_v, skip | finished, options, start)
            if not finished.any():
                return rest
            results.insert(0, Result(rest, ~finished))
        return results[0].solved if len(results) == 1 else MergedGraph(results)

    def _solve_preferred(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None,
    ) -> tuple[list[Result], WarmStart | None]:
        """Return what the preferring engines finished, and the start of core's engine for the rest.

        A result of which nothing is finished ends here, since its arrays may be large.
        """
        remaining = ~skip
        results: list[Result] = []
        ends: list[Result] = []
        for engine, components in self.preferences:
            assigned = components & remaining
            if not assigned.any() or not (warm is None or engine.needs_no_start):
                continue
            solved = solve_validated(engine, part, eta, eta_v, ~assigned, options)
            unfinished = assigned & solved.unfinished()
            finished = assigned & ~unfinished
            if finished.any():
                results.append(Result(solved, finished))
            if unfinished.any():
                ends.append(Result(solved, unfinished))
            remaining &= ~finished
        return results, merge_ends(part, ends) if warm is None else warm


def solve_validated(
    engine: Engine,
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> SolvedGraph:
    """Solve a part by any engine, with NumPy arrays, and validate what a plugin's returns.

    The arguments are those of `Engine.solve`.
    """
    solved = solve_in_numpy(engine, part, eta, eta_v, skip, options, warm)
    if not isinstance(engine, CompiledEngine | SharedEngine):
        validate_solved(engine, part, solved, skip)
    return solved
