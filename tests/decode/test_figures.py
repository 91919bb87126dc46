"""Figures of solves and searches, and what they are drawn from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest

from lpsmap import AtMostOne, Xor
from lpsmap_core import FactorGraph, Solution

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from lpsmap_decode import figures  # noqa: E402


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def traced(**options: bool) -> Solution:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 6, 8)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.add(Xor(graph.variable_from(np.zeros(3))))
    return graph.solve(**options)


def test_a_trace_ends_in_the_residuals() -> None:
    solution = traced(trace=True)
    assert traced().trace is None
    assert solution.trace is not None
    assert solution.trace.shape == (solution.iterations.max(), 2, 4)
    np.testing.assert_array_equal(solution.trace[-1, 0], solution.primal_residual)
    np.testing.assert_array_equal(solution.trace[-1, 1], solution.dual_residual)
    for c in range(3):
        last = solution.iterations[c] - 1
        assert (solution.trace[last:, :, c] == solution.trace[-1, :, c]).all()
        assert (solution.trace[:last, :, c].max(axis=1) > 1e-6).all()
    single = FactorGraph()
    single.add(Xor(single.variable_from(np.zeros(3))))
    alone = single.solve(trace=True)
    assert alone.trace is not None
    assert alone.trace.shape == (1, 2, 1)
    figures.convergence(alone)


def test_convergence_draws_both_residuals() -> None:
    ax = figures.convergence(traced(trace=True))
    assert len(ax.lines) == 2 * (4 + 1)
    assert ax.get_yscale() == "log"
    with pytest.raises(ValueError, match=r"solve with graph\.solve\(trace=True\)"):
        figures.convergence(traced())


def test_a_search_shows_how_score_and_bound_met() -> None:
    ax = figures.search([[0.0, -np.inf, 3.0], [0.5, 1.0, 2.0], [1.0, 2.0, 2.0]])
    assert ax.get_title() == "best score 2, no gap"
    assert [line.get_label() for line in ax.lines] == ["bound", "best score"]
    assert figures.search([[0.0, 1.0, 2.0]]).get_title().endswith("gap 1e+02 %")


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import lpsmap_decode.figures"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'pip install "lpsmap-decode[plot]"' in result.stderr
