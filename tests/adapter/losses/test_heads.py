"""Targets of trees and padding: how heads are counted, and rows that are unlabelled."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import DepTree
from lpsmap_torch.losses import CRFLoss

ONE_ROOT = torch.tensor([[1, -1, 1, 2]])


def scores() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, 4)))


def test_a_treebank_tree_counted_from_one_is_refused() -> None:
    with pytest.raises(ValueError, match="subtract 1 from heads counted from 1"):
        CRFLoss(DepTree)(scores(), torch.tensor([[2, 0, 2, 3]]))


def test_roots_are_their_own_heads_on_request() -> None:
    found = CRFLoss(DepTree)(scores(), ONE_ROOT)
    own = torch.tensor([[1, 1, 1, 2]])
    assert CRFLoss(DepTree)(scores(), own, root="self") == found
    for heads, root in ((own, -1), (ONE_ROOT, "self")):
        with pytest.raises(ValueError, match="root"):
            CRFLoss(DepTree)(scores(), heads, root=root)
    with pytest.raises(ValueError, match='root is 0; expected -1, or "self"'):
        CRFLoss(DepTree)(scores(), own, root=0)


def test_heads_mean_the_same_in_both_layouts() -> None:
    arcs = scores()
    first = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [2, 0, 1, 3], [3, 0, 1, 2]])
    other = arcs.gather(-1, first[None])
    found = CRFLoss(lambda u: DepTree(u, packed=False))(other, ONE_ROOT)
    torch.testing.assert_close(found, CRFLoss(DepTree)(arcs, ONE_ROOT), rtol=1e-12, atol=0)


def test_padding_without_lengths_warns_of_phantom_words() -> None:
    heads, criterion = torch.tensor([[1, -1, -100, -100]]), CRFLoss(DepTree)
    with pytest.warns(UserWarning, match="lengths=") as caught:
        criterion(scores(), heads)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(scores(), heads, lengths=[2])
        criterion(scores(), heads, lengths=[4])
        criterion(scores(), torch.tensor([[-100, 2, -1, 2]]))
        criterion(scores(), torch.full((1, 4), -100))


def test_gapped_heads_without_a_root_are_reported() -> None:
    lengths = torch.tensor([4])
    from_one = torch.tensor([[2, 0, -100, 2]])
    with pytest.warns(UserWarning, match="no word has the root, -1.*subtract 1"):
        CRFLoss(DepTree)(scores(), from_one, lengths=lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRFLoss(DepTree)(scores(), torch.tensor([[-1, 0, -100, 2]]), lengths=lengths)
        CRFLoss(DepTree)(scores(), torch.tensor([[1, -100, 1, 2]]), lengths=lengths)


@pytest.mark.parametrize(
    "heads",
    [
        [[1, -100, 1, 2], [3, 3, 1, -100]],  # the roots are in the gaps: no head is 0
        [[2, 0, -1, -1], [1, 2, -1, -1]],  # -1 is padding
    ],
)
def test_heads_from_1_without_a_zero_or_with_other_padding(heads: list[list[int]]) -> None:
    scores_of_two, criterion = torch.zeros(2, 4, 4), CRFLoss(DepTree)
    with pytest.warns(UserWarning, match="no word has the root, -1.*subtract 1"):
        criterion(scores_of_two, torch.tensor(heads), lengths=torch.tensor([4, 4]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        several_roots = torch.tensor([[1, -1, -1, -1], [-1, 2, 0, 2]])
        criterion(scores_of_two, several_roots)
        criterion(scores_of_two[:, :1, :1], torch.tensor([[-1], [-1]]))
        criterion(scores_of_two, several_roots, lengths=torch.tensor([2, 4]))


def test_a_head_beyond_the_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"position 3 is on at \[0, 1\].* 3 of 4 positions"):
        CRFLoss(DepTree)(scores(), torch.tensor([[-1, 3, 1, -100]]), lengths=torch.tensor([3]))
