"""The door to best assignments: what is said where no decoder is installed, or two are."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpsmap import Dense, FactorGraph, Pair
from lpsmap_core import hookimpl, registered
from lpsmap_core.api import installed_decoder
from lpsmap_core.engine import choice
from lpsmap_core.plugins.registry import Registry
from lpsmap_decode.exact_decoder import ExactDecoder


def triangle() -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from([0.9, 0.8, 0.7])
    graph.add(Pair(u[[0, 0, 1]], u[[1, 2, 2]], np.full(3, -1.0)))
    return graph


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Core without any decoder."""
    monkeypatch.setattr("lpsmap_core.plugins.install_advice.installed", Registry)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("verb", "call"),
    [
        (r"solve_map\(exact=True\)", lambda graph: graph.solve_map(exact=True)),
        ("k_best", lambda graph: graph.k_best(2)),
        ("decode", lambda graph: graph.solve().decode()),
        ("condition", lambda graph: graph.condition([(graph.variables[0][0], 1)])),
        ("exact search", lambda _: installed_decoder("exact search")),
    ],
)
def test_the_pack_to_install_is_named(verb: str, call: Callable[[FactorGraph], Any]) -> None:
    with pytest.raises(ImportError, match=f"^{verb}: .*pip install .*lpsmap.decode$"):
        call(triangle())


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="gap"):
        triangle().solve_map(exact=True, gap=-1.0)
    with pytest.raises(ValueError, match="k_best: k: got 0"):
        triangle().k_best(0)


def test_the_relaxation_is_the_same_without_the_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    x = graph.variable_from(rng.normal(size=(5, 2)))
    graph.add(Dense([x, x[(np.arange(5) + 1) % 5]], rng.normal(size=(5, 2, 2))))
    together = graph.solve_map(tol=1e-9)
    monkeypatch.setattr(choice, "installed", Registry)
    alone = graph.solve_map(tol=1e-9, max_iter=20_000)
    assert alone.ok
    np.testing.assert_allclose(alone.objective, together.objective, rtol=1e-6)


def test_two_decoders() -> None:
    class Other(ExactDecoder):
        name = "other"

    other = types.ModuleType("other")
    other.lpsmap_decoders = hookimpl(lambda: [Other])  # type: ignore[attr-defined]
    other.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with (
        registered(other),
        pytest.raises(
            RuntimeError,
            match="several decoders are installed, 'exact' of lpsmap-decode and 'other' of",
        ),
    ):
        triangle().solve_map(exact=True)
