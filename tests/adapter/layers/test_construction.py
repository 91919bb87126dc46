"""Layers without values: on the meta device, and parameters of a given device and dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from layer_cases import Case, every_layer, normal
from lpsmap import Xor
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    Rationale,
    SequenceAttention,
    SparseMAP,
    TopK,
)

PARAMETRIC: dict[str, Any] = {
    "Rationale": lambda **given: Rationale(2, 0.5, **given),
    "SequenceAttention": lambda **given: SequenceAttention(1, **given),
    "LPSequenceAttention": lambda **given: LPSequenceAttention(rescale=True, **given),
}
with_parameters = pytest.mark.parametrize("make", PARAMETRIC.values(), ids=PARAMETRIC)


@every_layer
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_meta_scores_give_shapes(case: Case, dtype: torch.dtype) -> None:
    """Of the marginals and of all gradients, as those of real scores."""
    with torch.device("meta"):
        layer, scores = case.make(), torch.zeros(2, 3, *case.shape, dtype=dtype)
    values = layer(scores.requires_grad_())
    values.square().sum().backward()
    assert values.is_meta and values.shape == scores.shape and values.dtype == dtype
    for given in (scores, *layer.parameters()):
        assert given.grad.is_meta and given.grad.shape == given.shape


def test_meta_scores_with_lengths_masks_and_temperatures() -> None:
    scores = torch.zeros(2, 4, 4, device="meta")
    for device in ("meta", "cpu"):
        lengths = torch.ones(2, dtype=torch.int64, device=device)
        mask = torch.ones(4, 4, dtype=torch.bool, device=device)
        assert LatentTree()(scores, lengths=lengths).is_meta
        assert LPMatchingAttention(rescale=True)(scores, mask=mask).is_meta
    warm = TopK(2, temperature=nn.Parameter(torch.ones(4, device="meta")))
    warm(scores).sum().backward()
    assert warm.temperature.grad.shape == (4,)
    assert LPMatchingAttention(engine="tensor")(scores).is_meta


def test_meta_scores_are_validated() -> None:
    layer = LPMatchingAttention()
    with pytest.raises(ValueError, match="expected 2 axes or more"):
        layer(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="a meta tensor"):  # not a dense one
        layer(torch.zeros(3, 4).to_sparse().to("meta"))
    with pytest.raises(TypeError, match="complex64"):
        layer(torch.zeros(3, 4, dtype=torch.complex64, device="meta"))


@with_parameters
def test_a_layer_made_on_meta_is_materialised(make: Any) -> None:
    with torch.device("meta"):
        layer = make()
    assert all(parameter.is_meta for parameter in layer.parameters())
    layer.to_empty(device="cpu")
    for parameter in layer.parameters():
        nn.init.constant_(parameter, torch.nan)
    layer.reset_parameters()
    scores = normal(2, 5) if isinstance(layer, Rationale) else normal(2, 4, 5)
    torch.testing.assert_close(layer(scores), make()(scores), rtol=0, atol=0)


@with_parameters
def test_parameters_have_the_given_device_and_dtype(make: Any) -> None:
    for given in ({"dtype": torch.float64}, {"device": "meta", "dtype": torch.bfloat16}):
        for parameter in make(**given).parameters():
            assert parameter.dtype is given["dtype"]
            assert parameter.device.type == given.get("device", "cpu")
    assert make(dtype=torch.float64).state_dict().keys() == make().state_dict().keys()
    with pytest.raises(RuntimeError, match="floating point"):
        make(dtype=torch.int64)


@with_parameters
def test_resetting_leaves_the_temperature(make: Any) -> None:
    layer = make(temperature=nn.Parameter(torch.tensor(2.0)))
    assert layer.temperature.item() == 2.0
    layer.reset_parameters()
    assert layer.temperature.item() == 2.0


def test_axis_is_the_dim_of_softmax() -> None:
    scores = normal(2, 3, 4)
    found = SparseMAP(Xor, axis=-2)(scores)
    expected = SparseMAP(Xor)(scores.movedim(-2, -1)).movedim(-1, -2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.sum(1), torch.ones(2, 4, dtype=torch.float64))


def test_the_side_of_a_matching_is_checked_at_construction() -> None:
    with pytest.raises(ValueError, match=r"MatchingAttention: full is 'foo'; expected 'rows'"):
        MatchingAttention(full="foo")  # type: ignore[arg-type]


@every_layer
def test_unknown_arguments_of_a_call_are_refused_in_the_layer_s_name(case: Case) -> None:
    layer = case.make()
    words = f"^{type(layer).__name__}: unexpected argument.*'other'.*lengths"
    with pytest.raises(TypeError, match=words):
        layer(torch.zeros(1, *case.shape), other=1)


def test_unknown_options_are_refused_in_the_layer_s_name() -> None:
    with pytest.raises(TypeError, match="^LatentTree: .* 'other'; expected budget, .*tol"):
        LatentTree(other=1)
    with pytest.raises(TypeError, match="^Rationale: .* 'temprature'; expected temperature.$"):
        Rationale(2, temprature=1.0)
