"""The format and the command, compared with enumeration of all assignments."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lpsmap_assignment import AssignmentFormat, plugin
from lpsmap_core import installed, registered
from lpsmap_decode import FileFormatError

SMALL = "c two of each\np asn 4 3\nn 1\nn 2\n\na 1 3 7\na 1 4 2\na 2 4 1\n"


@pytest.fixture(autouse=True)
def offered() -> Iterator[types.ModuleType]:
    """Register the plugin if it is not installed."""
    if "assign" in installed().commands:
        yield plugin
    else:
        with registered(plugin):
            yield plugin


def written(folder: Path, text: str) -> Path:
    path = folder / "problem.asn"
    path.write_text(text, encoding="utf-8")
    return path


def run(path: Path) -> tuple[int, str]:
    ended = CliRunner().invoke(installed().commands["assign"].value, [str(path)])
    return ended.exit_code, ended.output


@pytest.mark.parametrize("seed", range(5))
def test_the_command_prints_the_cheapest_assignment(tmp_path: Path, seed: int) -> None:
    n = 4
    costs = np.random.default_rng(seed).integers(0, 50, size=(n, n))
    lines = [f"p asn {2 * n} {n * n}", *(f"n {i + 1}" for i in range(n))]
    lines += [f"a {i + 1} {n + j + 1} {costs[i, j]}" for i in range(n) for j in range(n)]
    code, output = run(written(tmp_path, "\n".join(lines)))
    *pairs, last = output.splitlines()
    sinks = [int(pair.split()[1]) - n - 1 for pair in pairs]
    best = min(costs[np.arange(n), list(p)].sum() for p in itertools.permutations(range(n)))
    assert code == 0
    assert sorted(sinks) == list(range(n))
    assert costs[np.arange(n), sinks].sum() == best
    assert last == f"cost {best}"


def test_arcs_outside_the_file_are_not_used(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    assert run(path) == (0, "1 3\n2 4\ncost 8\n")
    assert AssignmentFormat().read(path).variables["arcs"].shape == (3,)


def test_an_infeasible_problem_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, "p asn 3 2\nn 1\nn 2\na 1 3 1\na 2 3 1\n")
    assert run(path) == (3, "no assignment\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("a 2 4 1", "a 2 4"), "line 8: got 'a 2 4'; expected"),
        (SMALL.replace("asn 4 3", "asn 4 4"), "got 3 arcs; expected 4"),
        (SMALL.replace("n 2\n", ""), "expected an arc at every node, from a source to a sink"),
        ("", "got 0 arcs; expected 1 or more"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(FileFormatError, match=words):
        AssignmentFormat().read(path)
    code, output = run(path)
    assert code == 1
    assert "problem.asn" in output
