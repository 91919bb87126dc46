"""Latent trees: the heads of the best ones, and errors in the layer's own name."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from layer_cases import normal
from lpsmap_torch.layers import LatentTree


def trees(n: int, budget: int) -> list[tuple[int, ...]]:
    """Return the heads of all trees in which words have at most `budget` modifiers."""
    found = []
    for heads in itertools.product(range(-1, n), repeat=n):
        reached = [-1]
        for _ in range(n):
            reached = [-1, *(m for m in range(n) if heads[m] in reached)]
        if len(reached) == n + 1 and all(heads.count(h) <= budget for h in range(n)):
            found.append(heads)
    return found


@pytest.mark.parametrize("budget", [1, 3])
def test_heads_of_the_best_trees(budget: int) -> None:
    scores, lengths = normal(2, 4, 4), [4, 3]
    scores = scores.detach() + 3.0 * (torch.arange(4) == 0)
    expected = []
    for x, n in zip(scores, lengths, strict=True):
        every = trees(n, budget)
        worth = [
            sum(x[m, m if h < 0 else h].item() for m, h in enumerate(heads)) for heads in every
        ]
        expected.append([*every[worth.index(max(worth))], *[-100] * (4 - n)])
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    layer = LatentTree(budget=budget)
    assert layer.heads(scores, lengths=torch.tensor(lengths)).tolist() == expected
    assert layer.heads(scores, mask=mask).tolist() == expected
    limits = torch.tensor([budget, budget])
    assert LatentTree().heads(scores, mask=mask, budget=limits).tolist() == expected
    assert layer.heads(scores[0]).tolist() == expected[0]
    assert layer.heads(scores[:0]).shape == (0, 4)


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 4, 5)])
def test_scores_are_square(shape: tuple[int, ...]) -> None:
    message = re.escape(f"LatentTree: scores has shape {shape}; expected (..., n, n)")
    for lengths in (None, torch.tensor([4, 5])):
        with pytest.raises(ValueError, match=message):
            LatentTree()(torch.zeros(shape), lengths=lengths)


def test_the_budget_may_come_first() -> None:
    assert LatentTree(2).budget == LatentTree(budget=2).budget == 2
    with pytest.raises(ValueError, match="LatentTree: budget"):
        LatentTree(-1)


def test_unknown_arguments_are_answered_by_all_or_by_a_like_one() -> None:
    with pytest.raises(TypeError, match="'max_modifiers'; expected budget, projective"):
        LatentTree(max_modifiers=2)
    with pytest.raises(TypeError, match="'single_roots'; expected single_root"):
        LatentTree(single_roots=True)


@pytest.mark.parametrize("batch", [0, 2])
def test_sentences_of_no_words_have_no_heads(batch: int) -> None:
    assert LatentTree().heads(torch.zeros(batch, 0, 0)).shape == (batch, 0)
