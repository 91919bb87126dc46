"""Linear constraints of structured types: solvers of whole graphs take them, and counts start."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import Bits, Factor, FactorGraph, Matching, Or, Permutation, TopK


def matched(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((3, 4)))
    graph.add(Matching(u, full=str(rng.choice(["rows", "none"]))))  # type: ignore[arg-type]
    graph.add(TopK(u[:, ::2].reshape(6), 2))
    graph.add(Or(~u[0]) if rng.random() < 0.5 else Bits(u[0]))
    return graph


@pytest.mark.parametrize("seed", range(6))
def test_highs_finds_what_the_own_search_finds(seed: int) -> None:
    pytest.importorskip("highspy")
    graph = matched(np.random.default_rng(seed))
    own = graph.solve_map(exact=True, solver="lpsmap")
    found = graph.solve_map(exact=True, solver="highs")
    assert own.ok
    assert found.total == pytest.approx(own.total)


def test_subsets_start_from_multipliers_and_keep_their_structures() -> None:
    scores = np.random.default_rng(0).standard_normal((4, 6))
    graph, plain = FactorGraph(), FactorGraph()
    u, x = graph.variable_from(scores), plain.variable_from(scores)
    top = graph.add(TopK(u, 2))
    graph.add(TopK(u.T, 2, exact=False))
    for v in (x, x.T):
        plain.add(TopK(v, 2, exact=v is x))
    solution = graph.solve(tol=1e-9)
    plain.solve(tol=1e-9, adapt=False)
    assert (solution.iterations <= 2).all()
    np.testing.assert_allclose(u.value, x.value, rtol=0, atol=1e-6)
    for row, found in zip(u.value, solution.structures(top), strict=True):
        np.testing.assert_allclose(found.probabilities @ found.variables, row, atol=1e-8)


@pytest.mark.parametrize(
    ("cls", "made"),
    [(Matching, "_rows_and_columns"), (Permutation, "_doubly_stochastic")],
)
def test_solves_do_not_make_rows(
    cls: type[Factor], made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, calls = FactorGraph(), []
    make = getattr(cls, made)
    monkeypatch.setattr(cls, made, lambda factor: calls.append(1) or make(factor))
    u = graph.variable_from(np.random.default_rng(0).standard_normal((3, 3)))
    factor = graph.add(cls(u))
    graph.add(TopK(u[0], 2, exact=False))
    assert graph.solve().ok
    assert not calls
    constraints = factor.linear_constraints()
    assert constraints is not None
    assert len(constraints.row) == len(constraints.column) > 0
    assert len(calls) == 1, "read twice, made once"


def test_long_orderings_have_no_description() -> None:
    graph = FactorGraph()
    assert Permutation(graph.variable(100)).linear_constraints() is not None
    assert Permutation(graph.variable(101)).linear_constraints() is None
