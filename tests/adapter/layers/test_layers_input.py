"""Bad input of layers: errors in words, or the answer that is documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from layer_cases import Case, every_layer, normal, trained
from lpsmap import Alignment, Budget, ConvergenceWarning, DepTree, Matching, Sequence, Xor
from lpsmap_torch import layers

X, W = torch.zeros(2, 3, 4), torch.zeros(2, 5)

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "integers": (
        lambda: layers.TopK(2)(W.long()),
        TypeError,
        r"dtype torch.int64; .*Use scores.float",
    ),
    "no tensor": (
        lambda: layers.TopK(2)(W.numpy()),
        TypeError,
        "scores is an ndarray; .*torch.as_tensor",
    ),
    "mask of a type without masks": (
        lambda: layers.SparseMAP(DepTree)(X[..., :3], mask=torch.ones(2, 3, 3).bool()),
        TypeError,
        "got mask, which DepTree does not take; expected no mask. Forbid variables by",
    ),
    "additionals of another form": (
        lambda: layers.SparseMAP(Sequence)(X, torch.ones(3, 3)),
        ValueError,
        r"additionals has shape \(3, 3\); .* or \(2, n\) for every instance.*lambda",
    ),
    "additionals of another batch": (
        lambda: layers.SparseMAP(Sequence)(X, torch.ones(3, 15)),
        ValueError,
        r"additionals has shape \(3, 15\); expected",
    ),
    "additionals of no shape": (
        lambda: layers.SparseMAP(Sequence)(X, torch.tensor(1.0)),
        ValueError,
        r"additionals has shape \(\); expected",
    ),
    "additionals of integers": (
        lambda: layers.SparseMAP(Sequence)(X, torch.ones(15).long()),
        TypeError,
        r"additionals is torch.int64; .*float\(\)",
    ),
    "additionals of NumPy": (
        lambda: layers.SparseMAP(Sequence)(X, np.ones(15)),
        TypeError,
        "additionals is .*ndarray.*; expected a floating-point tensor",
    ),
    "lengths of floats": (
        lambda: layers.TopK(2)(W, lengths=torch.ones(2)),
        TypeError,
        r"lengths is torch.float32; .*Use lengths.long\(\)",
    ),
    "complex": (lambda: layers.TopK(2)(W + 0j), TypeError, "complex64; expected real numbers"),
    "sparse": (lambda: layers.TopK(2)(W.to_sparse()), TypeError, r"Use to_dense\(\)"),
    "meta in an estimator": (
        lambda: layers.TopK(2, estimator="map")(W.to("meta")),
        TypeError,
        "a meta tensor, which has no numbers",
    ),
    "meta mask": (
        lambda: layers.TopK(2)(W, mask=torch.ones(2, 5, dtype=torch.bool, device="meta")),
        TypeError,
        "TopK: mask: got a meta tensor",
    ),
    "meta lengths": (
        lambda: layers.LPMatchingAttention()(X, lengths=torch.ones(2, 2, device="meta").long()),
        TypeError,
        "LPMatchingAttention: lengths: got a meta tensor",
    ),
    "axes": (
        lambda: layers.MatchingAttention()(W[0]),
        ValueError,
        r"\(5,\); expected 2 axes or more",
    ),
    "device": (
        lambda: layers.LPSequenceAttention().to("meta")(X),
        ValueError,
        r"parameters on meta, but scores on cpu; .*Move the layer",
    ),
    "mask's dtype": (
        lambda: layers.TopK(2)(W, mask=torch.ones(2, 5)),
        TypeError,
        r"mask is torch.float32; .*mask != 0 for ones and zeros, and mask == 0 for an additive",
    ),
    "mask's shape": (
        lambda: layers.LPMatchingAttention()(X, mask=torch.ones(2, 4, 3, dtype=torch.bool)),
        ValueError,
        r"mask has shape \(2, 4, 3\); expected one that broadcasts to \(2, 3, 4\)",
    ),
    "mask of words": (
        lambda: layers.LatentTree()(
            torch.zeros(2, 4, 4), mask=torch.ones(2, 4, 4, dtype=torch.bool)
        ),
        ValueError,
        r"mask has shape \(2, 4, 4\); expected one that broadcasts to \(2, 4\)",
    ),
    "padding first": (
        lambda: layers.Rationale(2)(W, mask=torch.arange(5).expand(2, 5) > 1),
        ValueError,
        "mask of instance 0 leaves out words before others .*expected padding at the end",
    ),
    "lengths' dtype": (
        lambda: layers.TopK(2)(W, lengths=torch.ones(2)),
        TypeError,
        r"lengths is torch.float32; expected a tensor of integers",
    ),
    "a list": (
        lambda: layers.TopK(2)(W, lengths=[1, 2]),
        TypeError,
        r"Use torch.tensor\(lengths\)",
    ),
    "lengths' shape": (
        lambda: layers.TopK(2)(W, lengths=torch.tensor([1, 2, 3])),
        ValueError,
        r"lengths has shape \(3,\); expected \(2,\), one for every instance",
    ),
    "lengths of pairs": (
        lambda: layers.MatchingAttention()(X, lengths=torch.ones(2, 3).long()),
        ValueError,
        r"lengths has shape \(2, 3\); expected \(2, 2\) for rows and columns",
    ),
    "one length for pairs": (
        lambda: layers.MatchingAttention()(X[:, None], lengths=torch.tensor([[3], [2]])),
        ValueError,
        r"lengths has shape \(2, 1\); expected \(2, 1, 2\) for rows and columns",
    ),
    "lengths of heads": (
        lambda: layers.TopK(2)(W.expand(4, 3, 2, 5), lengths=torch.tensor([1, 2, 1])),
        ValueError,
        r"lengths has shape \(3,\); expected \(4, 3, 2\), one for every instance .* may be omitted",
    ),
    "too long": (
        lambda: layers.LPMatchingAttention()(X, lengths=torch.tensor([[3, 4], [3, 5]])),
        ValueError,
        r"lengths of instance 1 are \(3, 5\); expected 0 to \(3, 4\)",
    ),
    "words too long": (
        lambda: layers.LatentTree()(torch.zeros(2, 4, 4), lengths=torch.tensor([4, -1])),
        ValueError,
        "lengths of instance 1 is -1; expected 0 to 4",
    ),
    "additionals": (
        lambda: layers.SparseMAP(Xor)(W, torch.zeros(3)),
        TypeError,
        "got additionals, which Xor does not take; expected no additionals",
    ),
    "no type": (
        lambda: layers.SparseMAP("Xor"),
        TypeError,
        "factors is 'Xor'; expected a factor",
    ),  # type: ignore[arg-type]
    "axis": (
        lambda: layers.SparseMAP(Xor, axis=0),
        ValueError,
        "axis is 0; expected a negative one",
    ),
    "dim": (
        lambda: layers.SparseMAP(Xor, dim=1),
        TypeError,
        r"dim is 1; .*Use axis, such as axis=-2",
    ),
    "no budget": (
        lambda: layers.LatentTree(budget_root=True),
        ValueError,
        "budget is None; expected a number",
    ),
    "option": (lambda: layers.TopK(2, tol=-1.0), ValueError, "tol: got -1.0; expected"),
    "k": (lambda: layers.TopK(-1), ValueError, "k: got -1; expected an integer of at least 0"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's about its own prototypes
@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what: str) -> None:
    call, error, words = WRONG[what]
    with pytest.raises(error, match=words):
        call()


AMBIGUOUS = [
    (layers.MatchingAttention(), (2, 2, 3, 4), (2, 2)),  # two heads
    (layers.LPMatchingAttention(rescale=True), (2, 2, 3, 4), (1, 2)),
    (layers.SequenceAttention(), (2, 3, 4), (2,)),
    (layers.LPSequenceAttention(), (5, 3, 4), (2,)),  # whatever the size of the batch
    (layers.SparseMAP(Matching), (2, 2, 3, 4), (2, 2)),
    (layers.SparseMAP(Alignment), (3, 2, 3, 4), (3, 2)),
]


@pytest.mark.parametrize(("layer", "shape", "ends"), AMBIGUOUS)
def test_lengths_with_two_readings_are_refused(
    layer: Any, shape: tuple[int, ...], ends: tuple[int, ...]
) -> None:
    scores, lengths = torch.zeros(shape), torch.full(ends, 2)
    with pytest.raises(ValueError, match=r"is ambiguous .*: 2 lengths .*, or one length") as error:
        layer(scores, lengths=lengths)
    assert "lengths.reshape(" in str(error.value)


PAIRS = [layers.MatchingAttention(), layers.LPMatchingAttention(rescale=True)]


@pytest.mark.parametrize("layer", [*PAIRS, layers.LPSequenceAttention(rescale=True)])
@pytest.mark.parametrize("heads", [2, 3])
def test_lengths_of_rows_and_columns_hold_for_all_heads(layer: Any, heads: int) -> None:
    """The last axis is the pair; axes of the batch are 1, or the last ones left out."""
    scores = normal(2, heads, 3, 4).detach()
    lengths = torch.tensor([[2, 4], [3, 1]])
    expected = torch.stack(
        [layer(x, lengths=ends[None]) for x, ends in zip(scores, lengths, strict=True)]
    )
    found = [layer(scores, lengths=lengths[:, None])]
    if heads != 2:
        found.append(layer(scores, lengths=lengths))
    found.append(layer(scores, lengths=lengths[:, None].expand(2, heads, 2)))
    for values in found:
        torch.testing.assert_close(values, expected, rtol=0, atol=2e-6)
    assert not expected[0, :, 2:].any()
    assert not expected[1, :, :, 1:].any()


SINGLE = [
    (layers.TopK(2), (5,)),
    (layers.Rationale(2), (5,)),
    (layers.LatentTree(), (4, 4)),
    (layers.SparseMAP(DepTree), (4, 4)),
    (layers.SparseMAP(Budget, budget=1), (5,)),
]


@pytest.mark.parametrize(("layer", "shape"), SINGLE)
@pytest.mark.parametrize("heads", [2, 3])
def test_one_length_holds_for_all_heads(layer: Any, shape: tuple[int, ...], heads: int) -> None:
    """Two items of two heads, too: axes of lengths are the first ones of the batch."""
    scores, lengths = normal(2, heads, *shape).detach(), torch.tensor([2, 4])
    expected = torch.stack(
        [layer(x, lengths=end.expand(heads)) for x, end in zip(scores, lengths, strict=True)]
    )
    for given in (lengths, lengths[:, None], lengths[:, None].expand(2, heads)):
        torch.testing.assert_close(layer(scores, lengths=given), expected, rtol=0, atol=2e-6)
    each = torch.arange(1, 1 + heads).expand(2, heads)
    torch.testing.assert_close(
        layer(scores, lengths=each[:1]), layer(scores, lengths=each), rtol=0, atol=2e-6
    )


@every_layer
def test_rows_that_are_all_masked(case: Case) -> None:
    """They have weights and gradients of zero, whatever they hold, and others are as ever."""
    layer = trained(case)
    scores = torch.full((3, *case.shape), torch.nan, dtype=torch.float64)
    scores[1] = normal(*case.shape).detach()
    scores.requires_grad_()
    mask = torch.zeros(3, *case.shape[: layer.mask_ndim], dtype=torch.bool)
    mask[1] = True
    lengths = torch.tensor([0, 1, 0])[:, None] * torch.tensor(case.shape[: case.axes])
    for given in ({"mask": mask}, {"lengths": lengths if case.axes > 1 else lengths[:, 0]}):
        values = layer(scores, **given)
        torch.testing.assert_close(values[1], layer(scores[1]), rtol=0, atol=2e-6)
        assert not values[[0, 2]].any()
        (gradient,) = torch.autograd.grad(values.square().sum(), scores)
        assert not gradient[[0, 2]].any()
        assert gradient[1].isfinite().all()
    none = layer(scores.detach(), mask=torch.zeros_like(mask))
    assert not none.any()


def test_masks_with_holes() -> None:
    """Pairs that are not allowed score -inf; rows of none take no part, wherever they stand."""
    scores = normal(2, 3, 4, seed=5)
    mask = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.8
    mask[0, :, :3] |= torch.eye(3, dtype=torch.bool)
    mask[1, 1] = False
    found = layers.LPMatchingAttention()(scores, mask=mask)
    assert not found[~mask].any()
    torch.testing.assert_close(found[0].sum(1), torch.ones(3, dtype=torch.float64))
    without = layers.LPMatchingAttention()(scores[1, ::2], mask=mask[1, ::2])
    torch.testing.assert_close(found[1, ::2], without, rtol=0, atol=1e-5)
    mask[1] = True
    forbidden = scores.masked_fill(~mask, -torch.inf)
    for layer in (layers.MatchingAttention(), layers.SequenceAttention().double()):
        torch.testing.assert_close(layer(scores, mask=mask), layer(forbidden), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize(
    "make",
    [
        layers.MatchingAttention,
        lambda: layers.MatchingAttention("rows"),
        layers.LPMatchingAttention,
        layers.LPSequenceAttention,
    ],
)
def test_an_item_whose_mask_leaves_no_structure_has_no_weights(make: Any, scale: float) -> None:
    """Two rows have the same column alone: no weight to masked pairs, nor to half of the rest."""
    layer, mask = make().double(), torch.ones(3, 3, 4, dtype=torch.bool)
    mask[1, 1:, 1:] = False
    scores = (scale * normal(3, 3, 4, seed=3)).detach().requires_grad_()
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        values = layer(scores, mask=mask)
    assert not values[1].any()
    expected = layer(scores[[0, 2]])
    torch.testing.assert_close(values[[0, 2]], expected, rtol=0, atol=1e-6)
    gradients = torch.autograd.grad(values.square().sum(), [scores, *layer.parameters()])
    assert not gradients[0][1].any()
    others = torch.autograd.grad(expected.square().sum(), [scores, *layer.parameters()])
    for one, other in zip(gradients[1:], others[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        found = layer.structures(scores, mask=mask)
    if len(found) == 3:  # a matching or a sequence an item
        assert found.counts.tolist()[1] == 0 and found.counts.min(
            initial=1, where=[True, False, True]
        )


@pytest.mark.parametrize("make", [layers.LatentTree, lambda: layers.SparseMAP(Xor)])
def test_an_item_that_is_all_forbidden_has_marginals_of_zero(make: Any) -> None:
    scores = torch.zeros(2, 3, 3)
    scores[1] = -torch.inf
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        values = make()(scores)
    assert values[0].any() and not values[1].any()


def test_masked_pairs_have_weight_and_gradient_of_zero() -> None:
    """Exactly, and whatever gradient flows into them."""
    scores = normal(1, 3, 4, seed=4)
    mask = ~torch.eye(3, 4, dtype=torch.bool)
    for layer in (layers.MatchingAttention(), layers.SequenceAttention().double()):
        values = layer(scores, mask=mask)
        assert not values[0][~mask].any()
        cotangent = torch.ones_like(values).masked_fill(~mask, torch.nan)
        (gradient,) = torch.autograd.grad(values, scores, cotangent)
        assert gradient.isfinite().all() and not gradient[0][~mask].any()


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 3, 4), (0, 3)])
@pytest.mark.parametrize(
    "make",
    [
        layers.MatchingAttention,
        layers.LPMatchingAttention,
        lambda: layers.LPMatchingAttention(rescale=True),
        layers.SequenceAttention,
        layers.LPSequenceAttention,
    ],
)
def test_tables_without_rows_or_columns(make: Any, shape: tuple[int, ...]) -> None:
    scores = torch.zeros(shape, requires_grad=True)
    layer = make()
    values = layer(scores)
    values.sum().backward()
    assert values.shape == shape == scores.grad.shape
    assert not any(parameter.grad.any() for parameter in layer.parameters())
    assert not layer.structures(scores).counts.any()


def test_mixed_dtypes_keep_their_own() -> None:
    """Parameters in single precision serve scores in another."""
    layer, scores = layers.SequenceAttention(), normal(2, 3, 4, dtype=torch.bfloat16)
    values = layer(scores)
    values.sum().backward()
    assert values.dtype == scores.grad.dtype == torch.bfloat16
    assert layer.distances.grad.dtype == torch.float32


def test_one_bad_item_leaves_the_others() -> None:
    scores = normal(3, 5).detach()
    scores[1, 2] = torch.nan
    scores.requires_grad_()
    with pytest.warns(UserWarning, match="NaN"):
        values = layers.TopK(2)(scores)
    assert values[1].isnan().all()
    values[[0, 2]].square().sum().backward()
    assert scores.grad[[0, 2]].isfinite().all()
    assert scores.grad[1].isnan().all()


def test_views_that_negate_are_read() -> None:
    complex_scores = torch.complex(normal(2, 4), normal(2, 4))
    view = complex_scores.conj().imag
    assert view.is_neg()
    torch.testing.assert_close(layers.TopK(2)(view), layers.TopK(2)(-complex_scores.imag))
