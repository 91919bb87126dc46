"""Factor graphs in files: what a file format is, and the one that core brings."""

from __future__ import annotations

import abc
import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lpsmap_core.graph import FactorGraph
from lpsmap_core.variables import Variables

__all__ = ["FileFormat", "FileFormatError", "JsonFormat", "Problem", "read"]


class FileFormatError(ValueError):
    """A file is not what its format asks for; the message says where and what to mend."""


class Problem(NamedTuple):
    """A factor graph as a file describes it.

    Attributes
    ----------
    graph
        The graph, not solved yet.
    variables
        Its blocks of variables by their names in the file.
    """

    graph: FactorGraph
    variables: dict[str, Variables]


class FileFormat(abc.ABC):
    """A way to write a factor graph in a file; plugins offer theirs by ``lpsmap_formats``."""

    name: ClassVar[str]
    """What people call it."""

    suffixes: ClassVar[tuple[str, ...]]
    """Ends of the names of its files, such as ``(".uai",)``, in small letters."""

    @abc.abstractmethod
    def read(self, path: Path) -> Problem:
        """Return the problem in the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If it does not hold what the format asks for.
        """


def read(path: str | Path) -> Problem:
    """Return the problem in the file at `path`, by the installed format of its suffix.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If no installed format has the file's suffix, or the file does not follow its format.
    """
    from lpsmap_core.registry import installed

    path, formats = Path(path), installed().formats
    suffix = path.suffix.lower()
    if suffix not in formats:
        raise FileFormatError(
            f"{path}: no installed file format has the suffix {suffix!r}; expected one of "
            f"{', '.join(sorted(formats))}. Rename the file, or install a plugin that reads it."
        )
    problem: Problem = formats[suffix].value().read(path)
    return problem


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
    arguments. The score ``-Infinity`` forbids a variable.
    """

    name = "JSON"
    suffixes = (".json",)

    def read(self, path: Path) -> Problem:
        """Return the problem in a file; see `FileFormat.read`."""
        from lpsmap_core.registry import installed

        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            scores, declarations = dict(content["variables"]), list(content["factors"])
        except (ValueError, TypeError, KeyError) as error:
            raise FileFormatError(
                f"{path}: {type(error).__name__}: {error}; expected a JSON object with the keys "
                '"variables" and "factors". See lpsmap_core.formats.JsonFormat.'
            ) from error
        graph, types = FactorGraph(), installed().factors
        blocks = {}
        for name, numbers in scores.items():
            with _place(path, f"variables[{name!r}]"):
                blocks[name] = graph.variable_from(np.array(numbers, dtype=np.float64))
        for i, declaration in enumerate(declarations):
            with _place(path, f"factors[{i}]"):
                options = dict(declaration)
                factor_type, over = options.pop("type"), options.pop("over")
                if factor_type not in types:
                    raise ValueError(
                        f"type is {factor_type!r}; expected an installed factor type, one of "
                        f"{', '.join(sorted(types)) or '(none)'}. Install the pack that has it"
                    )
                views = [_view(text, blocks) for text in over]
                graph.add(types[factor_type].value(*views, **options))
        return Problem(graph, blocks)


@contextmanager
def _place(path: Path, where: str) -> Iterator[None]:
    """Say where in a file an error arises."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FileFormatError(f"{path}: {where}: {type(error).__name__}: {error}") from error


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
            f"{ast.unparse(node)!r} in {text!r} is no view; expected one of "
            f"{', '.join(blocks) or '(no blocks)'} with indices, such as '~u[0, 1:]'"
        )

    def position(node: ast.expr) -> Any:
        match node:
            case ast.Tuple(elts=parts):
                return tuple(position(part) for part in parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(part and ast.literal_eval(part) for part in (lower, upper, step)))
        return ast.literal_eval(node)

    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no Python expression: {error.msg}") from error
    return view(expression)
