"""The engine in tensor operations against core's engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import (
    AtMostOne,
    Budget,
    ConvergenceWarning,
    Factor,
    Matching,
    Nand,
    Pair,
    TorchFactorGraph,
    Xor,
)
from lpsmap_torch.layers import MatchingAttention, SparseMAP


def matchings(scores: Any) -> tuple[TorchFactorGraph, Any]:
    """Return a graph of a matching an instance, whose columns may stay free."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return graph, u


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def values_by(engine: str) -> Callable[[Tensor], Tensor]:
    def values(scores: Tensor) -> Tensor:
        graph, u = matchings(scores)
        graph.solve(engine=engine, tol=1e-11, max_iter=20_000)
        found: Tensor = u.value
        return found

    return values


def test_gradients_are_those_of_cores_engine() -> None:
    found, expected = (
        torch.autograd.functional.jacobian(values_by(engine), normal(2, 3, 4))
        for engine in ("tensor", "compiled")
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_second_derivatives_are_zero_within_a_face_and_chain_through() -> None:
    scores = normal(2, 3, 4).requires_grad_()

    def loss(x: Tensor) -> Tensor:
        return values_by("tensor")(x).pow(3).sum()

    assert torch.autograd.gradcheck(loss, scores)
    assert torch.autograd.gradgradcheck(loss, scores)


def test_a_tied_solution_has_an_element_of_the_generalised_jacobian() -> None:
    jacobian = torch.autograd.functional.jacobian(values_by("tensor"), torch.zeros(1, 3, 3))
    square = jacobian.reshape(9, 9).double()
    torch.testing.assert_close(square, square.T, rtol=0, atol=1e-6)
    torch.testing.assert_close(square @ square, square, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_of_less_precision_are_solved_in_float64(dtype: torch.dtype) -> None:
    scores = normal(4, 3, 5).to(dtype)
    found, expected = (values_by(engine)(scores) for engine in ("tensor", "compiled"))
    assert found.dtype is dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_two_runs_have_the_same_bits() -> None:
    scores = normal(16, 4, 6)
    assert torch.equal(values_by("tensor")(scores), values_by("tensor")(scores))


def test_iterations_that_are_not_looked_at_end_at_the_same_solution() -> None:
    scores = normal(16, 4, 6)
    found, expected = (values_by(engine)(scores) for engine in ("tensor-fixed", "tensor"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_bad_scores_and_gradients_are_those_of_their_instance() -> None:
    scores = normal(3, 3, 4)
    scores[1, 0, 0] = torch.nan
    scores.requires_grad_()
    with pytest.warns(ConvergenceWarning, match="A score is NaN"):
        found = values_by("tensor")(scores)
    assert found.isnan().flatten(1).all(-1).tolist() == [False, True, False]
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert gradient.isnan().flatten(1).all(-1).tolist() == [False, True, False]


def test_contradictions_are_named() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 3))
    xor = graph.add(Xor(u))
    none = graph.add(Budget(u[:1], 0))
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        solution = graph.solve(engine="tensor")
    assert [s.name for s in solution.status] == ["INFEASIBLE", "SOLVED"]
    assert sorted(solution.contradictions[0], key=lambda x: x[0] is none) == [(xor, 0), (none, 0)]


def test_free_variables_are_cut_to_their_bounds() -> None:
    scores = torch.tensor([[0.25, 3.0], [-1.0, 0.5]], requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u[0]))
    graph.solve(engine="tensor")
    assert u.value.tolist() == [[0.0, 1.0], [0.0, 0.5]]
    u.value.sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, 1.0]]


class ExactlyOne(Factor):
    """One variable is on; only an oracle in Python says so."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: int) -> tuple[Any, Any]:
        return np.eye(self.event_shape[0])[y], np.zeros(0)


def test_components_with_other_types_are_solved_by_cores_engine() -> None:
    graph = TorchFactorGraph()
    graph.add(Nand(graph.variable_from(normal(4, 2))))
    other = graph.add(ExactlyOne(graph.variable_from(normal(2, 3))))
    plan = graph.plan(engine="tensor")
    assert {row.solved_by: row.count for row in plan.components}["tensor"] == 4
    assert "ExactlyOne" in plan.reason
    found = graph.solve(engine="tensor")
    assert found.ok
    assert len(found.structures(other)) == 2


def test_large_components_are_solved_by_cores_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.served.MAX_ROWS", 4)
    graph, _ = matchings(normal(1, 2, 3))  # 2 + 3 rows
    small = graph.add(Xor(graph.variable_from(normal(3))))
    plan = graph.plan(engine="tensor")
    assert {row.solved_by: row.count for row in plan.components} == {"ADMM": 1, "tensor": 1}
    assert graph.solve(engine="tensor").ok
    assert len(graph.structures(small)) == 1


def test_what_it_cannot_do_is_refused() -> None:
    graph, _ = matchings(normal(1, 2, 3))
    with pytest.raises(ValueError, match="needs the quadratic term"):
        graph.solve_map(engine="tensor")
    with pytest.raises(ValueError, match="has no time limit"):
        graph.solve(engine="tensor", max_time=1.0)


def test_warm_starts_are_validated_and_the_log_is_written(caplog: pytest.LogCaptureFixture) -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 3, 4))
    graph.add(Matching(u))
    first = graph.solve(engine="tensor")
    with pytest.raises(TypeError, match="warm_start"):
        graph.solve(engine="tensor", warm_start="cold")
    found = graph.solve(engine="tensor", warm_start=first)
    np.testing.assert_allclose(found.values, first.values, rtol=0, atol=1e-9)
    with caplog.at_level("INFO", logger="lpsmap"):
        graph.solve(engine="tensor", verbose=1)
    assert caplog.messages


def test_solutions_are_of_the_scores_as_they_were() -> None:
    """The arrays of a solution are gathered on first access."""
    found = []
    for engine in ("compiled", "tensor"):
        scores, extra = normal(4, 2), normal(4, seed=1)
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(Pair(u[:, 0], u[:, 1], extra))
        solution = graph.solve(engine=engine)
        scores.add_(5.0)
        extra.add_(10.0)
        found.append(solution.objective)
    np.testing.assert_allclose(*found, rtol=0, atol=1e-12)


def test_structures_are_found_on_the_host() -> None:
    graph, u = matchings(normal(2, 2, 3))
    solution = graph.solve(engine="tensor")
    for row, found in zip(
        u.value.reshape(4, 3), solution.structures(graph.factors[0]), strict=True
    ):
        np.testing.assert_allclose(found.probabilities @ found.variables, row, atol=1e-6)


# -------------------------------------------------------------------- layers


@pytest.mark.parametrize("lengths", [None, torch.tensor([[2, 3], [3, 5]])])
def test_layers_give_what_they_give_on_the_host(lengths: Tensor | None) -> None:
    scores = normal(2, 3, 5).requires_grad_()
    both = [
        MatchingAttention(engine=engine, tol=1e-11)(scores, lengths=lengths)
        for engine in ("tensor", "compiled")
    ]
    torch.testing.assert_close(*both, rtol=0, atol=1e-9)
    weights = normal(2, 3, 5, seed=1)
    gradients = [torch.autograd.grad((found * weights).sum(), scores)[0] for found in both]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-8)


def test_layers_work_under_vmap_and_autocast() -> None:
    layer, scores = SparseMAP(Budget, budget=2, engine="tensor"), normal(3, 2, 5)
    expected = layer(scores)
    found = torch.func.vmap(layer)(scores)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(scores), expected)


def test_the_engine_is_a_name() -> None:
    with pytest.raises(TypeError, match="expected the name of an engine"):
        SparseMAP(Xor, engine=1)
    assert "engine='tensor'" in repr(SparseMAP(Xor, engine="tensor"))
