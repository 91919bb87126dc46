"""Factor graphs in files, and the command that solves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap
from lpsmap_core import FactorGraph, cli, hookimpl
from lpsmap_core.formats import FileFormat, FileFormatError, JsonFormat, Problem, read
from lpsmap_core.registry import registered

GOOD = {
    "variables": {"u": [[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]], "v": [0.2, float("-inf")]},
    "factors": [
        {"type": "Xor", "over": ["u"]},
        {"type": "AtMostOne", "over": ["u"], "axis": 0},
        {"type": "Imply", "over": ["~u.T[[0, 1], 0]"]},
        {"type": "Pair", "over": ["u[0, -1]", "~v[0]"], "scores": 0.5},
    ],
}


def written(folder: Path, content: Any, name: str = "problem.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_file_is_the_graph_that_python_would_build(tmp_path: Path) -> None:
    found = read(written(tmp_path, GOOD))
    found.graph.solve()
    graph = FactorGraph()
    u = graph.variable_from(np.array(GOOD["variables"]["u"]))
    v = graph.variable_from(np.array(GOOD["variables"]["v"]))
    graph.add(lpsmap.Xor(u))
    graph.add(lpsmap.AtMostOne(u, axis=0))
    graph.add(lpsmap.Imply(~u.T[[0, 1], 0]))
    graph.add(lpsmap.Pair(u[0, -1], ~v[0], 0.5))
    graph.solve()
    assert list(found.variables) == ["u", "v"]
    np.testing.assert_array_equal(found.variables["u"].value, u.value)
    np.testing.assert_array_equal(found.variables["v"].value, v.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", 'JSONDecodeError: .*keys "variables" and "factors"'),
        ([], 'TypeError: .*keys "variables" and "factors"'),
        ({"variables": {}}, "KeyError: 'factors'"),
        ({"variables": {"u": "x"}, "factors": []}, r"variables\['u'\]: ValueError"),
        ({**GOOD, "factors": [{"type": "Xor"}]}, r"factors\[0\]: KeyError: 'over'"),
        ({**GOOD, "factors": [{"type": "Xnor", "over": ["u"]}]}, r"\[0\]: .*'Xnor'.*Xor"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["w"]}]}, "'w' in 'w' is no view.*u, v"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[f()]"]}]}, "malformed"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u.graph"]}]}, "u.graph.* is no view"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[7]"]}]}, "IndexError"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u["]}]}, "ValueError: 'u\\[' is no Python"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u"], "axs": 0}]}, "TypeError: .*axs"),
        ({**GOOD, "factors": [{"type": "Budget", "over": ["u"], "budget": -1}]}, "budget of row 0"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(FileFormatError, match=words) as caught:
        read(written(tmp_path, content))
    assert str(caught.value).startswith(str(tmp_path))


def test_suffixes_choose_the_format(tmp_path: Path) -> None:
    class Counted(FileFormat):
        name, suffixes = "a number of free variables", (".count",)

        def read(self, path: Path) -> Problem:
            graph = FactorGraph()
            return Problem(graph, {"u": graph.variable(int(path.read_text()))})

    class Reader:
        @hookimpl
        def lpsmap_formats(self) -> list[type[FileFormat]]:
            return [Counted]

    path = written(tmp_path, "3", "three.COUNT")
    with registered(Reader()):
        assert read(path).variables["u"].shape == (3,)
    with pytest.raises(FileFormatError, match=r"suffix '.count'; expected one of .json"):
        read(path)
    assert JsonFormat.suffixes == (".json",)


def test_lpsmap_solve_prints_json(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    result = CliRunner().invoke(cli.main, ["solve", str(path), "--tol", "1e-9"])
    assert result.exit_code == 0
    answer = json.loads(result.output)
    assert set(answer["status"]) == {"SOLVED"}
    assert len(answer["objective"]) == len(answer["status"])
    np.testing.assert_allclose(np.sum(answer["variables"]["u"], axis=1), 1.0, atol=1e-6)
    assert answer["variables"]["v"][1] == 0.0


def test_lpsmap_solve_refuses_in_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, {"variables": {"u": [float("nan")]}, "factors": []})
    bad = written(tmp_path, "{", "bad.json")
    for file, words in (
        (path, "holds nan at [0]"),
        (bad, "expected a JSON object"),
        (tmp_path, "directory"),
    ):
        result = CliRunner().invoke(cli.main, ["solve", str(file)])
        assert result.exit_code != 0
        assert "Error: " in result.output
        assert words in result.output
