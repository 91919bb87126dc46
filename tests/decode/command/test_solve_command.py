"""The command ``lpsmap solve``: its answers, its errors and its time."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap_core
from lpsmap_core import FactorGraph, hookimpl, registered
from lpsmap_core.command import cli
from lpsmap_decode import FileFormat, NamedGraph, exact_decoder
from lpsmap_decode.command import solve_file
from lpsmap_decode.command.solve_file import UNSOLVED

GOOD = {
    "variables": {"u": [[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]], "v": [0.2, float("-inf")]},
    "factors": [
        {"type": "Xor", "over": ["u"]},
        {"type": "Pair", "over": ["u[0, -1]", "~v[0]"], "scores": 0.5},
    ],
}


def written(folder: Path, content: Any, name: str = "problem.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_lpsmap_solve_prints_json(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    result = CliRunner().invoke(cli.main, ["solve", str(path), "--tol", "1e-9"])
    assert result.exit_code == 0
    answer = json.loads(result.output)
    assert set(answer["status"]) == {"SOLVED"}
    assert len(answer["objective"]) == len(answer["status"])
    np.testing.assert_allclose(np.sum(answer["variables"]["u"], axis=1), 1.0, atol=1e-6)
    assert answer["variables"]["v"][1] == 0.0


@pytest.mark.filterwarnings("default")
def test_lpsmap_solve_prints_null_for_what_is_no_number(tmp_path: Path) -> None:
    scores = [[1.0, 2.0], [float("nan"), 2.0]]
    factors = [{"type": "Xor", "over": ["u"]}]
    path = written(tmp_path, {"variables": {"u": scores}, "factors": factors})
    result = CliRunner().invoke(cli.main, ["solve", str(path)])

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    answer = json.loads(result.stdout, parse_constant=refuse)
    assert answer["variables"]["u"] == [[0.0, 1.0], [None, None]]
    assert answer["objective"] == [1.5, None]
    assert answer["status"] == ["SOLVED", "NON_FINITE"]
    assert result.exit_code == UNSOLVED == 3
    assert "exit code is 0 if" in CliRunner().invoke(cli.main, ["solve", "-h"]).stdout


@pytest.mark.filterwarnings("default")
def test_warnings_of_a_command_end_with_words(tmp_path: Path) -> None:
    scores, factors = [[-1.0, 2.0], [0.0, 2.0]], [{"type": "Xor", "over": ["u"]}]
    scores[0] = [float("-inf")] * 2
    path = written(tmp_path, {"variables": {"u": scores}, "factors": factors})
    result = CliRunner().invoke(cli.main, ["solve", str(path)])
    assert result.exit_code == 3
    line, explanation = result.stderr.splitlines()
    assert "because of" in explanation
    assert line.startswith("Warning: 1 of 2 components were not solved.")
    assert line.endswith("because of Xor 0 of factors[0].")


class Faulty(lpsmap_core.Factor):
    """A type whose oracle fails."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return 1 // 0

    def vertex(self, y: Any) -> Any:
        return np.zeros(self.event_shape), np.empty(0)


@lpsmap_core.kernel
def refuse(rows: Any, factors: Any, scores: Any, structures: Any) -> None:
    if len(rows) > 0:
        raise ValueError("the kernel says no")


class Refusing(Faulty):
    """A type whose kernel fails with an error of a kind that others have words for."""

    map_kernel = staticmethod(refuse)


class FaultyFormat(FileFormat):
    """A format whose reader fails."""

    name, suffixes = "faulty", (".faulty",)

    def read(self, path: Path) -> NamedGraph:
        raise AttributeError("no such thing")


class NoGraph(FaultyFormat):
    """A format whose reader returns something else."""

    suffixes = (".none",)

    def read(self, path: Path) -> NamedGraph:
        return None  # type: ignore[return-value]


class FaultyPlugin:
    """Their plugin."""

    lpsmap_api_version = 3

    @hookimpl
    def lpsmap_factors(self) -> list[type[lpsmap_core.Factor]]:
        return [Faulty, Refusing]

    @hookimpl
    def lpsmap_formats(self) -> list[type[FileFormat]]:
        return [FaultyFormat, NoGraph]


def test_what_a_plugin_does_is_no_traceback(tmp_path: Path) -> None:
    content = {"variables": {"u": [1.0]}, "factors": [{"type": "Faulty", "over": ["u"]}]}
    kernel = {**content, "factors": [{"type": "Refusing", "over": ["u"]}]}
    with registered(FaultyPlugin()):
        place = r"raised by refuse in .*test_solve_command.py, line \d+"
        result = CliRunner().invoke(cli.main, ["solve", str(written(tmp_path, kernel, "b.json"))])
        assert re.search(f"^Error: .*ValueError: the kernel says no, {place}", result.output)
        for name, words in (
            (
                "a.json",
                "ZeroDivisionError: .* raised by solve_map in .*test_solve_command.py",
            ),
            ("a.faulty", "AttributeError: no such thing; raised by the format of registered-by-h"),
            ("a.none", "returned None; expected a NamedGraph"),
        ):
            result = CliRunner().invoke(cli.main, ["solve", str(written(tmp_path, content, name))])
            assert result.exit_code == 1
            assert isinstance(result.exception, SystemExit)
            assert re.search(f"^Error: .*{name}.*{words}", result.output), result.output


def test_lpsmap_solve_refuses_in_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, {"variables": {"u": [float("nan")]}, "factors": []})
    bad = written(tmp_path, "{", "bad.json")
    for file, words in (
        (path, "problem.json: variables['u']: scores: variable block 0 holds nan at [0]"),
        (bad, "bad.json: line 1, column 2: "),
        (tmp_path, "directory"),
    ):
        result = CliRunner().invoke(cli.main, ["solve", str(file)])
        assert result.exit_code != 0
        assert "Error: " in result.output
        assert words in result.output


@pytest.mark.parametrize("task", ["sparsemap", "lp-map", "map"])
def test_the_time_of_the_command_counts_the_reading(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is read for as long as it is solved."""
    path = tmp_path / "model.uai"
    path.write_text("MARKOV 1 2 1 1 0 2 1 3")
    given: list[float] = []
    read, solve = solve_file.read_graph, solve_file.solve_as

    def slow(file: Path, max_memory: float) -> NamedGraph:
        time.sleep(0.3)
        return read(file, max_memory)

    def solve_at_leisure(task: str, graph: FactorGraph, options: dict[str, Any]) -> Any:
        given.append(options["max_time"])
        return solve(task, graph, {**options, "max_time": None})

    monkeypatch.setattr(solve_file, "read_graph", slow)
    monkeypatch.setattr(solve_file, "solve_as", solve_at_leisure)
    for seconds in ("60", "0.1"):
        result = CliRunner().invoke(
            cli.main, ["solve", str(path), "--task", task, "--max-time", seconds]
        )
        assert result.exit_code == 0, result.output
    assert 0.0 < given[1] < 0.1
    assert 1.0 < given[0] <= 59.7


def test_the_command_hands_over_to_another_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports progress, which has nothing to do with the choice of the solver."""
    pytest.importorskip("highspy", reason="highspy is not installed: the extra [highs]")
    rng = np.random.default_rng(0)
    scores, pairs = rng.normal(size=12), np.triu_indices(12, 1)
    factors: list[dict[str, Any]] = [{"type": "Budget", "over": ["u"], "budget": 4}]
    for i, j in zip(*pairs, strict=True):
        over = [f"u[{i}]", f"u[{j}]"]
        factors.append({"type": "Pair", "over": over, "scores": rng.normal()})
    path = written(tmp_path, {"variables": {"u": scores.tolist()}, "factors": factors})
    monkeypatch.setattr(exact_decoder, "FIRST_NODES", 1)
    result = CliRunner().invoke(cli.main, ["solve", str(path), "--task", "map"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert (answer["solver"], answer["status"]) == ("highs", ["PROVED"])


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("form", ["table", "json"])
def test_contradictions_are_cited_by_their_lines_without_nan(tmp_path: Path, form: str) -> None:
    path = tmp_path / "odd.wcnf"
    cycle = "".join(f"h {a} {b} 0\nh -{a} -{b} 0\n" for a, b in ((1, 2), (2, 3), (1, 3)))
    path.write_text(f"c an odd cycle\n{cycle}h 4 1 0\n", encoding="utf-8")
    command = ["solve", str(path), "--task", "map", "--output", form]
    done = CliRunner().invoke(cli.main, command)
    assert done.exit_code == 3
    assert "nan" not in done.stdout.lower()
    cited = "line 2; line 3; line 4; line 5; line 6; line 7."
    assert f"{path}: Component 0 has no solution because of {cited}" in done.stderr
    if form == "json":
        assert json.loads(done.stdout)["contradictions"]["0"] == [f"line {i}" for i in range(2, 8)]


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "text", "cited"),
    [
        ("odd.fg", "3\n3\n0\n0\n0\nXOR 2 1 2\nXOR 2 2 3\nXOR 2 1 3\n", "line 6, XOR; line 7"),
        (
            "none.uai",
            "MARKOV\n2\n2 2\n2\n2 0 1\n2 0 1\n4\n1 0\n0 0\n4\n0 0\n0 1\n",
            "factor 0, line 5; factor 1, line 6.",
        ),
    ],
)
def test_contradictions_of_other_formats(tmp_path: Path, name: str, text: str, cited: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli.main, ["solve", str(path), "--task", "map", "--output", "table"])
    assert done.exit_code == 3
    assert cited in done.stderr
