"""Checks of engines."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.engine_results import solve_in_numpy, validate_solved
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import OK
from lpsmap_core.graph import FactorGraph
from lpsmap_core.layout.layout import Part, build_layout
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import BoolArray, FloatArray

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
        If it refuses the graph, changes the scores, does not solve a component, returns other
        marginals, additionals or products with the Jacobian, or if a residual or a bound is NaN.
    RuntimeError
        If its result is not a valid solved graph.
    ValueError
        If all products with the graph's Jacobian are zero.
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
    _require_bounds(name, got, part.n_components)
    _compare("marginals", name, got.marginals(), expected.marginals())
    _compare("additionals", name, got.additionals(), expected.additionals())
    rng, largest = np.random.default_rng(seed), 0.0
    for _ in range(DIRECTIONS):
        d, d_v = rng.normal(size=part.n_variables), rng.normal(size=part.n_additionals)
        products = [_product(name, solved, d, d_v) for solved in (got, expected)]
        _compare("products with the Jacobian", name, *products)
        largest = max(largest, np.abs(products[1]).max(initial=0.0))
    if largest <= CLOSE:
        raise ValueError(
            "graph: its products with the Jacobian are all zero; expected marginals between 0 and "
            "1, at which wrong products can be detected. Choose smaller scores."
        )
    _solved(engine(), graph, part, options, ~skip)  # without components


def _solved(
    engine: Engine, graph: FactorGraph, part: Part, options: Options, skip: BoolArray
) -> SolvedGraph:
    additionals = [graph.additional_scores(factor) for factor in graph.factors]
    eta, eta_v = part.of_graph(graph.flat_scores()), part.by_bucket(additionals, graph.factors)
    before = eta.copy()
    solved = solve_in_numpy(engine, part, eta, eta_v, skip, options, None)
    if not np.array_equal(eta, before):
        raise broken(
            "an engine does not change the scores, because they are those of the solution",
            f"scores {eta!r:.120} after solve",
            f"{before!r:.120}",
            type(engine).__name__,
        )
    return solved


def _require_bounds(name: str, solved: SolvedGraph, n_components: int) -> None:
    """Require that residuals and bounds are numbers, one for each component."""
    numbers = {
        "primal_residual": solved.primal_residual,
        "dual_residual": solved.dual_residual,
        "gap": solved.gap(),
        "error_bound": solved.error_bound(1),
        "assignment_bound": solved.assignment_bound(),
    }
    for what, values in numbers.items():
        if np.shape(values) != (n_components,) or np.isnan(values).any():
            raise broken(
                "residuals and bounds are numbers, one for each component, because users decide "
                "by them whether a solution is good enough",
                f"{what} {values!r}",
                f"{n_components} numbers; inf for an unknown bound",
                name,
            )


def _product(name: str, solved: SolvedGraph, d: FloatArray, d_v: FloatArray) -> FloatArray:
    """Return a product with the Jacobian, its variables and then its additionals."""
    cause: Exception | None = None
    try:
        result: object = solved.multiply(d.copy(), d_v.copy(), None, 1)
    except (TypeError, ValueError) as error:  # the adapter of another library unpacks the pair
        result, cause = error, error
    if isinstance(result, tuple):
        shapes = [np.shape(array) for array in result]
        if shapes == [d.shape, d_v.shape]:
            return np.concatenate(result)
        got = f"a tuple of arrays of shapes {shapes}"
    else:
        got = f"{type(result).__name__}: {result}"
    raise broken(
        "multiply returns two arrays, the product's entries for the variables and for the "
        "additionals, because the Jacobian has rows for both",
        got,
        f"a tuple of two arrays, of shapes {d.shape} and {d_v.shape}",
        name,
    ) from cause


def _compare(what: str, name: str, got: FloatArray, expected: FloatArray) -> None:
    same = np.shape(got) == np.shape(expected)
    if not (same and np.abs(got - expected).max(initial=0.0) <= CLOSE):  # false for NaN, too
        raise broken(
            f"{what} agree with core's engine, because the solution is unique",
            np.round(got, 6).tolist(),
            np.round(expected, 6).tolist(),
            name,
        )
