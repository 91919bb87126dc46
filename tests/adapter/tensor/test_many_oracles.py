"""Random batches of all types with an oracle on tensors, against core's engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lpsmap_torch.tensor import solution
from lpsmap_torch.tensor.active_set import ActiveSets, solve_active_sets
from lpsmap_torch.tensor.splices import MIN_PARTS
from tensor_oracles import KINDS, check_batch, random_batch, result_of


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 50))
def test_random_batches(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if first % 100:  # splice all paths, however short
        monkeypatch.setattr("lpsmap_torch.tensor.local_problems.MIN_PARTS", 1)
    for seed in range(first, first + 50):
        check_batch(seed)


@pytest.mark.parametrize("min_parts", [1, MIN_PARTS])
@pytest.mark.parametrize("kind", KINDS)
def test_some_batches(kind: str, min_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.local_problems.MIN_PARTS", min_parts)
    for seed in range(4):
        check_batch(seed, kind=kind)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 50))
def test_random_batches_with_constraints(first: int) -> None:
    for seed in range(first, first + 50):
        check_batch(seed, constrained=True)


@pytest.mark.parametrize("kind", KINDS)
def test_some_batches_with_constraints(kind: str) -> None:
    for seed in range(4):
        check_batch(seed, kind=kind, constrained=True)


def test_constraints_in_float32() -> None:
    for seed in range(10, 16):
        check_batch(seed, torch.float32, constrained=True)


def test_components_with_constraints_are_not_left_to_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, find = [0, 0], solution._left_by_active_sets

    def counted(*given: Any) -> Any:
        found = find(*given)
        left[0] += int(found.sum())
        left[1] += len(found)
        return found

    monkeypatch.setattr(solution, "_left_by_active_sets", counted)
    for seed in range(30):
        result_of(random_batch(seed, constrained=True), "tensor", torch.float64, False)
    assert left[1] > 50
    assert left[0] <= left[1] // 25


@pytest.mark.parametrize("seed", [12, 13])
def test_masks_that_cannot_hold_are_left_to_the_host_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_calls = []

    def counted(*given: Any) -> ActiveSets:
        sets = solve_active_sets(*given)
        n_calls.append(sets.n_calls)
        return sets

    monkeypatch.setattr("lpsmap_torch.tensor.oracle_batch.solve_active_sets", counted)
    check_batch(seed, kind="DepTree", constrained=True)
    assert max(n_calls) <= 50  # it took 500


def test_scores_in_float32() -> None:
    for seed in range(10, 16):
        check_batch(seed, torch.float32)
