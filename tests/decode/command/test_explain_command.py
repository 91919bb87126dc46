"""The command ``lpsmap explain``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from lpsmap_core.command.cli import main
from lpsmap_decode.command.explain import MODULE_NAME

SCRIPT = """
import numpy as np
from beside import WIDTH
from lpsmap import FactorGraph, Xor

def make(n=4):
    graph = FactorGraph()
    graph.add(Xor(graph.variable((n, WIDTH))))
    return graph

def needs(n):
    return make(n)

number = 7
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that makes graphs, and a module beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside.py").write_text("WIDTH = 5\n")
    path = tmp_path / "some_graphs.py"
    path.write_text(SCRIPT)
    yield path
    for name in ("beside", "some_graphs", MODULE_NAME):
        sys.modules.pop(name, None)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("target", ["some_graphs.py:make", "some_graphs:make"])
def test_explains_what_a_function_returns(script: Path, target: str) -> None:
    code, output = run(target)
    assert code == 0, output
    assert output.startswith("Plan: 20 variables, 20 links, 0 additionals\n")


def test_redundant_factors_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "redundant.py"
    lines = "from lpsmap import *", "graph = FactorGraph()", "u = graph.variable((3, 3))"
    path.write_text("\n".join([*lines, "graph.add(DepTree(u))"]))
    assert "warning" not in run(str(path))[1]
    path.write_text("\n".join([*lines, "graph.add(DepTree(u))", "graph.add(Budget(u, 2))"]))
    assert "warning: 3 Budget factors are redundant: " in run(str(path))[1]
    assert json.loads(run(str(path), "--json")[1])["redundant"] == {"Budget": 3}


def test_explains_a_model_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.uai"
    path.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    code, output = run(str(path))
    assert code == 0, output
    assert output.startswith("Plan: 4 variables")
    path.write_text("MARKOV\n2\n")
    code, output = run(str(path))
    assert code == 1
    assert output.startswith("Error: ")
    assert "Traceback" not in output


def test_help_shows_targets() -> None:
    assert "\n  lpsmap explain parser.py:make_graph\n" in run("--help")[1]


def test_explains_the_only_graph_as_json(script: Path) -> None:
    script.write_text(SCRIPT + "graph = make(3)\nalias = graph\n")
    code, output = run("some_graphs.py", "--json", "--threads", "3", "--limited")
    assert code == 0, output
    found = json.loads(output)
    assert (found["variables"], found["available_threads"]) == (15, 3)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py", "nowhere.py: no such file"),
        ("no_such_module:make", "no_such_module: no such file or module"),
        ("some_graphs.py", "no FactorGraph at its top level. Name a function that returns one"),
        ("some_graphs.py:other", "no 'other' at its top level"),
        ("some_graphs.py:other", "Its functions without arguments: make."),
        ("some_graphs.py", "returns one: some_graphs.py:make. Its functions"),
        ("some_graphs.py:number", "is an int; expected a FactorGraph"),
        ("some_graphs.py:np", "is a module; expected a FactorGraph"),
        ("some_graphs.py:Xor", "missing a required argument: 'variables'. Name a function"),
        ("some_graphs.py:needs", "missing a required argument: 'n'. Name a function"),
        ("some_graphs.py:dict", "no 'dict' at its top level"),
        (":x", "'' is not a module"),
        (":", "'' is not a module"),
        ("", "'' is not a module"),
        (".", "'.' is not a module"),
        (".x", "'.x' is not a module"),
    ],
)
def test_targets_without_a_graph(script: Path, target: str, words: str) -> None:
    code, output = run(target)
    assert code == 1
    assert words in output


def test_several_graphs_are_named(script: Path) -> None:
    script.write_text(SCRIPT + "one = make(3)\ntwo = make(4)\n")
    code, output = run("some_graphs.py")
    assert code == 1
    assert "2 FactorGraph at its top level. Its graphs: one, two." in output
    assert run("some_graphs.py:two")[1].startswith("Plan: 20 variables")


def test_errors_of_the_code_itself_have_their_traceback(script: Path) -> None:
    script.write_text("import not_installed_anywhere\n")
    for target in ("some_graphs.py", "some_graphs"):
        code, output = run(target)
        assert code == 1
        assert 'some_graphs.py", line 1, in <module>' in output
        assert "ModuleNotFoundError: No module named 'not_installed_anywhere'" in output
