"""LP-MAP of separate factors by their oracles, compared with the state of the loop."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from lpsmap import FactorGraph, Matching, Xor
from lpsmap_core import Factor, Solution, Status, installed
from lpsmap_core.engine.best_structures import BestStructures
from lpsmap_core.model.slots import slot_values
from lpsmap_core.testing.graphs import declared_again

TYPES = [registered.value for registered in installed().factors.values()]


def solved_twice(graph: FactorGraph) -> tuple[Solution, Solution]:
    """Solve by the oracles, and in the state of the loop, which alone keeps a trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infeasible draws
        fast, slow = (graph.solve_map(trace=t, engine="compiled") for t in (False, True))
    assert isinstance(fast, Solution)
    assert isinstance(slow, Solution)
    assert not isinstance(slow.solved, BestStructures)
    return fast, slow


@pytest.mark.parametrize("masked", [0.0, 0.15])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_the_oracles_of_all_types_give_the_solutions_of_the_loop(
    kind: type[Factor], masked: float
) -> None:
    rng = np.random.default_rng(7)
    for example in [e for e in kind.examples() for _ in range(3)]:
        n = int(example.offsets[-1])
        scores, flip = rng.normal(size=(1, n)), rng.random((1, n)) < 0.3
        negated = slot_values(example, example.variables.negated) ^ flip
        forbidden = np.where(negated, np.inf, -np.inf)
        scores = np.where(rng.random((1, n)) < masked, forbidden, scores)
        eta_v = rng.normal(size=(1, example.n_factors, example.n_additionals))
        again = declared_again(example, scores, eta_v, flip)
        (factor,) = again.factors
        fast, slow = solved_twice(again.graph)
        feasible = (slow.status == Status.SOLVED).all()
        assert isinstance(fast.solved, BestStructures) == (
            feasible and again.graph._laid_out().part.all_direct
        )
        np.testing.assert_array_equal(fast.status, slow.status)
        np.testing.assert_array_equal(fast.values, slow.values)
        np.testing.assert_allclose(fast.objective, slow.objective, rtol=1e-12)
        bounds = fast.solved.assignment_bound(), slow.solved.assignment_bound()
        np.testing.assert_allclose(*bounds, rtol=1e-12)
        for ours, theirs in zip(fast.additionals, slow.additionals, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert repr(fast.structures(factor)) == repr(slow.structures(factor))
        np.testing.assert_array_equal(fast.dual_variables(factor), slow.dual_variables(factor))


@pytest.mark.parametrize("scores", [[-1e12, 1.0, -1e12], [np.nan, 1.0, 2.0], [-np.inf] * 3])
def test_the_loop_has_huge_non_finite_and_infeasible_scores(scores: list[float]) -> None:
    graph = FactorGraph()
    u = graph.variable_from([scores, [1.0, 2.0, 0.5]])
    graph.add(Xor(u))
    fast, slow = solved_twice(graph)
    np.testing.assert_array_equal(fast.status, slow.status)
    np.testing.assert_array_equal(fast.values, slow.values)


def test_a_matching_attains_its_bound_and_starts_a_solve() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(3, 5, 7)))
    graph.add(Matching(u))
    fast, _ = solved_twice(graph)
    np.testing.assert_array_equal(fast.gap, 0.0)
    assert np.isinf(fast.error_bound).all()
    assert not fast.vjp(np.ones(len(fast.values)))[0].any()
    assert graph.solve(warm_start=fast).ok
