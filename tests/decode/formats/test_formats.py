"""Factor graphs in files: JSON, and formats of plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpsmap
from lpsmap_core import FactorGraph, hookimpl
from lpsmap_core.plugins.registry import registered
from lpsmap_decode import FileFormat, FileFormatError, NamedGraph
from lpsmap_decode.formats.files import read_graph
from lpsmap_decode.formats.json_format import JsonFormat

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
        ([], r'got \[\], which is not a JSON object; .*keys "variables" and "factors"'),
        ({"variables": {}}, "json: factors is missing; expected a"),
        ({"variables": {"u": "x"}, "factors": []}, r"variables\['u'\]: got 'x'; expected numbers"),
        ({**GOOD, "factors": [{"type": "Xor"}]}, r"factors\[0\]: over is missing"),
        ({**GOOD, "factors": [{"type": "Xnor", "over": ["u"]}]}, r"\[0\]: .*'Xnor'.*Xor"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["w"]}]}, "'w' in 'w' is not a view.*u, v"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[f()]"]}]}, "malformed"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u.graph"]}]}, "u.graph.* is not a view"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u[7]"]}]}, ": index 7 is out of bounds"),
        ({**GOOD, "factors": [{"type": "Xor", "over": ["u["]}]}, ": 'u\\[' is not a Python"),
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
        (over("u[" + "9" * 5_000 + "]"), "is not a Python expression"),
        ('{"variables": {"u": [1, ' + "9" * 4_000 + ']}, "factors": []}', "expected numbers"),
        ('{"variables": {"u": [1, ' + "9" * 5_000 + ']}, "factors": []}', "4300 digits"),
        (over("u\0"), "null bytes"),
        (over("\ud800"), "surrogates"),
        (over(3), "got 3; expected a string"),
        ({**GOOD, "factors": [{"type": "Xor", "over": "u"}]}, "over is 'u'; expected a list"),
        ({**GOOD, "factors": [{"type": ["Xor"], "over": ["u"]}]}, "expected a string"),
        ({**GOOD, "factors": ["Xor"]}, "got 'Xor', which is not a JSON object"),
        ({**GOOD, "factors": "Xor"}, "factors is 'Xor', which is not a list"),
        ({"variables": [["u", [1]]], "factors": []}, "which is not a JSON object"),
        ({"variables": {"u": "12"}, "factors": []}, "got '12'; expected numbers"),
        ({"variables": {"u": ["1", "2"]}, "factors": []}, "expected numbers, or"),
        ('{"variables": {"u": [1], "u": [2]}, "factors": []}', "the key 'u' occurs twice"),
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
        lpsmap_api_version = 3

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


def test_numbers_of_any_size_and_marks_of_editors(tmp_path: Path) -> None:
    budget = {"type": "Budget", "over": ["u"], "budget": 10**4000}
    path = written(tmp_path, "\ufeff" + json.dumps({**GOOD, "factors": [budget]}))
    assert read_graph(path).graph.solve().ok


def test_names_are_those_of_the_file(tmp_path: Path) -> None:
    """Python takes the micro sign in an identifier for the Greek letter."""
    factors = [{"type": "Xor", "over": ["~\u00b5"]}]
    content = {"variables": {"\u00b5": [1.0], "\u03bc": [2.0]}, "factors": factors}
    named = read_graph(written(tmp_path, content))
    assert named.graph.factors[0].variables.index.tolist() == [0]


def test_lists_in_a_file_are_arrays() -> None:
    from lpsmap_decode.formats.json_format import _argument

    assert _argument([[1, 2], [3, 4]]).shape == (2, 2)
    assert _argument(["rows", "none"]) == ["rows", "none"]
