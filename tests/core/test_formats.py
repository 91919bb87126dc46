"""Factor graphs in files, and the command that solves them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap
import lpsmap_core
from lpsmap_core import FactorGraph, hookimpl
from lpsmap_core.command import cli
from lpsmap_core.command.solve_file import UNSOLVED
from lpsmap_core.plugins.files import read_graph
from lpsmap_core.plugins.formats import FileFormat, FileFormatError, NamedGraph
from lpsmap_core.plugins.json_format import JsonFormat
from lpsmap_core.plugins.registry import registered

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
    found = read_graph(written(tmp_path, GOOD))
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


PAIR = {"type": "Pair", "over": ["u[0]", "u[1]"], "weights": 0.5}


def over(view: Any) -> dict[str, Any]:
    """Return a file's content with a factor over a view."""
    return {**GOOD, "factors": [{"type": "Xor", "over": [view]}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", 'Expecting property name .*keys "variables" and "factors"'),
        ([], r'got \[\], which is no JSON object; .*keys "variables" and "factors"'),
        ({"variables": {}}, "json: factors is missing; expected a"),
        ({"variables": {"u": "x"}, "factors": []}, r"variables\['u'\]: got 'x'; expected numbers"),
        ({**GOOD, "factors": [{"type": "Xor"}]}, r"factors\[0\]: over is missing"),
        ({**GOOD, "factors": [{"type": "Xnor", "over": ["u"]}]}, r"\[0\]: .*'Xnor'.*Xor"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["w"]}]}, "'w' in 'w' is no view.*u, v"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[f()]"]}]}, "malformed"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u.graph"]}]}, "u.graph.* is no view"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[7]"]}]}, ": index 7 is out of bounds"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u["]}]}, ": 'u\\[' is no Python"),
        (
            {**GOOD, "factors": [{"type": "Xor", "over": ["u"], "axs": 0}]},
            r"'axs'; did you .* axis\?",
        ),
        ({**GOOD, "factors": [{"type": "Xro", "over": ["u"]}]}, r"did you mean .*Xor\?"),
        ({**GOOD, "factors": [{"over": ["u"]}]}, r"factors\[0\]: type is missing"),
        ({**GOOD, "factors": [PAIR]}, r"Pair has no argument 'weights'; it takes first, sec"),
        ({**GOOD, "factors": [{**PAIR, "over": ["u", "u", "u"]}]}, "Pair has no argument"),
        (
            {**GOOD, "factors": [{"type": "Pair", "over": ["u"]}]},
            "Pair: got neither of second and vars_j; expected one of them",
        ),
        ({**GOOD, "factor": []}, "no key 'factor'; did you mean factors?"),
        ({"variables": {"u": [[1], [2, 3]]}, "factors": []}, "got lists of different lengths"),
        ({"variables": {"u": None}, "factors": []}, r"\['u'\]: got None; expected numbers"),
        ({**GOOD, "factors": [{"type": "Budget", "over": ["u"], "budget": -1}]}, "budget of row 0"),
        ("[" * 100_000 + "]" * 100_000, "maximum recursion depth"),
        ('{"variables": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, "maximum recursion depth"),
        (over("~" * 100_000 + "u"), "has 100001 characters; expected up to 10000"),
        (over("~" * 9_000 + "u"), "'~~~.* is nested too deeply"),
        (over("u[" + "-" * 9_000 + "1]"), "is nested too deeply"),
        (over("u" + ".T" * 4_000), "is nested too deeply"),
        (over("u" + "[:]" * 3_000), "is nested too deeply"),
        (over("u[" + "9" * 4_000 + "]"), "only integers, slices"),
        (over("u[" + "9" * 5_000 + "]"), "is no Python expression"),
        ('{"variables": {"u": [1, ' + "9" * 4_000 + ']}, "factors": []}', "expected numbers"),
        ('{"variables": {"u": [1, ' + "9" * 5_000 + ']}, "factors": []}', "4300 digits"),
        (over("u\0"), "null bytes"),
        (over("\ud800"), "surrogates"),
        (over(3), "got 3; expected a string"),
        ({**GOOD, "factors": [{"type": "Xor", "over": "u"}]}, "over is 'u'; expected a list"),
        ({**GOOD, "factors": [{"type": ["Xor"], "over": ["u"]}]}, "expected a string"),
        ({**GOOD, "factors": ["Xor"]}, "got 'Xor', which is no JSON object"),
        ({**GOOD, "factors": "Xor"}, "factors is 'Xor', which is no list"),
        ({"variables": [["u", [1]]], "factors": []}, "which is no JSON object"),
        ({"variables": {"u": "12"}, "factors": []}, "got '12'; expected numbers"),
        ({"variables": {"u": ["1", "2"]}, "factors": []}, "expected numbers, or"),
        ('{"variables": {"u": [1], "u": [2]}, "factors": []}', "the key 'u' is there twice"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(FileFormatError, match=words) as caught:
        read_graph(written(tmp_path, content))
    assert str(caught.value).startswith(str(tmp_path))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{\n "variables": {"u": [1, 2}\n}', r"json: line 2, column 26: Expecting ',' delimiter;"),
        (b'{\n "variables": {"u": "\xe4"},\n "factors": []}', "line 2, column 22: is not UTF-8"),
        (
            b'{"variables": {"v": [1],\n  "u": ["x"]}, "factors": []}',
            r"line 2, column 8: variables\['u",
        ),
        (
            b'{"factors": [{"type": "Xor", "over": ["u"]},\n\n  {"type": "X", "over": ["u"]}],\n'
            b' "variables": {"u": [1, 2]}}',
            r"line 3, column 3: factors\[1\]: ",
        ),
    ],
)
def test_errors_of_json_have_line_and_column(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(text)
    with pytest.raises(FileFormatError, match=words):
        read_graph(path)


def test_suffixes_choose_the_format(tmp_path: Path) -> None:
    class Counted(FileFormat):
        name, suffixes = "a number of free variables", (".count",)

        def read(self, path: Path) -> NamedGraph:
            graph = FactorGraph()
            return NamedGraph(graph, {"u": graph.variable(int(path.read_text()))})

    class Reader:
        lpsmap_api_version = 2

        @hookimpl
        def lpsmap_formats(self) -> list[type[FileFormat]]:
            return [Counted]

    path = written(tmp_path, "3", "three.COUNT")
    with registered(Reader()):
        assert read_graph(path).variables["u"].shape == (3,)
    with pytest.raises(
        FileFormatError, match=r"suffix '.count'; expected one of .fg, .json, .uai, .wcnf"
    ):
        read_graph(path)
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


def test_numbers_of_any_size_and_marks_of_editors(tmp_path: Path) -> None:
    budget = {"type": "Budget", "over": ["u"], "budget": 10**4000}
    path = written(tmp_path, "\ufeff" + json.dumps({**GOOD, "factors": [budget]}))
    assert read_graph(path).graph.solve().ok


def test_lists_in_a_file_are_arrays() -> None:
    from lpsmap_core.plugins.json_format import _argument

    assert _argument([[1, 2], [3, 4]]).shape == (2, 2)
    assert _argument(["rows", "none"]) == ["rows", "none"]


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
    (line,) = result.stderr.splitlines()
    assert line.startswith("Warning: 1 of 2 components were not solved.")
    assert line.endswith("because of Xor 0.")


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

    lpsmap_api_version = 2

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
        place = r"raised by refuse in .*test_formats.py, line \d+"
        result = CliRunner().invoke(cli.main, ["solve", str(written(tmp_path, kernel, "b.json"))])
        assert re.search(f"^Error: .*ValueError: the kernel says no, {place}", result.output)
        for name, words in (
            ("a.json", "ZeroDivisionError: .* raised by solve_map in .*test_formats.py, line"),
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
