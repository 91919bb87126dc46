"""Instances of layers of a factor type: each is solved as if it were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import normal
from lpsmap import AtMostOne, BinaryTree, DepTree, Matching, Xor
from lpsmap_core import Factor, Variables
from lpsmap_torch.layers import LatentTree, SparseMAP
from lpsmap_torch.losses import SparseMAPLoss

CASES: dict[str, tuple[type[Factor], dict[str, Any], tuple[int, ...]]] = {
    "columns": (Xor, {"axis": -2}, (3, 4)),
    "columns of several": (AtMostOne, {"axis": -3}, (3, 2, 4)),
    "spans": (BinaryTree, {}, (3, 3)),
    "labelled spans": (BinaryTree, {"labelled": True}, (3, 3, 2)),
    "labelled arcs": (DepTree, {"labelled": True}, (3, 3, 2)),
    "arcs": (DepTree, {}, (3, 3)),
    "matchings": (Matching, {}, (3, 4)),
}
every = pytest.mark.parametrize(("factor_type", "options", "event"), CASES.values(), ids=CASES)


def one_by_one(layer: SparseMAP, scores: Tensor, **arguments: Tensor) -> Tensor:
    """Return the marginals of instances that are solved alone."""
    each = [
        layer(x[None], **{name: value[i : i + 1] for name, value in arguments.items()})
        for i, x in enumerate(scores)
    ]
    return torch.cat(each)


@every
def test_instances_have_a_temperature_each(
    factor_type: type[Factor], options: dict[str, Any], event: tuple[int, ...]
) -> None:
    scores, temperature = normal(3, *event), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    found = SparseMAP(factor_type, temperature=temperature, **options)(scores)
    layer = SparseMAP(factor_type, **options)
    expected = one_by_one(layer, scores / temperature.reshape(3, *(1,) * len(event)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert layer(scores, return_solution=True).objective.shape == (3,)


@pytest.mark.parametrize("factor_type", [Xor, AtMostOne])
def test_masked_rows_do_not_join_instances(factor_type: type[Factor]) -> None:
    scores, mask = normal(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool)
    mask[0, 2] = False
    layer = SparseMAP(factor_type, axis=-2)
    found = layer(scores, mask=mask)
    torch.testing.assert_close(found, one_by_one(layer, scores, mask=mask), rtol=0, atol=1e-9)
    (gradient,) = torch.autograd.grad(found[0].pow(2).sum(), scores)
    assert gradient[0].any()
    assert not gradient[1].any()


@every
def test_batches_without_instances_are_empty(
    factor_type: type[Factor], options: dict[str, Any], event: tuple[int, ...]
) -> None:
    layer, scores = SparseMAP(factor_type, **options), normal(0, *event)
    assert layer(scores).shape == (0, *event)
    if "axis" not in options:
        none = torch.zeros(0, dtype=torch.long)
        assert layer(scores, lengths=none).shape == (0, *event)


def test_a_loss_of_no_instances_is_zero() -> None:
    scores, none = normal(0, 3, 3), torch.zeros(0, dtype=torch.long)
    heads = torch.zeros(0, 3, dtype=torch.long)
    loss = SparseMAPLoss(DepTree, reduction="sum")(scores, heads, lengths=none)
    assert loss == 0.0
    assert LatentTree()(scores, lengths=none).shape == (0, 3, 3)


class OneOfTable(Factor):
    """One entry of a table with labels; lengths cut rows and columns."""

    variables_ndim = 3
    length_axes = (0, 1)

    def __init__(self, variables: Variables, *, lengths: Any = None) -> None:
        super().__init__(variables, lengths=lengths)

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(eta_u.argmax())

    def vertex(self, label: int) -> tuple[Any, Any]:
        m = np.zeros(self.event_shape)
        m.flat[label] = 1.0
        return m, np.empty(0)


@pytest.mark.parametrize("n_items", [2, 3])
def test_lengths_of_each_cut_axis(n_items: int) -> None:
    ends = torch.tensor([[2, 4], [3, 1], [1, 2]])[:n_items]
    scores, layer = normal(n_items, 3, 4, 2), SparseMAP(OneOfTable)
    expected = torch.zeros_like(scores)
    for i, (rows, columns) in enumerate(ends.tolist()):
        expected[i, :rows, :columns] = layer(scores[i, :rows, :columns])
    torch.testing.assert_close(layer(scores, lengths=ends), expected, rtol=0, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"\(3,\), one for every .*, or \(3, 2\) for rows and columns"
    ):
        layer(normal(3, 3, 4, 2), lengths=torch.ones(3, 3).long())


@pytest.mark.parametrize(("factor_type", "options", "event"), [CASES["arcs"], CASES["spans"]])
def test_lengths_of_a_square(
    factor_type: type[Factor], options: dict[str, Any], event: tuple[int, ...]
) -> None:
    """Lengths in the shape of the batch are one for every instance, as in declarations."""
    layer, scores, ends = (
        SparseMAP(factor_type),
        normal(2, 2, *event),
        torch.tensor([[3, 2], [1, 3]]),
    )
    found = layer(scores, lengths=ends)
    assert torch.equal(found, layer(scores, lengths=torch.stack([ends, ends], -1)))
    for i, n in enumerate(ends.flatten().tolist()):
        alone = layer(scores.flatten(0, 1)[i, :n, :n])
        torch.testing.assert_close(found.flatten(0, 1)[i, :n, :n], alone, rtol=0, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"lengths of factor 1 are \(3, 2\); expected equal ones: "
    ):
        layer(scores[0], lengths=torch.tensor([[3, 3], [3, 2]]))


def test_an_axis_belongs_to_the_instance() -> None:
    with pytest.raises(ValueError, match="event_ndim is 1; expected 2 or more, since axis is -2"):
        SparseMAP(Xor, axis=-2, event_ndim=1)
