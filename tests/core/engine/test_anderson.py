"""Anderson acceleration finishes what the plain loop and the polish do not."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import AtMostOne, FactorGraph, Sequence
from lpsmap_core import Solution
from lpsmap_core.api import FloatArray, FloatTable
from lpsmap_core.engine.anderson import FIRST_ACCELERATED, MAX_MOVES, combination_weights

N_LINKS = 30


@pytest.mark.parametrize("n", [1, 3, MAX_MOVES])
def test_weights_make_the_move_as_short_as_can_be(rng: np.random.Generator, n: int) -> None:
    moves, move = rng.normal(size=(n, N_LINKS)), rng.normal(size=N_LINKS)
    moves *= 10.0 ** rng.uniform(-6, 0, size=(n, 1))
    moves *= np.abs(moves @ move)[:, None] / np.square(moves).sum(axis=1)[:, None]  # weights near 1
    expected = np.linalg.lstsq(moves.T, move, rcond=None)[0]
    np.testing.assert_allclose(weights_of(moves, move), expected, rtol=1e-7)


def test_far_jumps_are_not_taken(rng: np.random.Generator) -> None:
    """A move that hardly changes says nothing about where it ends."""
    move = rng.normal(size=N_LINKS)
    assert weights_of(1e-3 * move[None], move) is None
    assert weights_of(np.zeros((1, N_LINKS)), move) is None


def weights_of(moves: FloatTable, move: FloatArray) -> FloatArray | None:
    return combination_weights(moves @ moves.T, moves @ move)


@pytest.mark.parametrize(("scale", "seed"), [(10.0, 0), (100.0, 16), (100.0, 20)])
def test_sharp_sequences(scale: float, seed: int) -> None:
    """The loop and the polish took 800 iterations for the first, over 1,500 for the others."""
    rng = np.random.default_rng(seed)
    scores, transitions = rng.standard_normal((1, 14, 20)), rng.standard_normal((1, 13, 20, 20))
    initial, final = rng.standard_normal((2, 1, 20))
    graph = FactorGraph()
    u = graph.variable_from(scale * scores)
    graph.add(Sequence(u, scale * transitions, initial=scale * initial, final=scale * final))
    graph.add(AtMostOne(u, axis=1))
    solution = graph.solve(max_iter=1500)
    assert solution.ok
    assert solution.iterations.max() > 25
    np.testing.assert_allclose(u.value.sum(axis=2), 1.0, rtol=0, atol=1e-5)
    assert (u.value.sum(axis=1) <= 1.0 + 1e-5).all()


def test_components_are_accelerated_as_if_alone() -> None:
    """Those of a block are accelerated side by side."""
    rng = np.random.default_rng(0)
    scores, transitions = rng.normal(0, 10, (3, 14, 20)), rng.normal(0, 10, (3, 13, 20, 20))
    together = sequences(scores, transitions)
    assert together.iterations.min() > FIRST_ACCELERATED
    for i in range(3):
        alone = sequences(scores[i : i + 1], transitions[i : i + 1])
        assert alone.iterations == together.iterations[i]
        np.testing.assert_array_equal(alone.values, together.values.reshape(3, -1)[i])


def sequences(scores: FloatArray, transitions: FloatArray) -> Solution:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Sequence(u, transitions))
    graph.add(AtMostOne(u, axis=1))
    return graph.solve()
