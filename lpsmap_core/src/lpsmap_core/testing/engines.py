"""Checks of engines."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.numpy_adapter import solve_in_numpy
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import OK
from lpsmap_core.engine.validation import validate_solved
from lpsmap_core.graph import FactorGraph
from lpsmap_core.layout.layout import Part, build_layout
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["check_engine"]

CLOSE = 1e-4
"""Allowed difference of two engines' marginals, with residuals of 1e-7."""

DIRECTIONS = 3
"""Number of vectors for products with each Jacobian."""


def check_engine(engine: type[Engine], graph: FactorGraph, *, seed: int = 0) -> None:
    """Compare an engine with core's on a graph.

    Parameters
    ----------
    engine
        The engine.
    graph
        A small graph that the engine does not refuse.
    seed
        Seed of the vectors.

    Raises
    ------
    ConformanceError
        If it refuses the graph, does not solve a component, or returns other marginals, additionals
        or products with the Jacobian.
    RuntimeError
        If its result is not a valid solved graph.
    """
    name, options = engine.__name__, Options(tol=1e-7, max_iter=100_000)
    part = build_layout(graph.n_variables, graph.factors).part
    refusal = engine().refuses(part, options)
    if refusal is not None:
        raise broken(
            "an engine accepts the graph that it is checked on, because the check needs a solution",
            refusal,
            "None; choose a graph of factors that it accepts",
            name,
        )
    skip = np.zeros(part.n_components, dtype=np.bool_)
    got, expected = (
        _solved(kind(), graph, part, options, skip) for kind in (engine, CompiledEngine)
    )
    validate_solved(engine(), part, got, skip)
    unsolved = [status for status in got.status().tolist() if status not in OK]
    if unsolved:
        raise broken(
            "an engine solves the graph that it is checked on, because core's engine solves it",
            f"components whose status is {', '.join(map(str, unsolved))}",
            "CONVERGED or another status of a solution",
            name,
        )
    _compare("marginals", name, got.marginals(), expected.marginals())
    _compare("additionals", name, got.additionals(), expected.additionals())
    rng = np.random.default_rng(seed)
    for _ in range(DIRECTIONS):
        d, d_v = rng.normal(size=part.n_variables), rng.normal(size=part.n_additionals)
        products = [solved.multiply(d.copy(), d_v.copy(), None, 1) for solved in (got, expected)]
        _compare("products with the Jacobian", name, *(np.concatenate(x) for x in products))
    _solved(engine(), graph, part, options, ~skip)  # without components


def _solved(
    engine: Engine, graph: FactorGraph, part: Part, options: Options, skip: BoolArray
) -> SolvedGraph:
    additionals = [graph.additional_scores(factor) for factor in graph.factors]
    eta = part.of_graph(graph.flat_scores())
    return solve_in_numpy(
        engine, part, eta, part.by_bucket(additionals, graph.factors), skip, options, None
    )


def _compare(what: str, name: str, got: FloatArray, expected: FloatArray) -> None:
    if np.shape(got) != np.shape(expected) or np.abs(got - expected).max(initial=0.0) > CLOSE:
        raise broken(
            f"{what} agree with core's engine, because the solution is unique",
            np.round(got, 6).tolist(),
            np.round(expected, 6).tolist(),
            name,
        )
