"""LP-MAP where the loop is slow: its steps, its certificate and its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linprog

from lpsmap import Budget, DepTree, FactorGraph, Sequence, Solution, Status, Variables
from lpsmap_core.engine import linear, proximal
from lpsmap_core.engine.state import PartState

LIMITS = (90, 100, 101, 102, 103)


def trees(scale: float, seed: int) -> tuple[FactorGraph, Variables]:
    """Return projective trees of 15 words, of which none has more than two modifiers."""
    graph = FactorGraph()
    u = graph.variable_from(scale * np.random.default_rng(seed).standard_normal((15, 15)))
    graph.add(DepTree(u, projective=True))
    graph.add(Budget(u.T, 2))
    return graph, u


def bounded_tags(seed: int) -> tuple[FactorGraph, Variables, float]:
    """Return tags of 6 words, of which each may occur twice, and the maximum of a linear program.

    Its variables are the tags of words and of neighbouring words.
    """
    rng, n, s = np.random.default_rng(seed), 6, 4
    scores, steps = rng.standard_normal((n, s)), rng.standard_normal((s, s))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Sequence(u, steps))
    graph.add(Budget(u.T, 2))
    n_steps = (n - 1) * s * s
    equal, bounds = [], []
    for i in range(n):
        row = np.zeros(n * s + n_steps)
        row[i * s : (i + 1) * s] = 1.0
        equal.append((row, 1.0))
    for i in range(n - 1):
        pairs = np.arange(n * s + i * s * s, n * s + (i + 1) * s * s).reshape(s, s)
        for tag in range(s):
            for word, group in ((i, pairs[tag]), (i + 1, pairs[:, tag])):
                row = np.zeros(n * s + n_steps)
                row[word * s + tag], row[group] = 1.0, -1.0
                equal.append((row, 0.0))
    for tag in range(s):
        row = np.zeros(n * s + n_steps)
        row[tag : n * s : s] = 1.0
        bounds.append(row)
    a, b = zip(*equal, strict=True)
    costs = -np.concatenate([scores.ravel(), np.tile(steps.ravel(), n - 1)])
    best = linprog(costs, np.array(bounds), np.full(s, 2.0), np.array(a), np.array(b))
    return graph, u, -float(best.fun)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e4, 1e6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trees_with_bounds_are_solved(scale: float, seed: int) -> None:
    """The loop ended at its limit of iterations, .0003 of the scores from the maximum."""
    graph, _ = trees(scale, seed)
    solution = graph.solve_map()
    assert solution.status[0].ok
    assert solution.iterations[0] < 300
    assert abs(solution.gap[0]) < 1e-9 * scale


@pytest.mark.parametrize("seed", range(12))
def test_the_value_is_that_of_the_linear_program(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the steps begin at once, or after one or two iterations."""
    monkeypatch.setattr(linear, "MAX_LOOP_ITERATIONS", seed % 3)
    graph, _, best = bounded_tags(seed)
    solution = graph.solve_map()
    assert solution.status[0].ok
    assert float(solution.objective[0]) == pytest.approx(best, rel=1e-9)


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_components_do_not_depend_on_each_other() -> None:
    """Some are slow, some are solved by the loop, and one is infeasible."""
    scores = np.stack([np.random.default_rng(s).standard_normal((15, 15)) for s in range(6)])
    scores[5, 3] = -np.inf  # a word without a head

    def solved(some: slice) -> tuple[Solution, npt.NDArray[np.float64]]:
        graph = FactorGraph()
        u = graph.variable_from(scores[some])
        graph.add(DepTree(u, projective=True))
        graph.add(Budget(u, 2, axis=1))
        return graph.solve_map(), u.value

    together, values = solved(slice(0, 6))
    assert together.status[5] is Status.INFEASIBLE
    for i in range(5):
        alone, value = solved(slice(i, i + 1))
        assert together.status[i].ok == alone.status[0].ok
        np.testing.assert_allclose(values[i], value[0], rtol=0, atol=1e-6)


def test_steps_count_as_iterations_and_are_traced() -> None:
    graph, _ = trees(1.0, 1)
    solution = graph.solve_map(trace=True)
    residuals = solution.trace
    assert residuals is not None
    assert len(residuals) == solution.iterations[0] > linear.MAX_LOOP_ITERATIONS
    assert np.isfinite(residuals).all()


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("options", [{"adapt": False}, *({"max_iter": n} for n in LIMITS)])
def test_limits_and_plain_steps_are_kept(options: dict[str, int]) -> None:
    graph, _ = trees(1.0, 1)
    solution = graph.solve_map(**options, trace=True)
    assert solution.iterations[0] == options.get("max_iter", 1000)
    assert solution.status[0] is Status.ITERATION_LIMIT


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_scores_beside_masks_are_left_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps at the scale of masks took all iterations, and the loop alone would have ended."""
    steps = []
    solve = proximal.solve_part

    def count(*args: Any) -> PartState:
        steps.append(args[1])
        return solve(*args)

    monkeypatch.setattr(proximal, "solve_part", count)
    graph, u = trees(1.0, 1)
    graph.solve_map()
    assert steps
    steps.clear()
    scores = np.random.default_rng(1).standard_normal((15, 15))
    scores[3] -= 1e5  # needed, since a word has a head
    graph.rescore(u, scores)
    graph.solve_map()
    assert not steps
