"""The command ``lpsmap explain``: the plan of a graph in a file, or that Python code creates."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from lpsmap_core import FactorGraph
from lpsmap_core.api import kind_of
from lpsmap_decode.command.models import errors_as_messages
from lpsmap_decode.command.shared_options import memory_option
from lpsmap_decode.formats.files import read_graph
from lpsmap_decode.redundant_factors import count_redundant

MODULE_NAME = "lpsmap_explained"
"""Module name for a file. The file's own name may be that of an installed module."""

# the first character prevents click from reflowing the lines
EXAMPLES = """\b
lpsmap explain grid.uai
lpsmap explain parser.py
lpsmap explain parser.py:make_graph
lpsmap explain package.parser:make_graph
"""


@click.command(epilog=EXAMPLES)
@click.argument("target")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads to plan for.  [default: LPSMAP_THREADS, or all cores]",
)
@click.option("--limited", is_flag=True, help="Plan for a solve with max_inner_iter.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON rather than tables.")
@memory_option
def explain(
    target: str, threads: int | None, limited: bool, as_json: bool, max_memory: float
) -> None:
    """Print how a factor graph would be solved.

    Shows solvers, threads and memory, component by component, and redundant factors. TARGET is a
    model in a file, such as grid.uai; or Python code that creates the graph, and is run: a file or
    a module, followed by a colon and the name of the graph, or of a function without arguments that
    returns it. The name can be omitted if there is only one graph at the top level.
    """
    try:
        graph = load_graph(target, max_memory)
    except click.ClickException:
        raise
    except Exception as error:  # of the code that is run
        traceback.print_exc()
        raise SystemExit(1) from error
    plan, redundant = graph.plan(threads, limited), count_redundant(graph.factors)
    if as_json:
        click.echo(json.dumps({**plan.to_dict(), "redundant": redundant}, indent=2))
    else:
        click.echo("\n\n".join([repr(plan), *map(_warning, redundant.items())]))


def _warning(item: tuple[str, int]) -> str:
    name, n = item
    return (
        f"warning: {n:,} {name} {'factors are' if n > 1 else 'factor is'} redundant: the number of "
        "variables or another factor implies the constraints; omit redundant factors, or check "
        "that they are over the intended variables"
    )


def load_graph(target: str, max_memory: float) -> FactorGraph:
    """Read a model, or run the code of a target, and return its graph.

    The target is a model's file; or ``file.py``, ``package.module``, or one of them with ``:name``.
    """
    if Path(target).suffix != ".py" and Path(target).is_file():
        with errors_as_messages():
            return read_graph(target, max_memory).graph
    source, colon, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _run_file(Path(source)) if source.endswith(".py") else _import(source)
    if not colon:
        return _only_graph(module, source)
    if not hasattr(module, name):
        raise click.ClickException(f"{source}: no {name!r} at its top level.{_suggestions(module)}")
    return _as_graph(getattr(module, name), target)


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.ClickException(f"{path}: no such file. Check the path.")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # a script can import modules of its folder
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise click.ClickException(
            f"{name!r} is not a module. Expected a model's file, a .py file, or a module that can "
            "be imported from here, followed by a colon and the name of a graph: file.py:graph"
        )
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but imports a missing one
        raise click.ClickException(
            f"{name}: no such file or module. Expected a model's file, a .py file, or a module "
            "that can be imported from here."
        ) from error


def _only_graph(module: ModuleType, source: str) -> FactorGraph:
    graphs = {id(graph): graph for graph in _graphs(module).values()}
    if len(graphs) != 1:
        count = "no" if not graphs else len(graphs)
        example = next(iter(_functions(module)), "make_graph")
        hint = _suggestions(module)
        if not graphs:
            hint = f" Name a function that returns one: {source}:{example}{hint and f'.{hint}'}"
        raise click.ClickException(f"{source}: {count} FactorGraph at its top level.{hint}")
    return graphs.popitem()[1]


def _as_graph(found: Any, target: str) -> FactorGraph:
    graph = found
    if callable(found):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise click.ClickException(
                f"{target}: {error}. Name a function that needs no arguments."
            ) from error
        graph = found()
    if not isinstance(graph, FactorGraph):
        what = "returns" if callable(found) else "is"
        raise click.ClickException(f"{target}: {what} {kind_of(graph)}; expected a FactorGraph.")
    return graph


def _graphs(module: ModuleType) -> dict[str, FactorGraph]:
    return {name: one for name, one in vars(module).items() if isinstance(one, FactorGraph)}


def _functions(module: ModuleType) -> list[str]:
    """Return the names of the module's own functions that need no arguments."""
    return [
        name
        for name, one in vars(module).items()
        if inspect.isfunction(one)
        and one.__module__ == module.__name__
        and not any(map(_is_required, inspect.signature(one).parameters.values()))
    ]


def _is_required(argument: inspect.Parameter) -> bool:
    kinds = argument.VAR_POSITIONAL, argument.VAR_KEYWORD
    return argument.default is argument.empty and argument.kind not in kinds


def _suggestions(module: ModuleType) -> str:
    """Return a list of graphs and functions, for messages."""
    graphs, functions = ", ".join(_graphs(module)), ", ".join(_functions(module)[:10])
    said = f" Its graphs: {graphs}." if graphs else ""
    return said + (f" Its functions without arguments: {functions}." if functions else "")
