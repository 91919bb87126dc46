"""`import lpsmap` with what the distribution depends on."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import lpsmap

PARTS = {
    "TorchFactorGraph": "lpsmap_torch",
    "DMVTree": "lpsmap_search",
    "solve_many": "lpsmap_decode",
}


def test_both_packs_are_offered_under_one_name() -> None:
    graph = lpsmap.FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(4, 4)))
    graph.add(lpsmap.DepTree(u))
    graph.add(lpsmap.Budget(u, 2, axis=0))
    assert graph.solve().ok


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_missing_is_named(name: str) -> None:
    package = PARTS[name]
    if importlib.util.find_spec(package):
        assert getattr(lpsmap, name)
    else:
        with pytest.raises(AttributeError, match=f"pip install .*{package.replace('_', '.')}"):
            getattr(lpsmap, name)
