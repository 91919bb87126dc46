"""Sequences solved as flows by the engine in tensor operations, against core's engine."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import ConvergenceWarning, Sequence, SequenceDistance, Status, TorchFactorGraph
from lpsmap_torch.layers import SequenceAttention, SparseMAP


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def solved(
    engine: str, scores: list[Tensor], lengths: Any = None, negated: bool = False
) -> tuple[TorchFactorGraph, Tensor, Tensor]:
    """Return the graph, and the marginals of states and of additionals."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores[0])
    sequence = Sequence(~u if negated else u, *scores[1:], lengths=lengths)
    graph.add(sequence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        graph.solve(engine=engine, tol=1e-11)
    return graph, u.value, graph.additionals_of(sequence)


def drawn(scale: float, shape: tuple[int, int, int], seed: int = 0) -> list[Tensor]:
    """Return scores of states, transitions, first and last states."""
    n, length, s = shape
    sizes = (n, length, s), (n, length - 1, s, s), (n, s), (n, s)
    return [scale * normal(*size, seed=seed + 9 * i) for i, size in enumerate(sizes)]


def check_equal(scores: list[Tensor], lengths: Any = None) -> None:
    """Both engines find the same marginals, and the same gradients of a random function."""
    inputs = [x.clone().requires_grad_() for x in scores]
    results = []
    for engine in ("tensor", "compiled"):
        graph, *values = solved(engine, inputs, lengths)
        assert graph.solution.ok
        loss = sum((normal(*x.shape, seed=7) * x).sum() for x in values)
        results.append((values, torch.autograd.grad(loss, inputs)))
    (values, gradients), (expected, others) = results
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-9)
    # the smaller the scores, the larger are derivatives of flows
    size = max(1.0, *(float(x.abs().max()) for x in others), 1.0 / float(scores[1].std()))
    torch.testing.assert_close(gradients, others, rtol=0, atol=1e-9 * min(size, 10.0))


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 12, 6)])
def test_marginals_and_gradients(scale: float, shape: tuple[int, int, int]) -> None:
    check_equal(drawn(scale, shape))


def test_ragged_lengths() -> None:
    check_equal(drawn(1.0, (5, 6, 3)), [6, 1, 3, 0, 2])


@pytest.mark.parametrize("mask", [-torch.inf, -1e9])
def test_masks(mask: float) -> None:
    scores = drawn(1.0, (4, 5, 3))
    scores[0][0, 2, 1] = scores[0][1, 0, 0] = mask
    scores[1][2, 1, :, 2] = mask  # nothing arrives at a state
    scores[2][3, 1:] = mask
    values = [solved(engine, scores) for engine in ("tensor", "compiled")]
    assert all(status is Status.SOLVED for status in values[0][0].solution.status)
    torch.testing.assert_close(values[0][1:], values[1][1:], rtol=0, atol=1e-9)


def test_contradictions() -> None:
    scores = drawn(1.0, (3, 4, 3))
    scores[1][1, 2] = -torch.inf  # no step is allowed
    graph, values, _ = solved("tensor", scores)
    expected = [Status.SOLVED, Status.INFEASIBLE, Status.SOLVED]
    assert list(graph.solution.status) == expected
    assert graph.solution.contradictions == {1: [(graph.factors[0], 1)]}
    torch.testing.assert_close(values[0], solved("compiled", scores)[1][0], rtol=0, atol=1e-9)


def test_one_nan_spoils_one_sequence() -> None:
    scores = drawn(1.0, (3, 4, 3))
    scores[1][1, 2, 0, 0] = torch.nan
    graph, values, additionals = solved("tensor", scores)
    assert list(graph.solution.status)[1] is Status.NON_FINITE
    for found in (values, additionals):
        assert found.flatten(1).isnan().all(1).tolist() == [False, True, False]


def test_ties_have_the_least_norm_of_derivatives() -> None:
    """Without transition scores, flows are not unique; states are, and have the Jacobian of Xor."""
    scores = normal(1, 3, 4)

    def states(x: Tensor) -> Tensor:
        return solved("tensor", [x, torch.zeros(4, 4, dtype=torch.float64)])[1]

    found = torch.autograd.functional.jacobian(states, scores).reshape(12, 12)
    expected = torch.autograd.functional.jacobian(
        lambda x: solved("compiled", [x, torch.zeros(4, 4, dtype=torch.float64)])[1], scores
    )
    torch.testing.assert_close(found, expected.reshape(12, 12), rtol=0, atol=1e-9)


def test_second_derivatives() -> None:
    inputs = [x.requires_grad_() for x in drawn(1.0, (2, 3, 2))]

    def loss(*scores: Tensor) -> Tensor:
        _, values, additionals = solved("tensor", list(scores))
        return values.pow(3).sum() + additionals.square().sum()

    # products are exact to 1e-11: differences over 1e-6 would show their rounding
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-5)
    assert torch.autograd.gradgradcheck(loss, inputs, eps=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_distances_share_scores(n: int) -> None:
    scores, distances, ends = normal(n, 4, 5), normal(n, 5, seed=1), normal(n, 2, seed=2)
    lengths = [[4, 5], [2, 3], [1, 2]][:n]
    results = []
    for engine in ("tensor", "compiled"):
        inputs = [x.clone().requires_grad_() for x in (scores, distances, ends)]
        graph = TorchFactorGraph()
        u = graph.variable_from(inputs[0])
        factor = SequenceDistance(u, inputs[1], inputs[2], inputs[2], lengths=lengths)
        graph.add(factor)
        graph.solve(engine=engine)
        values = u.value, graph.additionals_of(factor)
        loss = values[0].pow(2).sum() + values[1].pow(2).sum()
        results.append((values, torch.autograd.grad(loss, inputs)))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_negated_sequences_are_solved_on_the_host() -> None:
    scores = drawn(1.0, (2, 3, 2))
    graph, values, _ = solved("tensor", scores, negated=True)
    torch.testing.assert_close(values, solved("compiled", scores, negated=True)[1])
    assert {row.solved_by for row in graph.plan(engine="tensor").components} != {"tensor"}


def test_layers_train_their_parameters() -> None:
    scores = normal(3, 4, 5)
    lengths = torch.tensor([[4, 5], [3, 4], [1, 1]])
    results = []
    for engine in ("tensor", "compiled"):
        layer = SequenceAttention(engine=engine, dtype=torch.float64)
        with torch.no_grad():
            layer.distances.copy_(torch.linspace(-1.0, 1.0, 5))
            layer.initial.copy_(torch.tensor([0.4, -0.2]))
        found = layer(scores, lengths=lengths)
        (normal(3, 4, 5, seed=1) * found).sum().backward()
        results.append((found.detach(), layer.distances.grad, layer.initial.grad))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_layers_take_scores_of_transitions() -> None:
    states, _, *_ = drawn(1.0, (2, 3, 2))
    additionals = normal(2, 2 * 2 + 2 * 4, seed=5)
    found, expected = (
        SparseMAP(Sequence, engine=engine)(states, additionals) for engine in ("tensor", "compiled")
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_two_runs_have_the_same_bits() -> None:
    scores = drawn(1.0, (8, 6, 4))
    runs = [solved("tensor", scores)[1:] for _ in range(2)]
    assert all(torch.equal(*both) for both in zip(*runs, strict=True))


def test_an_empty_batch() -> None:
    assert solved("tensor", drawn(1.0, (0, 4, 3)))[1].shape == (0, 4, 3)
    assert np.array_equal(solved("tensor", drawn(1.0, (0, 4, 3)))[1], np.zeros((0, 4, 3)))
