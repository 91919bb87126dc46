"""The file format that core brings: JSON, with views of variables as one writes them in Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.variables import Variables
from lpsmap_core.plugins.formats import FileFormat, FileFormatError, NamedGraph, in_words
from lpsmap_core.plugins.packs import advice
from lpsmap_core.plugins.registry import installed

__all__ = ["JsonFormat"]

LONGEST = 10_000
"""Characters of a view in a file."""


class JsonFormat(FileFormat):
    """Blocks of scores, and the factors over them as calls of installed factor types.

    ::

        {
          "variables": {"u": [[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]},
          "factors": [
            {"type": "Xor", "over": ["u"]},
            {"type": "AtMostOne", "over": ["~u[:, 1:]"], "axis": 0},
            {"type": "Pair", "over": ["u[0, 0]", "u[1, 1]"], "scores": 0.5}
          ]
        }

    ``over`` holds the leading arguments, views of the blocks as one writes them in Python: a name,
    indices of it, ``.T``, and ``~`` for the negation. All other keys are the type's keyword
    arguments, lists of numbers as arrays. The score ``-Infinity`` forbids a variable.
    """

    name = "JSON"
    suffixes = (".json",)

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        scores, declarations = _contents(path)
        graph, types = FactorGraph(), installed().factors
        blocks = {}
        for name, numbers in scores.items():
            with _place(path, f"variables[{name!r}]"):
                blocks[name] = graph.variable_from(numbers)
        for i, declaration in enumerate(declarations):
            with _place(path, f"factors[{i}]"):
                options = _object(declaration)
                factor_type, over = _string(options.pop("type")), options.pop("over")
                if factor_type not in types:
                    raise ValueError(
                        f"type is {factor_type!r}; expected an installed factor type; "
                        f"{advice(factor_type, types)}"
                    )
                if not isinstance(over, list):
                    raise TypeError(f"over is {over!r}; expected a list of views, such as ['u[0]']")
                views = [_view(_string(text), blocks) for text in over]
                arguments = {name: _argument(value) for name, value in options.items()}
                graph.add(types[factor_type].value(*views, **arguments))
        return NamedGraph(graph, blocks)


def _contents(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the scores of the blocks, and the factors over them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = _object(json.loads(text, object_pairs_hook=_distinct))
        scores, declarations = _object(content["variables"]), content["factors"]
        if not isinstance(declarations, list):
            raise TypeError(f"factors is a {type(declarations).__name__}, not a list")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError(
            f"{path}: {in_words(error)}; expected a JSON object with the keys "
            '"variables" and "factors". See lpsmap_core.plugins.json_format.JsonFormat.'
        ) from error
    return scores, declarations


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, of which JSON itself would keep the last of equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"got {value!r:.60}, which is no JSON object")
    return dict(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r:.60}; expected a string")
    return value


def _argument(value: Any) -> Any:
    """Return a list of numbers as an array, as a type would get it in Python; all else as is."""
    if not isinstance(value, list):
        return value
    array = np.array(value)
    return array if array.dtype.kind in "fiub" else value


@contextmanager
def _place(path: Path, where: str) -> Iterator[None]:
    """Say where in a file an error arises; factor types of plugins may raise any."""
    try:
        yield
    except Exception as error:
        raise FileFormatError(f"{path}: {where}: {in_words(error)}") from error


def _view(text: str, blocks: Mapping[str, Variables]) -> Variables:
    """Return the view that an expression names; nothing but names, indices, ``~`` and ``.T``."""

    def view(node: ast.expr) -> Variables:
        match node:
            case ast.Name(id=name) if name in blocks:
                return blocks[name]
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return ~view(operand)
            case ast.Attribute(value=value, attr="T"):
                return view(value).T
            case ast.Subscript(value=value, slice=index):
                return view(value)[position(index)]
        raise ValueError(
            f"{ast.unparse(node)!r:.60} in {shown} is no view; expected one of "
            f"{', '.join(blocks) or '(no blocks)'} with indices, such as '~u[0, 1:]'"
        )

    def position(node: ast.expr) -> Any:
        match node:
            case ast.Tuple(elts=parts):
                return tuple(position(part) for part in parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(part and ast.literal_eval(part) for part in (lower, upper, step)))
        return ast.literal_eval(node)

    shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
    if len(text) > LONGEST:
        raise ValueError(f"{shown} has {len(text)} characters; expected up to {LONGEST}")
    try:
        return view(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"{shown} is no Python expression: {error.msg}") from error
    except (MemoryError, RecursionError) as error:  # what the parser says to too deep a nesting
        raise ValueError(f"{shown} is nested too deeply") from error
