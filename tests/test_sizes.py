"""A module is one idea and a function fits a screen, whatever its docstring adds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST_MODULE, LONGEST_FUNCTION = 500, 60

SOURCES = sorted(ROOT.glob("*/src/**/*.py"))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring."""
    first, last = function.body[0], function.end_lineno or 0
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return last - function.lineno + 1 - docstring


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_MODULE
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert not [f.name for f in functions if lines_of(f) > LONGEST_FUNCTION]


def test_lines_are_counted() -> None:
    source = 'def f(\n    x,\n):\n    """Say.\n\n    More.\n    """\n    return x\n'
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_of(function) == 4
