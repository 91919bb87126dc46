"""A part solved by any engine: what solutions are made of."""

from __future__ import annotations

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.numpy_adapter import solve_in_numpy
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.engine.shared_engine import SharedEngine
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.engine.validation import validate_solved
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["linear_start", "solve_part"]


def solve_part(
    engine: Engine,
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    bad: BoolArray,
    options: Options,
    warm: WarmStart | None,
) -> SolvedGraph:
    """Solve the part of a graph, with NumPy arrays, and validate what an engine returns.

    Parameters
    ----------
    engine
        The engine.
    part
        The part.
    eta, eta_v
        Scores of the part's variables and additionals.
    bad
        (n_components,) flags of components to skip.
    options
        Limits and settings.
    warm
        Initial point.
    """
    solved = solve_in_numpy(engine, part, eta, eta_v, bad, options, warm)
    if not isinstance(engine, CompiledEngine | SharedEngine):
        validate_solved(engine, part, solved, bad)
    return solved


def linear_start(
    engine: Engine, solved: SolvedGraph, eta: FloatArray, options: Options
) -> WarmStart | None:
    """Return the start of LP-MAP at a solution with the quadratic term, if an engine can use it.

    Parameters
    ----------
    engine
        The engine of LP-MAP.
    solved
        The solution.
    eta, options
        The scores of the part's variables, and the options of LP-MAP.
    """
    end = solved.end() if isinstance(engine, CompiledEngine) else None
    if end is None:
        return None
    part = solved.part
    sizes = first_step_sizes(part.first_variable, part.direct, eta, options)
    return end._replace(step_size=sizes, first_step_size=sizes)
