"""A module is one idea and a function fits a screen, whatever its docstring adds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_MODULE, LONGEST_FUNCTION = 500, 60


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring."""
    first, last = function.body[0], function.end_lineno or 0
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return last - function.lineno + 1 - docstring


def too_long(path: Path) -> Iterator[str]:
    """Yield what is too long in a module, or that it is itself."""
    text = path.read_text(encoding="utf-8")
    if len(text.splitlines()) > LONGEST_MODULE:
        yield str(path.relative_to(ROOT))
    for node in ast.walk(ast.parse(text)):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and lines_of(node) > LONGEST_FUNCTION:
            yield f"{path.relative_to(ROOT)}: {node.name}"


def test_sizes() -> None:
    sources = sorted(ROOT.glob("*/src/**/*.py"))
    assert len(sources) > 100
    assert not [what for path in sources for what in too_long(path)]


def test_lines_are_counted() -> None:
    source = 'def f(\n    x,\n):\n    """Say.\n\n    More.\n    """\n    return x\n'
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_of(function) == 4
