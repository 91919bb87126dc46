"""Samples of trees of factors in tensors, and gradients of log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from layer_cases import normal
from lpsmap import AtMostOne, DepTree, FactorGraph, Or, Pair, Sequence, TorchFactorGraph

SCORES = normal(2, 12), normal(2, seed=1), normal(2, 2, seed=2)


def declare(graph: Any, eta: Any, w: Any, transitions: Any) -> Any:
    """Declare two items, each a tree of factors; return the variables."""
    graph.variable_from(eta[0, :2] * 0.0)  # variables in no factor
    u = graph.variable_from(eta)
    tags, arcs, rest = u[:, :6].reshape(2, 3, 2), u[:, 6:10].reshape(2, 2, 2), u[:, 10:]
    graph.add(Sequence(tags, transitions))
    graph.add(DepTree(arcs))
    graph.add(Pair(tags[:, 0, 1], ~rest[:, 0], w))
    graph.add(AtMostOne(rest))
    graph.add(Or([~rest[:, 1], arcs[:, 1, 0]]))
    return u


def gibbs_of(*scores: Tensor) -> Any:
    graph = TorchFactorGraph()
    declare(graph, *scores)
    return graph.gibbs()


def test_samples_are_those_of_numpy() -> None:
    found = gibbs_of(*SCORES).sample(8, seed=3)
    graph = FactorGraph()
    declare(graph, *(x.detach().numpy() for x in SCORES))
    plain = graph.gibbs().sample(8, seed=3)
    assert not found.values.requires_grad and found.log_probabilities.requires_grad
    np.testing.assert_array_equal(found.values, plain.values)
    for x, y in zip(found.additionals, plain.additionals, strict=True):
        np.testing.assert_array_equal(x, y)
    log_p = found.log_probabilities.detach()
    np.testing.assert_allclose(log_p, plain.log_probabilities, atol=1e-13)


def test_gradients_of_log_probabilities() -> None:
    drawn = gibbs_of(*SCORES).sample(5, seed=0)

    def log_p(*scores: Tensor) -> Any:
        return gibbs_of(*scores).log_probability(drawn.values, drawn.additionals)

    assert gradcheck(log_p, SCORES)
    found = torch.autograd.grad(drawn.log_probabilities.sum(), SCORES[0])[0]
    expected = torch.autograd.grad(log_p(*SCORES).sum(), SCORES[0])[0]
    torch.testing.assert_close(found, expected)


def test_gradients_with_forbidden_variables_and_changes_in_place() -> None:
    eta, w, transitions = SCORES
    masked = torch.zeros(2, 12, dtype=torch.bool)
    masked[0, [0, 7, 11]] = True
    scores = eta.masked_fill(masked, -torch.inf)
    drawn = gibbs_of(scores, w, transitions).sample(6, seed=0)
    assert not drawn.values[:, 2:14].reshape(6, 12)[:, masked[0]].any()
    with torch.no_grad():
        scores.mul_(3.0)
    (found,) = torch.autograd.grad(drawn.log_probabilities.sum(), eta)
    m = torch.autograd.grad(
        gibbs_of(eta.masked_fill(masked, -torch.inf), w, transitions).log_partition.sum(), eta
    )[0]
    expected = drawn.values[:, 2:].sum(0).reshape(2, 12) - 6.0 * m
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype: torch.dtype) -> None:
    scores = [x.detach().to(dtype).requires_grad_() for x in SCORES]
    drawn = gibbs_of(*scores).sample(4, seed=0)
    assert drawn.values.dtype == drawn.additionals[0].dtype == dtype
    assert drawn.log_probabilities.dtype == torch.float32  # sums overflow in half precision
    drawn.log_probabilities.sum().backward()
    assert scores[0].grad is not None and scores[0].grad.dtype == dtype


def test_non_finite_components_leave_the_others() -> None:
    eta = SCORES[0].detach().clone()
    eta[1, 3] = torch.nan
    eta.requires_grad_()
    drawn = gibbs_of(eta, *SCORES[1:]).sample(4, seed=0)
    assert drawn.values[:, 2:14].isfinite().all() and drawn.values[:, 14:].isnan().all()
    assert drawn.log_probabilities[:, 1].isnan().all()
    drawn.log_probabilities[:, 0].sum().backward()
    assert eta.grad is not None and eta.grad[0].isfinite().all()
