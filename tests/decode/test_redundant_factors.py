"""Redundant factors: they can be omitted, and binding ones are not counted."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import (
    AtMostOne,
    Budget,
    DepTree,
    FactorGraph,
    ModifierBudget,
    Nand,
    Or,
    Pair,
    Sequence,
    Xor,
)
from lpsmap_decode import count_redundant
from lpsmap_decode.redundant_factors import find_redundant


def counted(*declare, shape=(3, 4, 4)) -> dict[str, int]:
    graph = FactorGraph()
    u = graph.variable(shape)
    for make in declare:
        graph.add(make(u))
    return count_redundant(graph.factors)


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        pytest.param([DepTree, lambda u: Budget(u, 2)], {"Budget": 12}, id="rows of a tree"),
        pytest.param([DepTree, lambda u: Budget(u, 2, axis=-2)], {}, id="columns of a tree"),
        pytest.param([DepTree, lambda u: ModifierBudget(u, 2)], {}, id="heads of a tree"),
        pytest.param([lambda u: ModifierBudget(u, 3)], {"ModifierBudget": 12}, id="three others"),
        pytest.param([lambda u: Budget(u, 4)], {"Budget": 12}, id="all of a row"),
        pytest.param([lambda u: Budget(u, 4, True)], {}, id="all of a row, forced"),
        pytest.param([Xor, AtMostOne], {"AtMostOne": 12}, id="a row twice"),
        pytest.param([Xor, Xor], {"Xor": 12}, id="the first stays"),
        pytest.param([Xor, lambda u: AtMostOne(u, axis=-2)], {}, id="rows and columns"),
        pytest.param([Xor, lambda u: Nand(u[..., :2])], {"Nand": 12}, id="two of a row"),
        pytest.param([AtMostOne, lambda u: Or(~u)], {"Or": 12}, id="not all, of one at most"),
        pytest.param([Xor, lambda u: AtMostOne(~u)], {}, id="negated"),
        pytest.param([lambda u: Xor(u[..., :3]), Or], {"Or": 12}, id="one among more"),
        pytest.param([lambda u: Xor(u[..., :3]), lambda u: Budget(u, 1)], {}, id="one beside"),
        pytest.param([lambda u: Budget(u[..., :0], 1)], {}, id="padding"),
        pytest.param(
            [lambda u: Pair(u[..., 0], u[..., 1], np.zeros((3, 4)))], {}, id="scores of its own"
        ),
        pytest.param(
            [lambda u: Sequence(u, np.zeros((4, 4))), AtMostOne], {"AtMostOne": 12}, id="a state"
        ),
    ],
)
def test_factors_that_can_never_bind_are_counted(declare, expected):
    assert counted(*declare) == expected


@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")  # some contradict each other
def test_what_never_binds_can_be_left_out():
    rng = np.random.default_rng(0)
    kinds = [Xor, AtMostOne, Or, lambda u: Budget(u, 2), lambda u: Budget(u, 1), Nand]
    flagged = 0
    for _ in range(60):
        scores = rng.normal(size=5)
        picks = [
            (
                kinds[rng.integers(len(kinds))],
                rng.permutation(5)[: rng.integers(1, 5)],
                rng.random() < 0.3,
            )
            for _ in range(3)
        ]
        whole, rest = FactorGraph(), FactorGraph()
        u, v = whole.variable_from(scores), rest.variable_from(scores)
        for kind, places, negated in picks:
            whole.add(kind(~u[places] if negated else u[places]))
        for (kind, places, negated), never in zip(
            picks, find_redundant(whole.factors), strict=True
        ):
            flagged += int(never.sum())
            if not never.any():
                rest.add(kind(~v[places] if negated else v[places]))
        first, second = whole.solve(tol=1e-9), rest.solve(tol=1e-9)
        if first.ok and second.ok:
            np.testing.assert_allclose(u.value, v.value, atol=1e-6)  # of two solves to 1e-9
        assert first.ok == second.ok
    assert flagged > 10
