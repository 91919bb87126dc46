"""A part solved by any engine: what solutions are made of."""

from __future__ import annotations

import dataclasses

import numpy as np

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.numpy_adapter import solve_in_numpy
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.shared_engine import SharedEngine
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.engine.validation import validate_solved
from lpsmap_core.engine.warm_start import GraphStart
from lpsmap_core.layout.layout import Layout, Part
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["linear_start", "named_engines", "solve_part"]


def solve_part(
    engine: Engine,
    layout: Layout,
    eta: FloatArray,
    eta_v: FloatArray,
    bad: BoolArray,
    options: Options,
    start: GraphStart | None,
) -> SolvedGraph:
    """Solve the part of a graph, with NumPy arrays, and validate what an engine returns.

    Parameters
    ----------
    engine
        The engine.
    layout
        The layout of the graph.
    eta, eta_v
        Scores of the part's variables and additionals.
    bad
        (n_components,) flags of components to skip.
    options
        Limits and settings.
    start
        Initial point.
    """
    part = layout.part
    warm = None if start is None else start.of_part(layout)
    solved = solve_in_numpy(engine, part, eta, eta_v, bad, options, warm)
    if not isinstance(engine, CompiledEngine | SharedEngine):
        validate_solved(engine, part, solved, bad)
    return solved


def linear_start(
    engine: Engine, layout: Layout, solved: SolvedGraph, eta: FloatArray, options: Options
) -> GraphStart | None:
    """Return the start of LP-MAP at a solution with the quadratic term, if an engine can use it.

    Parameters
    ----------
    engine
        The engine of LP-MAP.
    layout, solved
        The layout, and the solution.
    eta, options
        The scores of the part's variables, and the options of LP-MAP.
    """
    if not isinstance(engine, CompiledEngine):
        return None
    part = layout.part
    sizes = first_step_sizes(part.first_variable, part.direct, eta, options)
    start = GraphStart.of_solved(layout, solved)
    return dataclasses.replace(start, step_size=sizes, first_step_size=sizes)


def named_engines(engine: Engine, part: Part) -> list[tuple[str, BoolArray]]:
    """Return the engines other than core's, by name, with the components that they solve.

    Where several have a component, the last one solves it.

    Parameters
    ----------
    engine, part
        The engine that was chosen for a part, and the part.
    """
    if isinstance(engine, SharedEngine):
        return [(each.engine.name, each.components) for each in reversed(engine.preferences)]
    if isinstance(engine, CompiledEngine):
        return []
    return [(engine.name, np.ones(part.n_components, dtype=bool))]
