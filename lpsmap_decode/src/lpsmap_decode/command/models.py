"""The commands on model files: ``lpsmap info`` and ``lpsmap convert``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import DuplicateNameError, build_layout, text_table
from lpsmap_decode.command.shared_options import memory_option
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.formats.files import read_graph, write_graph

MODEL = click.Path(exists=True, dir_okay=False, path_type=Path)
"""The type of an argument that names a model file."""


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Print errors as messages without a traceback, and exit with code 1."""
    try:
        yield
    except (OSError, ValueError, DuplicateNameError, ModuleNotFoundError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("model", type=MODEL)
@memory_option
def info(model: Path, max_memory: float) -> None:
    """Describe the model in a file.

    Prints the variables, components and factors of the graph in MODEL. The exit code is 1 if the
    file cannot be read.
    """
    with errors_as_messages():
        named = read_graph(model, max_memory)
    for line in description(named):
        click.echo(line)


@click.command()
@click.argument("source", type=MODEL)
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@memory_option
def convert(source: Path, target: Path, max_memory: float) -> None:
    """Convert a model to another format.

    The graph in SOURCE is written to TARGET in the format of its suffix; an existing file is
    replaced. The exit code is 1 if SOURCE cannot be read or TARGET cannot be written.
    """
    with errors_as_messages():
        write_graph(read_graph(source, max_memory), target)


def description(named: NamedGraph) -> Iterator[str]:
    """Yield lines that describe a graph."""
    graph = named.graph
    sizes = [block.size for block in named.variables.values()]
    between = f", of {_range(sizes)} binary variables" if sizes else ""
    yield f"blocks: {len(sizes)}{between}"
    forbidden = int(np.isneginf(graph.flat_scores()).sum())
    yield f"variables: {graph.n_variables}, {forbidden} of them forbidden"
    layout = build_layout(graph.n_variables, graph.factors)
    within = np.bincount(layout.component[layout.component >= 0], minlength=layout.n_components)
    largest = f", of {_range(within)} variables" if within.size else ""
    yield f"components: {layout.n_components}{largest}"
    by_type: dict[str, list[Factor]] = {}
    for factor in graph.factors:
        by_type.setdefault(type(factor).__name__, []).append(factor)
    rows = []
    for name, declarations in by_type.items():
        arity = np.concatenate([np.diff(d.offsets) for d in declarations])
        rows.append(
            {
                "FACTOR": name,
                "NUMBER": str(arity.size),
                "ARITY": _range(arity) if arity.size else "",
                "ADDITIONALS": str(sum(d.n_factors * d.n_additionals for d in declarations)),
            }
        )
    yield text_table(rows, ["NUMBER", "ARITY", "ADDITIONALS"]) if rows else "no factors"


def _range(numbers: list[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    low, high = int(np.min(numbers)), int(np.max(numbers))
    return str(low) if low == high else f"{low} to {high}"
