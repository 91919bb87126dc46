"""The comparison of solvers for one tree: its courses, table and picture at a small size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import figure2


@pytest.fixture(scope="module")
def scores() -> figure2.FloatArray:
    return np.random.default_rng(0).standard_normal((7, 7))


@pytest.fixture(scope="module")
def courses(scores: figure2.FloatArray) -> dict[str, figure2.Course]:
    return figure2.all_courses(scores, iterations=1000, tol=1e-8)


def test_all_start_with_the_best_tree(courses: dict[str, figure2.Course]) -> None:
    assert set(courses) == set(figure2.COLOURS)
    assert {int(course.trees[0]) for course in courses.values()} == {1}
    first = courses["active set"].objective[0]
    assert [c.objective[0] for c in courses.values()] == pytest.approx([first] * 4, abs=1e-12)


def test_the_papers_findings(
    scores: figure2.FloatArray, courses: dict[str, figure2.Course]
) -> None:
    """The active set ends first and exactly, with the fewest trees; vanilla does not end."""
    best, exact = figure2.maximum(scores), courses["active set"]
    assert exact.solved
    assert exact.objective[-1] == pytest.approx(best, abs=1e-12)
    for name in figure2.VARIANTS.values():
        assert len(courses[name].objective) > 2 * len(exact.objective)
        assert courses[name].trees[-1] >= exact.trees[-1]
        assert courses[name].solved == (name != "vanilla")
        assert best - courses[name].objective[-1] >= -1e-12


def test_command_draws_and_prints(tmp_path: Path) -> None:
    out = tmp_path / "some" / "figure.png"
    options = ["--nodes", "4", "--seed", "3", "--iterations", "20", "--out", str(out)]
    result = CliRunner().invoke(figure2.main, options)
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in result.output.splitlines()] == [
        "solver", "active", "vanilla", "away-step", "pairwise", "drawn"
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["--nodes", "--iterations", "--tol"])
def test_options_out_of_range(option: str) -> None:
    result = CliRunner().invoke(figure2.main, [option, "0"])
    assert result.exit_code == 2
    assert option in result.output
