"""Starts of plugins: they change the time of a solve alone, and faulty ones are named."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import lpsmap_core
from lpsmap import FactorGraph, Pair, Xor
from lpsmap_core import Start, Status, hookimpl, registered
from lpsmap_core.api import BoolArray, Part

N = 5
"""Number of components."""


def pairs() -> FactorGraph:
    """Declare components of two coupled factors each."""
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal((N, 3)))
    graph.add(Xor(u))
    graph.add(Pair(u[:, 0], u[:, 1], rng.standard_normal(N)))
    return graph


class Anywhere(Start):
    """Starts at random points, whose duals do not sum to zero."""

    name = "anywhere"
    n_found = 0

    def serves(self, part: Part) -> BoolArray | None:
        return np.arange(part.n_components) > 0

    def find(self, part: Part, components: Any, *arrays: Any) -> BoolArray:
        *_, u, duals = arrays
        assert 0 not in components
        chosen = np.isin(part.component, components)
        rng, of_link = np.random.default_rng(1), np.repeat(chosen, np.diff(part.variable_offsets))
        u[chosen] = rng.random(int(chosen.sum()))
        duals[of_link] = 3.0 * rng.standard_normal(int(of_link.sum()))
        Anywhere.n_found += len(components)
        return np.ones(len(components), dtype=bool)


class LinearAnywhere(Anywhere):
    """The same for LP-MAP."""

    name = "linear-anywhere"
    linear = True


def offering(start: type[Start]) -> types.ModuleType:
    plugin: Any = types.ModuleType("plugin")
    plugin.lpsmap_api_version = lpsmap_core.plugin.lpsmap_api_version
    plugin.lpsmap_starts = hookimpl(lambda: [start])
    return plugin


@pytest.mark.parametrize("kind", [Anywhere, LinearAnywhere])
def test_a_start_changes_no_result(kind: type[Anywhere]) -> None:
    verb = "solve_map" if kind.linear else "solve"
    expected = getattr(pairs(), verb)(tol=1e-9)
    with registered(offering(kind)):
        Anywhere.n_found = 0
        for options in ({}, {"threads": 2}):
            found = getattr(pairs(), verb)(tol=1e-9, **options)
            assert (found.status == Status.SOLVED).all()
            np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-8)
        assert Anywhere.n_found == 2 * (N - 1)
        assert found.iterations[0] == expected.iterations[0]
        getattr(pairs(), verb)(adapt=False, max_iter=5000)
        assert Anywhere.n_found == 2 * (N - 1)


class WrongService(Anywhere):
    """Returns one flag too few."""

    def serves(self, part: Part) -> BoolArray | None:
        return np.ones(part.n_components - 1, dtype=bool)


class WrongFinds(Anywhere):
    """Returns numbers."""

    def find(self, part: Part, components: Any, *arrays: Any) -> BoolArray:
        return components  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [WrongService, WrongFinds])
def test_faulty_starts_are_named(kind: type[Start]) -> None:
    with (
        registered(offering(kind)),
        pytest.raises(RuntimeError, match=f"start 'anywhere' returned.*bug of .*{kind.__name__}"),
    ):
        pairs().solve()
