"""Layers that solve on the device of the scores, inside the transforms of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from layer_cases import CASES, normal, trained
from lpsmap_torch.layers import layer as layers

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

RAGGED: dict[str, dict[str, Any]] = {
    "MatchingAttention": {"lengths": torch.tensor([[3, 4], [2, 2]])},
    "LPMatchingAttention": {"mask": torch.tensor([True, True, False])},
    "SequenceAttention": {"lengths": torch.tensor([[3, 4], [2, 3]])},
    "TopK": {"k": torch.tensor([1, 3]), "mask": torch.arange(5) < torch.tensor([[5], [4]])},
}
every_layer = pytest.mark.parametrize("name", RAGGED)


def solved_by(engine: str, name: str) -> Any:
    layer = trained(CASES[name])
    layer.engine, layer.tol = engine, 1e-11
    return layer


def check_equal(monkeypatch: pytest.MonkeyPatch, name: str, of: Callable[..., Any]) -> None:
    """Compare what a function makes of a layer that solves on the device, and of one that does not.

    `of` takes the layer as a function of scores, and scores.
    """
    scores = normal(2, *CASES[name].shape).detach()
    expected = of(solved_by("auto", name), scores)

    def refuse(*_: Any) -> None:
        raise AssertionError("a solve on the host")

    monkeypatch.setattr(layers, "marginals_on_host", refuse)
    torch.testing.assert_close(of(solved_by("tensor", name), scores), expected, rtol=0, atol=1e-7)


def squares(layer: Any, **arguments: Any) -> Callable[[Tensor], Tensor]:
    """Return a function of scores whose gradients have gradients."""
    return lambda x: layer(x, **arguments).square().sum()


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda layer, x, given: torch.func.grad(squares(layer, **given))(x),
    "jvp": lambda layer, x, given: torch.func.jvp(lambda y: layer(y, **given), (x,), (x.sin(),)),
    "jacrev": lambda layer, x, given: torch.func.jacrev(lambda y: layer(y, **given))(x),
    "jacfwd": lambda layer, x, given: torch.func.jacfwd(lambda y: layer(y, **given))(x),
    "hessian": lambda layer, x, given: torch.func.hessian(squares(layer, **given))(x),
}


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@every_layer
def test_derivatives(
    monkeypatch: pytest.MonkeyPatch, name: str, transform: Callable[..., Any], ragged: bool
) -> None:
    given = RAGGED[name] if ragged else {}
    check_equal(monkeypatch, name, lambda layer, x: transform(layer, x, given))


@every_layer
def test_maps(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of lengths and limits, too."""
    given = {key: x for key, x in RAGGED[name].items() if key != "mask"}

    def mapped(layer: Any, scores: Tensor) -> Any:
        one = torch.vmap(lambda x, others: layer(x, **others))(scores, given)
        each = torch.vmap(torch.func.grad(squares(layer)))(scores)
        return one, each

    check_equal(monkeypatch, name, mapped)


def test_parameters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are no part of the transform."""

    def gradient(layer: Any, scores: Tensor) -> Any:
        def value(parameters: dict[str, Tensor]) -> Tensor:
            found: Tensor = torch.func.functional_call(layer, parameters, (scores,))
            return found.square().sum()

        own = {key: p.detach() for key, p in layer.named_parameters()}
        return torch.func.grad(value)(own), torch.func.jvp(value, (own,), (own,))

    check_equal(monkeypatch, "SequenceAttention", gradient)


def test_limits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def mapped(layer: Any, scores: Tensor) -> Tensor:
        found: Tensor = torch.vmap(lambda k: layer(scores, k=k))(torch.tensor([1, 2, 4]))
        return found

    check_equal(monkeypatch, "TopK", mapped)
