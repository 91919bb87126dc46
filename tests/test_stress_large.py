"""The judge of large graphs against planted errors: it must name each, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpsmap import FactorGraph
from stress_large import wrong_assignments, wrong_marginals
from sweep_cases import Case

CASES = [
    ("Xor", 9, 0),
    ("DepTree", 6, 3),
    ("Sequence", 12, 0),
    ("Budget", 9, 12),
    ("Matching", 8, 21),
    ("Pair", 7, 8),
    ("Imply", 5, 1239),
    ("Or", 7, 8),
    ("XorOut", 6, 819),
]
"""Of all companies, with scores that are normal, rounded, equal and masked; also negated slots."""

LARGER = [("DepTree", 9, 3), ("Imply", 7, 1239), ("XorOut", 8, 819)]
"""Some of them at sizes for which the judge needs many seconds."""

Change = Callable[[Any], None]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Change], None]:
    """Change what a method of graphs returns."""

    def plant(name: str, change: Change) -> None:
        method = getattr(FactorGraph, name)

        def faulty(self: FactorGraph, *args: Any, **options: Any) -> Any:
            found = method(self, *args, **options)
            change(found)
            return found

        monkeypatch.setattr(FactorGraph, name, faulty)

    return plant


@pytest.mark.parametrize(
    ("kind", "size", "seed"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGER)],
)
def test_what_is_right_is_called_right(kind: str, size: int, seed: int) -> None:
    wrong, _, unjudged = wrong_marginals(Case(kind, size, seed))
    assert (wrong, unjudged) == ([], 0)
    assert wrong_assignments(Case(kind, size, seed))[0] == []


@pytest.mark.parametrize(("kind", "size", "seed"), CASES[:4])
def test_marginals_of_other_scores_are_found(
    kind: str, size: int, seed: int, changed: Callable[[str, Change], None]
) -> None:
    def move(solution: Any) -> None:
        free = np.flatnonzero((solution.values > 0.01) & (solution.values < 0.99))
        solution.values[free] += 3e-3 * np.resize([1.0, -1.0], len(free))
        assert len(free)

    changed("solve", move)
    wrong, _, _ = wrong_marginals(Case(kind, size, seed))
    assert any("marginals are" in what for what in wrong)


@pytest.mark.parametrize(("kind", "size", "seed"), CASES[:4])
def test_an_objective_that_is_off_is_found(
    kind: str, size: int, seed: int, changed: Callable[[str, Change], None]
) -> None:
    def move(solution: Any) -> None:
        solution.__dict__["objective"] = solution.objective - 1e-3 * (1.0 + solution.objective)

    changed("solve", move)
    wrong, _, _ = wrong_marginals(Case(kind, size, seed))
    assert any("the objective is" in what for what in wrong)


@pytest.mark.parametrize(("kind", "size", "seed"), CASES[:4])
def test_bounds_that_are_too_low_are_found(
    kind: str, size: int, seed: int, changed: Callable[[str, Change], None]
) -> None:
    def lower(found: Any) -> None:
        if hasattr(found, "proved"):
            found.bound = found.bound - 1e-2 * (1.0 + np.abs(found.bound))

    changed("solve_map", lower)
    wrong, _, _ = wrong_assignments(Case(kind, size, seed))
    assert any("exact: the bound" in what for what in wrong)
