"""Layers whose operators solve on the device of the scores, as under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from layer_cases import CASES, normal, trained
from lpsmap_torch.layers import operators
from lpsmap_torch.layers.solvers import Solver

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SERVED = ["MatchingAttention", "LPMatchingAttention", "SequenceAttention", "TopK"]


def on_device(name: str, engine: str = "tensor") -> Any:
    layer = trained(CASES[name])
    layer.engine, layer.tol = engine, 1e-11
    return layer


@pytest.fixture
def nothing_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def solved(*_: Any) -> None:
        raise AssertionError("a solve on the host")

    monkeypatch.setattr(Solver, "solved", solved)


@pytest.mark.parametrize(
    ("name", "engine"),
    [(x, "tensor") for x in SERVED] + [(x, "tensor-fixed") for x in SERVED if "Sequence" not in x],
)
def test_a_compiled_layer_solves_on_the_device(
    name: str, engine: str, request: pytest.FixtureRequest
) -> None:
    given = normal(2, *CASES[name].shape)
    results = []
    for chosen in ("compiled", engine):
        layer, scores = on_device(name, chosen), given.detach().clone().requires_grad_()
        if chosen == engine:
            request.getfixturevalue("nothing_on_the_host")
            torch._dynamo.reset()
            layer.compile(fullgraph=True, backend="aot_eager")
        found = layer(scores)
        found.pow(3).sum().backward()
        results.append([found, scores.grad, *(p.grad for p in layer.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("nothing_on_the_host")
@pytest.mark.parametrize("name", SERVED)
def test_opcheck_on_the_device(name: str) -> None:
    layer, shape = on_device(name), (2, *CASES[name].shape)
    scores, d_scores = normal(*shape), normal(*shape, seed=2)
    weights = layer._weights()
    if weights is not None:
        weights = weights.detach().expand(2, -1).contiguous()
    d_weights = None if weights is None else normal(*weights.shape, seed=3)
    given = scores, weights, None, None, layer._name
    _, ticket = operators._solve(*given)
    torch.library.opcheck(operators._solve, given)
    torch.library.opcheck(operators._pull_back, (d_scores, ticket, *given))
    torch.library.opcheck(operators._push_forward, (d_scores, d_weights, ticket, *given))


@pytest.mark.usefixtures("nothing_on_the_host")
@pytest.mark.parametrize("name", SERVED)
def test_products_on_the_device_are_transposed(name: str) -> None:
    layer, shape = on_device(name), (2, *CASES[name].shape)
    scores, d_scores, gradient = normal(*shape), normal(*shape, seed=2), normal(*shape, seed=3)
    weights = layer._weights()
    along: Tensor | None = None
    if weights is not None:
        weights = weights.detach().expand(2, -1).contiguous()
        along = normal(*weights.shape, seed=4)
    given = scores, weights, None, None, layer._name
    for ticket in (operators._solve(*given)[1], torch.zeros(1, dtype=torch.int64)):
        forward = operators._push_forward(d_scores, along, ticket, *given)
        of_scores, of_weights = operators._pull_back(gradient, ticket, *given)
        expected = (of_scores * d_scores).sum()
        if along is not None:
            expected = expected + (of_weights * along).sum()
        torch.testing.assert_close((forward * gradient).sum(), expected, rtol=1e-9, atol=1e-12)
        assert forward.abs().sum() > 0.0


@pytest.mark.usefixtures("nothing_on_the_host")
def test_a_compiled_layer_runs_in_inference_mode() -> None:
    torch._dynamo.reset()
    layer, scores = on_device("MatchingAttention"), normal(2, 3, 4)
    expected = layer(scores)
    layer.compile(fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(layer(scores), expected, rtol=0, atol=1e-12)
