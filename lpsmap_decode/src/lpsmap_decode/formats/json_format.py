"""JSON, with views of variables in Python's notation."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import (
    VIEW_BYTES,
    MemoryLimitError,
    reserve_memory,
    truth_values,
    whole_numbers,
)
from lpsmap_decode.formats.array_files import Arrays, read_arrays, resolved
from lpsmap_decode.formats.compressed_text import file_bytes
from lpsmap_decode.formats.error_text import error_text
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.file_format import Evidence, FileFormat, FileFormatError, NamedGraph
from lpsmap_decode.formats.json_positions import line_and_column, place_in
from lpsmap_decode.formats.json_writer import write_json

KEYS = ("variables", "factors", "arrays")
"""Keys of the object in a file."""

MAX_VIEW_LENGTH = 10_000
"""Maximum number of characters of a view."""


class JsonFormat(FileFormat):
    """Blocks of scores, and factors over them as calls of installed factor types.

    ::

        {
          "variables": {"u": [[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]},
          "factors": [
            {"type": "Xor", "over": ["u"]},
            {"type": "AtMostOne", "over": ["~u[:, 1:]"], "axis": 0},
            {"type": "Pair", "over": ["u[0, 0]", "u[1, 1]"], "scores": 0.5},
            {"type": "Dense", "over": [["u[0]", "u[1]"]], "table": {"array": "t"}}
          ],
          "arrays": "tables.npz"
        }

    ``over`` holds the positional arguments: views of the blocks in Python's notation, or lists of
    views. A view is a name, possibly with indices, ``.T``, or ``~`` for the negation. A view can
    also be ``{"index": [[0, 1]], "negated": [[true, false]]}``: positions in the list of all
    variables, block after block. All other keys are keyword arguments of the type, with lists of
    numbers for arrays. The score ``-Infinity`` forbids a variable.

    Instead of numbers, ``{"array": "t"}`` denotes the array t in the file that ``"arrays"`` names.
    It lies in the same folder, and was written by `numpy.savez`. Large arrays are written there.
    """

    name = "JSON"
    suffixes = (".json",)

    def read(self, path: Path) -> NamedGraph:
        """Read the graph in the file at `path`; see `FileFormat.read`."""
        content, text = _read_contents(path)
        with _place(path, "arrays"):
            beside = content.get("arrays")
            arrays = {} if beside is None else _arrays(path, _string(beside))
        return graph_of(path, content, arrays, text)

    def write(self, named: NamedGraph, path: Path) -> None:
        """Write the graph `named` to the file at `path`; see `FileFormat.write`."""
        write_json(named, path, graph_of)


def graph_of(path: Path, content: Mapping[str, Any], arrays: Arrays, text: str = "") -> NamedGraph:
    """Return the graph that the content of a file describes.

    Parameters
    ----------
    path
        The file, for errors.
    content
        The JSON object in the file, with the keys ``variables`` and ``factors``.
    arrays
        The arrays of the separate file.
    text
        The text of the file, for the positions of errors.
    """
    graph, blocks = FactorGraph(), {}
    for name, numbers in content["variables"].items():
        with _place(path, f"variables[{name!r}]", text, "variables", name):
            blocks[name] = graph.variable_from(_numbers(resolved(numbers, arrays)))
    for i, declaration in enumerate(content["factors"]):
        with _place(path, f"factors[{i}]", text, "factors", i):
            options = _object(declaration)
            name = _string(_pop_required(options, "type"))
            factor_type, over = factor_named(name), _pop_required(options, "over")
            if not isinstance(over, list):
                raise TypeError(f"over is {over!r}; expected a list of views, such as ['u[0]']")
            views = [_argument_view(entry, graph, blocks, arrays) for entry in over]
            arguments = {k: _argument(resolved(value, arrays)) for k, value in options.items()}
            try:
                factor = factor_type(*views, **arguments)
            except TypeError:
                _check_call(name, factor_type, views, arguments)
                raise
            graph.add(factor)
    return NamedGraph(graph, blocks)


def read_views(path: Path, named: NamedGraph) -> Evidence:
    """Read views of a graph's variables, with numbers, from a JSON object.

    Parameters
    ----------
    path
        A file that holds, for example, ``{"u[0]": 1, "v": [0, null]}``.
    named
        The graph with the blocks.
    """
    with _place(path, "evidence"):
        parsed, text = _parse(path)
        content = _object(parsed)
    found: Evidence = []
    for view, numbers in content.items():
        with _place(path, f"[{view[:60]!r}]", text, view):
            values = np.array(numbers, dtype=np.float64)  # null becomes NaN, for unknown
            found.append((_view(view, named.variables), values))
    return found


def _parse(path: Path) -> tuple[Any, str]:
    """Return the parsed JSON of a file, and its text; errors name the line and the column."""
    data = file_bytes(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = line_and_column(data[: error.start].decode(), error.start)
        raise ValueError(f"{place}: is not UTF-8 ({error.reason})") from error
    try:
        return json.loads(text, object_pairs_hook=_unique_keys), text
    except json.JSONDecodeError as error:
        raise ValueError(f"{line_and_column(text, error.pos)}: {error.msg}") from error


def _read_contents(path: Path) -> tuple[dict[str, Any], str]:
    """Return the validated object in a file, and its text."""
    try:
        parsed, text = _parse(path)
        content = _object(parsed)
        for key in content:
            if key not in KEYS:
                raise ValueError(_unknown("the file", "key", key, KEYS))
        if not isinstance(content.get("variables", {}), dict):
            got = content["variables"]
            raise TypeError(f"variables is {got!r:.60}, which is not a JSON object")
        if not isinstance(content.get("factors", []), list):
            raise TypeError(f"factors is {content['factors']!r:.60}, which is not a list")
        for key in KEYS[:2]:
            if key not in content:
                raise ValueError(f"{key} is missing")
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, (FileFormatError, MemoryLimitError)):
            raise
        raise FileFormatError(
            f"{path}: {error_text(error)}; expected a JSON object with the keys "
            '"variables" and "factors". See lpsmap_decode.JsonFormat.'
        ) from error
    return content, text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError for duplicate keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


def _arrays(path: Path, name: str) -> Arrays:
    """Return the arrays in the file `name` in the folder of a graph's file."""
    try:
        return read_arrays(path.parent, name)
    except OSError as error:
        raise type(error)(
            f"{path}: arrays: {name} cannot be read ({error.strerror or error}). Put it into the "
            "folder of the graph's file."
        ) from error


def _pop_required(options: dict[str, Any], key: str) -> Any:
    if key not in options:
        raise ValueError(f'{key} is missing; expected "type", "over", and the type\'s arguments')
    return options.pop(key)


def _check_call(
    name: str, factor_type: Any, views: Sequence[Any], arguments: Mapping[str, Any]
) -> None:
    """Raise TypeError if a factor type does not take the arguments."""
    signature = inspect.signature(factor_type)
    takes = ", ".join(signature.parameters)
    try:
        signature.bind(*views, **arguments)
    except TypeError as error:
        free = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        for key in () if free else arguments:
            if key not in signature.parameters:
                raise TypeError(_unknown(name, "argument", key, signature.parameters)) from error
        raise TypeError(
            f"{name}: {error}; it takes {takes}, the first {len(views)} of them from over"
        ) from error


def _unknown(owner: str, what: str, got: str, known: Iterable[str]) -> str:
    """Return a message about an unknown key or argument, with similar ones."""
    near = difflib.get_close_matches(got, known, 2)
    meant = f"; did you mean {' or '.join(near)}? It takes" if near else "; it takes"
    return f"{owner} has no {what} {got!r:.60}{meant} {', '.join(known)}"


def _numbers(value: Any) -> Any:
    """Return numbers as an array."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError("got lists of different lengths; expected equal lengths") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f'got {value!r:.60}; expected numbers, or {{"array": "name"}}')
    return array


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"got {value!r:.60}, which is not a JSON object")
    return dict(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r:.60}; expected a string")
    return value


def _argument(value: Any) -> Any:
    """Return a list of numbers as an array, and any other value unchanged."""
    if not isinstance(value, list):
        return value
    array = np.array(value)
    return array if array.dtype.kind in "fiub" else value


@contextmanager
def _place(path: Path, where: str, text: str = "", *keys: str | int) -> Iterator[None]:
    """Add the position in the file to errors. Factor types of plugins may raise any error."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        at = f"{place_in(text, keys)}: " if text else ""
        raise FileFormatError(f"{path}: {at}{where}: {error_text(error)}") from error


def _argument_view(
    entry: Any, graph: FactorGraph, blocks: Mapping[str, Variables], arrays: Arrays
) -> Any:
    """Return a positional argument: a view, or a list of views."""
    if isinstance(entry, list):
        return [_argument_view(part, graph, blocks, arrays) for part in entry]
    if not isinstance(entry, dict):
        return _view(_string(entry), blocks)
    unknown = set(entry) - {"index", "negated"}
    if unknown or "index" not in entry:
        raise ValueError(f"got a view with {sorted(entry)}; expected index, optionally negated")
    index = whole_numbers("index", resolved(entry["index"], arrays))
    fractions = index[index % 1 != 0]
    if fractions.size:
        raise ValueError(f"index holds {fractions[0]}; expected whole numbers")
    if not ((index >= 0) & (index < graph.n_variables)).all():
        raise ValueError(
            f"index goes from {index.min()} to {index.max()}; expected positions in the list of "
            f"{graph.n_variables} variables"
        )
    view = Variables(graph, index.astype(np.int64), np.zeros(index.shape, dtype=bool))
    return view ^ truth_values("negated", resolved(entry.get("negated", False), arrays))


def _size_at(shape: tuple[int, ...], index: Any) -> int:
    """Return the number of entries of an index, which lists may repeat."""
    parts = index if isinstance(index, tuple) else (index,)
    lists = [np.asarray(part) for part in parts if isinstance(part, list)]
    if not lists or 0 in shape:
        return 0  # views share memory
    one = [0 if isinstance(part, list) else part for part in parts]
    rest = np.broadcast_to(np.False_, shape)[tuple(one)].size
    chosen = [x.nonzero()[0] if x.dtype == np.bool_ else x for x in lists]
    return int(math.prod(np.broadcast_shapes(*(x.shape for x in chosen))) * rest)


def _view(text: str, blocks: Mapping[str, Variables]) -> Variables:
    """Return the view of an expression, which may have names, indices, ``~`` and ``.T``."""

    def view(node: ast.expr) -> Variables:
        match node:
            case ast.Name() if (name := str(ast.get_source_segment(text.strip(), node))) in blocks:
                return blocks[name]  # an `id` may have other letters: `ast` normalises it
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return ~view(operand)
            case ast.Attribute(value=value, attr="T"):
                return view(value).T
            case ast.Subscript(value=value, slice=index):
                whole, at = view(value), position(index)
                reserve_memory(VIEW_BYTES * _size_at(whole.shape, at), f"entries of {shown}")
                return whole[at]
        raise ValueError(
            f"{ast.unparse(node)!r:.60} in {shown} is not a view; expected one of "
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
    if len(text) > MAX_VIEW_LENGTH:
        raise ValueError(f"{shown} has {len(text)} characters; expected up to {MAX_VIEW_LENGTH}")
    try:
        return view(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"{shown} is not a Python expression: {error.msg}") from error
    except (MemoryError, RecursionError) as error:  # raised by the parser
        raise ValueError(f"{shown} is nested too deeply") from error
