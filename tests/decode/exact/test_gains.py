"""What branching gained so far, held to means over lists of all that was noted."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_decode.exact.relaxation_search import MIN_GAIN, OPEN, Gains, Node

N = 6
NONE = np.empty(0)


def node(variable: int, value: int, moved: float, bound: float) -> Node:
    """Return a node that a variable was decided for, of a parent with that bound."""
    decided = np.full(N, OPEN, dtype=np.int8)
    if variable >= 0:
        decided[variable] = value
    return Node(decided, NONE, NONE, 0.0, bound, variable, moved)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_unit_gains_is_the_mean_of_what_it_gained(seed: int) -> None:
    rng, gains = np.random.default_rng(seed), Gains(N)
    noted: dict[tuple[int, int], list[float]] = {}
    for _ in range(seed * 8):  # one variable is never branched on, one with one value only
        variable, value = int(rng.integers(N - 1)), int(rng.integers(2))
        value = 1 if variable == 0 else value
        moved, bound, fell = rng.uniform(0.1, 1.0), rng.normal(), rng.normal()
        gains.note(node(variable, value, moved, bound), bound - fell)
        noted.setdefault((value, variable), []).append(max(0.0, fell) / moved)
    a_unit = np.ones((2, N))
    for value in (0, 1):
        known = [gain for (of, _), some in noted.items() if of == value for gain in some]
        if known and np.mean(known) > 0.0:
            a_unit[value] = np.mean(known)
    for where, some in noted.items():
        a_unit[where] = np.mean(some)
    means = rng.uniform(size=N)
    both = a_unit * [means, 1.0 - means]
    expected = np.maximum(both, MIN_GAIN * both.max()).prod(axis=0)
    np.testing.assert_allclose(gains.expected(means), expected, rtol=1e-12)


def test_what_says_nothing_is_not_noted() -> None:
    gains = Gains(N)
    before = gains.expected(np.full(N, 0.3))
    gains.note(node(-1, 0, 1.0, 5.0), 1.0)  # the first node
    gains.note(node(2, 1, 0.5, np.inf), 1.0)  # the parent was not bounded
    gains.note(node(2, 1, 0.5, 5.0), -np.inf)  # nothing is allowed: how much is that a unit?
    np.testing.assert_array_equal(gains.expected(np.full(N, 0.3)), before)


def test_a_variable_whose_values_both_cost_goes_before_one_that_just_moves_on() -> None:
    gains, means = Gains(N), np.full(N, 0.5)
    for value in (0, 1):
        gains.note(node(1, value, 0.5, 10.0), 9.0)
    gains.note(node(4, 0, 0.5, 10.0), 4.0)  # much by one value, nothing by the other
    gains.note(node(4, 1, 0.5, 10.0), 10.0)
    promise = gains.expected(means)
    assert promise[1] > promise[4] > 0.0
