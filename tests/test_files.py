"""A module has a name of its own, and a function fits a screen, whatever its docstring adds."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(ROOT.glob("*/src/**/*.py"))
LONGEST_FUNCTION = 60


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring."""
    first, last = function.body[0], function.end_lineno or 0
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return last - function.lineno + 1 - docstring


def too_long(path: Path) -> Iterator[str]:
    """Yield the functions of a module that are too long."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and lines_of(node) > LONGEST_FUNCTION:
            yield f"{path.relative_to(ROOT)}: {node.name}"


def test_functions_fit_a_screen() -> None:
    assert len(SOURCES) > 100
    assert not [name for path in SOURCES for name in too_long(path)]


def test_lines_are_counted() -> None:
    source = 'def f(\n    x,\n):\n    """Say.\n\n    More.\n    """\n    return x\n'
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_of(function) == 4


def test_no_two_files_of_a_package_have_one_name() -> None:
    packages = {path.relative_to(ROOT).parts[0] for path in SOURCES}
    assert len(packages) >= 10
    for package in packages:
        names = (path.stem for path in (ROOT / package).glob("src/**/*.py"))
        repeated = {name for name, n in Counter(names).items() if n > 1} - {"__init__"}
        assert not repeated, package
