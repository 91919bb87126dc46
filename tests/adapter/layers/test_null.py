"""Matchings in which words can have no partner, and pairs as lists."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch

from layer_cases import normal
from lpsmap_torch.layers import (
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    SequenceAttention,
)
from lpsmap_torch.losses import CRFLoss, MarginSparseMAPLoss, SparseMAPLoss

both = pytest.mark.parametrize("kind", [MatchingAttention, LPMatchingAttention])
LENGTHS = torch.tensor([[3, 4], [2, 2]])


def matchings(m: int, n: int) -> list[list[tuple[int, int]]]:
    """Return all sets of pairs that share no row and no column."""
    cells = list(itertools.product(range(m), range(n)))
    sets = [c for k in range(min(m, n) + 1) for c in itertools.combinations(cells, k)]
    return [
        list(pairs)
        for pairs in sets
        if all(len({p[axis] for p in pairs}) == len(pairs) for axis in (0, 1))
    ]


@both
@pytest.mark.parametrize("null", [0.4, -1.0])
def test_the_best_pairs(kind: Any, null: float) -> None:
    scores = normal(2, 3, 4)
    found = kind(null=null).pairs(scores, lengths=LENGTHS)
    for item, (m, n) in enumerate(LENGTHS.tolist()):
        every = matchings(m, n)
        worth = [sum(scores[item][p].item() - null for p in pairs) for pairs in every]
        assert sorted(found[item]) == every[worth.index(max(worth))]


@both
def test_a_null_score_is_taken_from_all_pairs(kind: Any) -> None:
    scores, mask = normal(2, 3, 4), torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    mask = mask > 0.2
    layer, plain = kind(null=0.3, tol=1e-10), kind(full="none", tol=1e-10)
    for arguments in ({}, {"lengths": LENGTHS}, {"mask": mask}):
        ours, theirs = layer(scores, **arguments), plain(scores - 0.3, **arguments)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)
        torch.testing.assert_close(
            layer(scores, return_solution=True, **arguments).marginals, theirs, rtol=0, atol=1e-8
        )
        assert torch.equal(
            layer.decode(scores, **arguments), plain.decode(scores - 0.3, **arguments)
        )
    learned = kind(null=True, temperature=2.0, tol=1e-10).double()
    with torch.no_grad():
        learned.null.fill_(0.3)
    other = kind(full="none", temperature=2.0, tol=1e-10)(scores - 0.3)
    ours = learned(scores)
    torch.testing.assert_close(ours, other, rtol=0, atol=1e-8)
    found = torch.autograd.grad(ours.square().sum(), [learned.null, scores])
    torch.testing.assert_close(found[0][0], -found[1].sum(), rtol=0, atol=1e-8)
    assert set(learned.state_dict()) == {"null"} and "null=True" in repr(copy.deepcopy(learned))


@both
@pytest.mark.parametrize("loss", [SparseMAPLoss, MarginSparseMAPLoss])
def test_losses_have_the_null_score(kind: Any, loss: Any) -> None:
    scores, target = normal(2, 3, 4), torch.zeros(2, 3, 4)
    target[:, 0, 1] = 1.0
    ours = loss(kind(null=0.3, tol=1e-10), tol=1e-10)(scores, target)
    theirs = loss(kind(full="none", tol=1e-10), tol=1e-10)(scores - 0.3, target)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)
    learned = loss(kind(null=True).double())
    learned(scores, target).backward()
    assert learned.factors.null.grad.any()


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        (MatchingAttention, SparseMAPLoss),
        (LPMatchingAttention, SparseMAPLoss),
        (LPMatchingAttention, CRFLoss),
    ],
)
def test_targets_with_rows_without_a_partner(kind: Any, loss: Any) -> None:
    scores, partner = normal(2, 3, 4), torch.tensor([[1, -1, 0], [-1, 3, -100]])
    dense = torch.zeros(2, 3, 4)
    dense[0, 0, 1] = dense[0, 2, 0] = dense[1, 1, 3] = 1.0
    criterion = loss(kind(null=0.5, tol=1e-10))
    given = {"lengths": torch.tensor([[3, 4], [2, 4]])}
    assert torch.equal(criterion(scores, partner, **given), criterion(scores, dense, **given))
    for full in ("rows", "shorter"):
        with pytest.raises(ValueError, match=r"holds -1 at \[0, 1\].*lengths=.*AtMostOne.*full="):
            loss(kind(full=full))(scores, partner, **given)


def test_targets_without_a_partner_in_the_longer_side() -> None:
    scores, partner = normal(1, 3, 2), torch.tensor([[1, -1, 0]])
    dense = torch.tensor([[[0, 1], [0, 0], [1, 0]]])
    criterion = SparseMAPLoss(MatchingAttention("shorter"))
    assert torch.equal(criterion(scores, partner), criterion(scores, dense))
    with pytest.raises(ValueError, match="not a structure that Matching allows"):
        criterion(scores, torch.tensor([[1, -1, -1]]))


def test_both_layers_agree_for_all_sides() -> None:
    scores = normal(2, 3, 4)
    for full in ("rows", "shorter", "none"):
        one, other = MatchingAttention(full, tol=1e-10), LPMatchingAttention(full=full, tol=1e-10)
        torch.testing.assert_close(one(scores), other(scores), rtol=0, atol=1e-7)
        torch.testing.assert_close(
            one(scores, lengths=LENGTHS), other(scores, lengths=LENGTHS), rtol=0, atol=1e-7
        )


def test_lists_of_pairs() -> None:
    scores = normal(2, 1, 3, 4)
    for layer in (SequenceAttention(), LPSequenceAttention(), MatchingAttention()):
        pairs = layer.pairs(scores.float(), lengths=LENGTHS[:, None])
        assert [len(x[0]) for x in pairs] == [3, 2]
        assert pairs[0][0] == layer.pairs(scores[0, 0].float())
    assert MatchingAttention().pairs(scores[:0]) == []


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize(
    "kind", [MatchingAttention, LPMatchingAttention, SequenceAttention, LPSequenceAttention]
)
def test_items_without_a_structure_have_no_pairs(kind: Any) -> None:
    scores = normal(2, 3, 4).detach()
    scores[1, 0, 0] = torch.nan
    assert kind().pairs(scores) == [kind().pairs(scores[:1])[0], []]


@both
def test_arguments(kind: Any) -> None:
    with pytest.raises(ValueError, match="full is 'rows' and null is 0.5"):
        kind(full="rows", null=0.5)
    with pytest.raises(ValueError, match="full is 'columns'; expected"):
        kind(full="columns")
    with pytest.raises(TypeError, match="null: got .*; expected a number, or True"):
        kind(null="yes")
    with pytest.raises(TypeError, match=f"{kind.__name__}: scores"):
        kind(null=0.5)([[0.0]])
    with pytest.raises(ValueError, match="rescale is True"):
        LPMatchingAttention(null=0.0, rescale=True)
    assert kind(null=False).full == "shorter"


@both
def test_a_partner_in_the_padding_is_refused(kind: Any) -> None:
    criterion, scores = SparseMAPLoss(kind(null=0.0)), normal(2, 3, 4)
    columns = torch.tensor([[0, 1, -1], [0, 3, 2]])  # the third row of item 1 is padding
    table = torch.nn.functional.one_hot(columns.clamp(min=0), 4).float()
    for target in (columns, table):
        with pytest.raises(ValueError, match=r"position 3 is on at \[1, 1\].* 2 of 4 positions"):
            criterion(scores, target, lengths=LENGTHS)
    columns[1, 1] = -1
    assert criterion(scores, columns, lengths=LENGTHS).isfinite()


@both
def test_the_parameter_follows_the_habits_of_modules(kind: Any) -> None:
    layer = kind(null=True, dtype=torch.float64, device="cpu")
    assert layer.null.dtype == torch.float64
    torch.nn.init.constant_(layer.null, 2.0)
    layer.reset_parameters()
    assert layer.null.tolist() == [0.0]
    assert kind(null=True, device="meta").null.device.type == "meta"
    kind(null=1.0).reset_parameters()  # nothing to set
