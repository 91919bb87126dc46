"""The commands on files of models: solve with evidence, info, convert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpsmap_core.command import cli
from lpsmap_core.command.solve_file import UNSOLVED
from lpsmap_core.plugins.files import read_graph

MODEL = "MARKOV 3 2 3 2 3 1 0 2 0 1 2 1 2\n2 1 2\n6 1 2 3 4 5 6\n6 1 2 0 4 5 6\n"
LPSMAP = [sys.executable, "-c", "from lpsmap_core.command.cli import main; main()"]
FORMULA = "h 1 2 0\n3 -1 -2 0\n5 3 0\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.uai"
    path.write_text(MODEL)
    return path


def lpsmap(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def answer_of(result: Result) -> dict[str, list[float]]:
    assert result.exit_code == 0, result.output
    answer: dict[str, list[float]] = json.loads(result.stdout)["variables"]
    return answer


@pytest.mark.parametrize(
    ("name", "text"),
    [("e.evid", "2 1 2 2 0"), ("e.json", '{"x1": [0, null, 1], "x1[1]": 0, "x2[0]": 1}')],
)
def test_solve_with_evidence(model: Path, name: str, text: str) -> None:
    evidence = model.with_name(name)
    evidence.write_text(text)
    answer = answer_of(lpsmap("solve", model, "--evidence", evidence))
    assert answer["x1"] == [0.0, 0.0, 1.0]
    assert answer["x2"] == [1.0, 0.0]
    np.testing.assert_allclose(sum(answer["x0"]), 1.0)
    assert answer_of(lpsmap("solve", model))["x1"] != answer["x1"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("e.evid", "1 7 0", "e.evid: line 1, column 3: got 7; expected a variable, from 0 to 2"),
        ("e.json", "[", "e.json: evidence: JSONDecodeError"),
        ("e.json", '{"y": 1}', "'y' in 'y' is no view"),
        ("e.json", '{"x0": "on"}', "could not convert"),
        ("e.json", '{"x0": 2}', "holds 2; expected 0, 1, or NaN"),
        ("e.json", '{"x0[0]": 1, "x0": 0}', "given as 0 and as 1"),
        ("e.json", '{"x0": [1, 0, 0]}', "expected one that broadcasts to (2,)"),
    ],
)
def test_wrong_evidence_is_told_in_a_line(model: Path, name: str, text: str, words: str) -> None:
    evidence = model.with_name(name)
    evidence.write_text(text)
    result = lpsmap("solve", model, "--evidence", evidence)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("Error: ")
    assert words in result.output


def test_formats_without_evidence_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.wcnf").write_text(FORMULA)
    (tmp_path / "e.evid").write_text("1 0 1")
    result = lpsmap("solve", tmp_path / "a.wcnf", "--evidence", tmp_path / "e.evid")
    assert result.exit_code == 1
    assert "have no evidence of their own; expected a JSON object" in result.output
    (tmp_path / "e.json").write_text('{"x[0]": 0}')
    answer = answer_of(lpsmap("solve", tmp_path / "a.wcnf", "--evidence", tmp_path / "e.json"))
    np.testing.assert_allclose(answer["x"], [0.0, 1.0, 1.0])


@pytest.mark.filterwarnings("default")
def test_evidence_that_cannot_be_is_an_outcome(model: Path) -> None:
    evidence = model.with_name("e.json")
    evidence.write_text('{"x1[0]": 1, "x1[1]": 1}')
    result = lpsmap("solve", model, "--evidence", evidence)
    assert result.exit_code == UNSOLVED
    assert "INFEASIBLE" in json.loads(result.stdout)["status"]


def test_info_says_what_is_there(model: Path) -> None:
    result = lpsmap("info", model)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "blocks: 3, of 2 to 3 binary variables",
        "variables: 7, 0 of them forbidden",
        "components: 1, of 7 variables",
        "FACTOR  NUMBER  ARITY  ADDITIONALS",
        "Dense        2      5           12",
    ]
    empty = model.with_name("empty.wcnf")
    empty.write_text("")
    assert lpsmap("info", empty).output.splitlines()[-1] == "no factors"


def test_convert_and_solve(model: Path) -> None:
    for name in ("model.json", "model.json.gz"):
        target = model.with_name(name)
        result = lpsmap("convert", model, target)
        assert result.exit_code == 0
        assert result.output == ""
        assert answer_of(lpsmap("solve", target)) == answer_of(lpsmap("solve", model))
        assert list(read_graph(target).variables) == ["x0", "x1", "x2"]


def test_what_cannot_be_converted_is_told_in_a_line(model: Path) -> None:
    for target, words in (
        ("model.wcnf", "no graph can be written as WCNF"),
        ("model.xyz", "no installed file format has the suffix '.xyz'"),
        ("nowhere/model.json", "nowhere"),
    ):
        result = lpsmap("convert", model, model.with_name("copy") / ".." / target)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert words in result.output
    assert lpsmap("convert", model.with_name("missing.uai"), "a.json").exit_code == 2


def test_a_pipe_that_closes_early_is_no_traceback(model: Path) -> None:
    big = model.with_name("big.wcnf")
    big.write_text("".join(f"{i + 1} {i + 1} 0\n" for i in range(20_000)))
    command = [*LPSMAP, "solve", str(big)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == b'{"status":'
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_an_answer_goes_through_a_pipe(model: Path) -> None:
    command = [*LPSMAP, "solve", str(model)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert set(json.loads(done.stdout)["variables"]) == {"x0", "x1", "x2"}


FRUSTRATED = "h 1 -2 0\n2 1 2 0\n2 -1 -2 0\n2 1 -2 0\n2 -1 2 0\n"


@pytest.mark.parametrize("task", ["lp-map", "map"])
def test_solve_for_the_best(model: Path, task: str) -> None:
    answer = answer_of(lpsmap("solve", model, "--task", task))
    assert {name: np.argmax(u) for name, u in answer.items()} == {"x0": 1, "x1": 2, "x2": 1}
    for u in answer.values():
        np.testing.assert_allclose(sorted(u), [0.0] * (len(u) - 1) + [1.0], atol=1e-5)


def test_the_best_is_said_with_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.wcnf"
    path.write_text(FRUSTRATED)
    result = lpsmap("solve", path, "--task", "map", "--quiet")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["status"] == ["PROVED"]
    assert answer["bound"] == pytest.approx(answer["score"])
    assert answer["nodes"][0] > 0
    wrong = lpsmap("solve", path, "--task", "best")
    assert wrong.exit_code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_is_told_of_the_search(tmp_path: Path) -> None:
    import pty

    path = tmp_path / "a.wcnf"
    path.write_text(FRUSTRATED)
    ours, theirs = pty.openpty()
    command = [*LPSMAP, "solve", str(path), "--task", "map"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
    told = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "component 0: best" in told
    assert "nodes" in told
    assert json.loads(done.stdout)["status"] == ["PROVED"]
