"""Rounding: an assignment of one node, also where rows and columns never agree one by one."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import FactorGraph, Pair, Xor


@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")  # not all are proved the best
@pytest.mark.parametrize("seed", range(10))
def test_a_permutation_with_pairs_has_an_assignment_after_one_node(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, graph = int(rng.integers(4, 8)), FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(Xor(u))
    graph.add(Xor(u, axis=0))
    first, second = rng.integers(0, n * n, (2, 4 * n))
    entries, distinct = u.reshape(-1), first != second
    strengths = 3.0 * rng.standard_normal(int(distinct.sum()))
    graph.add(Pair(entries[first[distinct]], entries[second[distinct]], strengths))
    best = graph.solve_map(exact=True, max_nodes=1)
    chosen = best.value_of(u)
    assert best.found.all()
    np.testing.assert_array_equal(chosen.sum(axis=0), 1.0)
    np.testing.assert_array_equal(chosen.sum(axis=1), 1.0)
