"""Violated sets of words, against enumeration of all sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lpsmap_factors_struct.arborescence_polytope.cuts import flow_workspace, violated_sets

TOLERANCE = 1e-9


def entering(capacity: np.ndarray, words: tuple[int, ...]) -> float:
    """What enters a set, from the root and from words outside."""
    outside = [h for h in range(len(capacity)) if h not in words]
    root = sum(capacity[m, m] for m in words)
    return float(root + capacity[np.ix_(words, outside)].sum())


def rows(rng: np.random.Generator, n: int, kind: str) -> np.ndarray:
    """Arcs into each word, which sum to one."""
    if kind == "dense":
        arcs = rng.dirichlet(np.full(n, 0.5), n)
    elif kind == "sparse":
        arcs = np.where(rng.random((n, n)) < 2.0 / n, rng.random((n, n)), 0.0)
    elif kind == "quarters":  # what enters is often exactly enough
        arcs = rng.multinomial(4, np.full(n, 1.0 / n), n).astype(float)
    else:  # a hub that all others hang from, and few enter
        arcs = 0.1 * rng.random((n, n))
        arcs[1:, 0] += 1.0
    arcs[np.arange(n), np.arange(n)] *= rng.choice([0.3, 1.0, 3.0])
    arcs[~arcs.any(axis=1), rng.integers(n)] = 1.0
    return arcs / arcs.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["dense", "sparse", "quarters", "hub"])
@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_sets_are_found_that_too_little_enters_and_none_only_if_there_are_none(n, kind):
    rng = np.random.default_rng(n)
    memory, found = flow_workspace(n), []
    subsets = [s for k in range(2, n + 1) for s in itertools.combinations(range(n), k)]
    for _ in range(60):
        capacity = rows(rng, n, kind)
        member = np.zeros((2 * n, n))
        count = violated_sets(capacity.reshape(-1), n, TOLERANCE, member, 1, memory)
        sets = [tuple(np.flatnonzero(one).tolist()) for one in member[1:count]]
        least = min(entering(capacity, words) for words in subsets)
        assert (count > 1) == (least < 1.0 - TOLERANCE)
        assert len(set(sets)) == len(sets)
        assert all(entering(capacity, words) < 1.0 - 0.5 * TOLERANCE for words in sets)
        assert not member[0].any()
        found.append(count > 1)
    assert any(found)
    assert not all(found) or kind == "hub"
