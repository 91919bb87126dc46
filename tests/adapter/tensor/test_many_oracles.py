"""Random batches of all types with an oracle on tensors, against core's engine."""

from __future__ import annotations

import pytest
import torch

from tensor_oracles import KINDS, check_batch


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 50))
def test_random_batches(first: int) -> None:
    for seed in range(first, first + 50):
        check_batch(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_some_batches(kind: str) -> None:
    for seed in range(4):
        check_batch(seed, kind=kind)


def test_scores_in_float32() -> None:
    for seed in range(10, 16):
        check_batch(seed, torch.float32)
