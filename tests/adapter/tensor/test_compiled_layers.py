"""Layers whose operators solve on the device of the scores, as under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from layer_cases import CASES, normal, trained
from lpsmap_torch import traced_calls
from lpsmap_torch.layers import layer as layers
from operator_calls import called, check_operator

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

    monkeypatch.setattr(layers, "marginals_on_host", solved)


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
    vectors = [d_scores] if weights is None else [d_scores, normal(*weights.shape, seed=3)]
    given = {"parameters": weights, "lengths": None, "mask": None}
    check_operator(layer._name, 3, scores, given, d_scores, vectors)


@pytest.mark.usefixtures("nothing_on_the_host")
@pytest.mark.parametrize("name", SERVED)
def test_products_on_the_device_are_transposed(name: str) -> None:
    layer, shape = on_device(name), (2, *CASES[name].shape)
    scores, d_scores, gradient = normal(*shape), normal(*shape, seed=2), normal(*shape, seed=3)
    weights = layer._weights()
    vectors = [d_scores]
    if weights is not None:
        weights = weights.detach().expand(2, -1).contiguous()
        vectors.append(normal(*weights.shape, seed=4))
    operator, given = traced_calls._operator, {"parameters": weights, "lengths": None, "mask": None}
    call = layer._name, scores.ndim, scores, given
    for ticket in (operator(*called(*call))[-1], torch.zeros(1, dtype=torch.int64)):
        forward, _ = operator(*called(*call, [-len(vectors)], ticket, vectors))
        *pulled, _ = operator(*called(*call, [1], ticket, [gradient]))
        expected = sum((x * d).sum() for x, d in zip(pulled, vectors, strict=True))
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
