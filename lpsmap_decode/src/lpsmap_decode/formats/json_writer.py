"""Write factor graphs as JSON, with large arrays in a separate file."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_core.api import declared_variables, parameters_of, slot_values
from lpsmap_decode.formats.array_files import Arrays
from lpsmap_decode.formats.compressed_text import write_text
from lpsmap_decode.formats.file_format import FileFormatError, NamedGraph

LARGE = 1000
"""Size above which an array is written to the separate file."""

Reader = Callable[[Path, Mapping[str, Any], Arrays], NamedGraph]


def write_json(named: NamedGraph, path: Path, read: Reader) -> None:
    """Write a graph, after checking that reading it returns the same graph.

    A factor is written as a call of its type. The arguments are the attributes with the names of
    the constructor's parameters, or the result of the factor's method `arguments` if it has one. A
    required parameter without a value is null. Unnamed variables get a name.

    Parameters
    ----------
    named
        The graph.
    path
        The file. Large arrays are written to the file of the same name with the suffix ``.npz``.
    read
        Function that reads the graph from the content.
    """
    graph = named.graph
    large_arrays: dict[str, npt.NDArray[Any]] = {}
    scores = graph.flat_scores()
    content: dict[str, Any] = {
        "variables": {
            name: _numbers(scores[block.index], large_arrays)
            for name, block in _blocks(path, named).items()
        },
        "factors": [_call(graph, factor, large_arrays) for factor in graph.factors],
    }
    try:
        again = read(path, content, large_arrays).graph
    except FileFormatError as error:
        raise FileFormatError(f"{path}: the graph cannot be written: {error}") from error
    for factor, other in zip(graph.factors, again.factors, strict=True):
        if not _same(graph, factor, again, other):
            missing = ", ".join(_without_attribute(factor))
            such = f", such as {missing}" if missing else ""
            raise FileFormatError(
                f"{path}: {factor!r} cannot be written: its attributes do not hold all arguments "
                f"of its constructor{such}. Add an attribute for each argument to the type, or a "
                "method `arguments` that returns them by name."
            )
    if large_arrays:
        beside = path.with_name(path.name.removesuffix(".gz")).with_suffix(".npz")
        content["arrays"] = beside.name
        arrays: dict[str, Any] = dict(large_arrays)
        np.savez(beside, **arrays)
    write_text(path, json.dumps(content))


def _blocks(path: Path, named: NamedGraph) -> dict[str, Variables]:
    """Return blocks that together are the graph's list of variables, in order."""
    found, at = {}, 0
    ordered = sorted(named.variables.items(), key=lambda item: item[1].index.reshape(-1)[:1].sum())
    names = (f"unnamed{i}" for i in count() if f"unnamed{i}" not in named.variables)
    whole = np.arange(named.graph.n_variables)
    for name, block in ordered:
        flat = block.index.reshape(-1)
        begin = int(flat[0]) if flat.size else at
        if (
            block.negated.any()
            or not np.array_equal(flat, np.arange(begin, begin + flat.size))
            or begin < at
        ):
            raise FileFormatError(
                f"{path}: the variables {name!r} are not a contiguous block, which JSON requires. "
                "Name the block that contains them."
            )
        if begin > at:
            found[next(names)] = _plain(named.graph, whole[at:begin])
        found[name] = block
        at = begin + flat.size
    if at < named.graph.n_variables:
        found[next(names)] = _plain(named.graph, whole[at:])
    return found


def _plain(graph: FactorGraph, index: Any) -> Variables:
    return Variables(graph, index, np.zeros(index.shape, dtype=bool))


def _call(
    graph: FactorGraph, factor: Factor, large_arrays: dict[str, npt.NDArray[Any]]
) -> dict[str, Any]:
    """Return the call that declares a factor."""
    scored = copy.copy(factor)
    if factor.n_additionals:
        shape = np.shape(factor.additionals)
        scored.additionals = graph.additional_scores(factor).reshape(shape)
    given: Mapping[str, Any] = getattr(factor, "arguments", dict)()
    over, options = [], {}
    for key, parameter in inspect.signature(type(factor)).parameters.items():
        value = given[key] if key in given else _attribute(scored, parameter)
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, Variables):
            over.append(_view(value, large_arrays))
        elif value is not None or parameter.default is parameter.empty:
            options[key] = _numbers(value, large_arrays)
    return {"type": type(factor).__name__, "over": over, **options}


def _without_attribute(factor: Factor) -> list[str]:
    """Return the arguments of a factor's constructor that are neither attributes nor given."""
    known = {"variables", "mask", *getattr(factor, "arguments", dict)()}
    names = inspect.signature(type(factor)).parameters
    return [name for name in names if name not in known and not hasattr(factor, name)]


def _attribute(factor: Factor, parameter: inspect.Parameter) -> Any:
    """Return the argument of a factor's constructor, as stored in its attributes, or None."""
    name = parameter.name
    if name == "variables":
        return declared_variables(factor)
    if name == "mask":
        return factor.keep if factor.lengths is None else None
    value = getattr(factor, name, None)
    if name == "lengths" and value is not None:
        return value.reshape(*factor.batch_shape, -1)
    rows = parameters_of(factor).rows
    if value is None or name not in rows:
        return value
    value = value.reshape(factor.batch_shape + rows[name])
    if isinstance(parameter.default, bool):
        value = value != 0
        return bool(value.flat[0]) if value.size and (value == value.flat[0]).all() else value
    return value


def _view(value: Any, large_arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_view(part, large_arrays) for part in value]
    view = {"index": _numbers(value.index, large_arrays)}
    if value.negated.any():
        view["negated"] = _numbers(value.negated, large_arrays)
    return view


def _numbers(value: Any, large_arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return numbers as lists, or the name of a large array that is added to `large_arrays`."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return value
    if array.size <= LARGE:
        return array.tolist()
    name = f"a{len(large_arrays)}"
    large_arrays[name] = array
    return {"array": name}


def _same(graph: FactorGraph, factor: Factor, other_graph: FactorGraph, other: Factor) -> bool:
    """Whether two declarations of two graphs are equal for an engine."""
    if type(factor) is not type(other) or not parameters_of(factor).same_as(parameters_of(other)):
        return False
    mine, theirs = factor.variables, other.variables
    arrays: list[tuple[Any, Any]] = [
        (slot_values(factor, mine.index), slot_values(other, theirs.index)),
        (slot_values(factor, mine.negated), slot_values(other, theirs.negated)),
        (factor.offsets, other.offsets),
        (graph.additional_scores(factor), other_graph.additional_scores(other)),
    ]
    for name in parameters_of(factor).names:
        kept, again = getattr(factor, name), getattr(other, name)
        if not isinstance(kept, tuple):
            kept, again = (kept,), (again,)
        if len(kept) != len(again):
            return False
        arrays += zip(kept, again, strict=True)
    return all(np.array_equal(a, b) for a, b in arrays)
