"""The command ``lpsmap solve``: a model in a file, its marginals or its best assignment."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from lpsmap_core.command.models import MODEL, told_in_words
from lpsmap_core.decoding.decode import DEFAULT_GAP
from lpsmap_core.decoding.search import Progress
from lpsmap_core.graph import FactorGraph
from lpsmap_core.plugins.files import read_evidence, read_graph
from lpsmap_core.plugins.formats import NamedGraph
from lpsmap_core.plugins.registry import DuplicateNameError
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.solution import Solution

__all__ = ["solve"]

UNSOLVED = 3
"""Exit code where a component is not solved, or its assignment not proved."""

SPARSEMAP, LP_MAP, MAP = "sparsemap", "lp-map", "map"


@click.command()
@click.argument("file", type=MODEL)
@click.option(
    "--task",
    type=click.Choice([SPARSEMAP, LP_MAP, MAP]),
    default=SPARSEMAP,
    show_default=True,
    help="Marginals of LP-SparseMAP or of the relaxation LP-MAP, or the best assignment.",
)
@click.option(
    "--evidence",
    type=MODEL,
    help="File of what variables are known to be: a JSON object of views and numbers, such as "
    '{"u[0]": 1}, if it ends in .json; else as the format of FILE has it.',
)
@click.option("--max-iter", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--tol", type=click.FloatRange(0.0), default=1e-6, show_default=True)
@click.option(
    "--max-time", type=click.FloatRange(0.0, min_open=True), help="Seconds.  [default: no limit]"
)
@click.option(
    "--gap",
    type=click.FloatRange(0.0),
    default=DEFAULT_GAP,
    show_default=True,
    help="With --task map: how near to the best, relative to its score, is good enough.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of the search on the way.")
def solve(
    file: Path,
    task: str,
    evidence: Path | None,
    max_iter: int,
    tol: float,
    max_time: float | None,
    gap: float,
    quiet: bool,
) -> None:
    """Solve the factor graph in FILE and print what was found as JSON.

    The file's suffix says its format; `lpsmap plugins` lists those installed. Numbers that are
    not finite are printed as null. With evidence, variables that are known have the value 0 or 1,
    and the others are solved for what is left.

    With --task map, score and bound of every component are printed, too: no assignment scores more
    than the bound. On a terminal a line for every better assignment or bound goes to standard
    error. Ctrl-C ends the search, and prints the best so far.

    The exit code is 0 if every component is solved, and 3 if one is not: its status says why. It
    is 1 if the file cannot be read or solved, and 2 if the command is wrong; then nothing is
    printed.
    """
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "max_time": max_time}
    if task == MAP:
        shown = not quiet and sys.stderr.isatty()
        options |= {"exact": True, "gap": gap, "progress": _narrator() if shown else None}
    with told_in_words():
        named = read_graph(file)
        if evidence is not None:
            named = _given(named, evidence, file)
        try:
            verb = FactorGraph.solve if task == SPARSEMAP else FactorGraph.solve_map
            found = verb(named.graph, **options)
        except (OSError, ValueError, DuplicateNameError):
            raise
        except Exception as error:  # an oracle of a plugin can raise anything
            raise click.ClickException(f"{file}: {_blamed(error)}") from error
    answer = _of_assignment(found) if isinstance(found, Assignment) else _of_solution(found)
    answer["variables"] = {name: _numbers(u.value) for name, u in named.variables.items()}
    click.echo(json.dumps(answer, allow_nan=False))
    if not found.ok:
        raise SystemExit(UNSOLVED)


def _of_solution(solution: Solution) -> dict[str, Any]:
    return {
        "status": [status.name for status in solution.status],
        "objective": _numbers(solution.objective),
    }


def _of_assignment(assignment: Assignment) -> dict[str, Any]:
    names = {(True, True): "PROVED", (True, False): "FOUND", (False, True): "INFEASIBLE"}
    pairs = zip(assignment.found.tolist(), assignment.proved.tolist(), strict=True)
    return {
        "status": [names.get(pair, "NOT_FOUND") for pair in pairs],
        "score": _numbers(assignment.score),
        "bound": _numbers(assignment.bound),
        "nodes": assignment.n_nodes.tolist(),
    }


def _narrator() -> Callable[[int, Progress], None]:
    """Return what tells of every better assignment or bound."""
    before: dict[int, tuple[float, float]] = {}

    def narrate(component: int, how_far: Progress) -> None:
        now = how_far.score, how_far.bound
        if before.get(component) != now:
            before[component] = now
            best = "none yet" if how_far.score == -np.inf else f"{how_far.score:.6f}"
            click.echo(
                f"component {component}: best {best}, none above {how_far.bound:.6f}, "
                f"{how_far.n_nodes} nodes, {how_far.seconds:.1f} s",
                err=True,
            )

    return narrate


def _given(named: NamedGraph, evidence: Path, file: Path) -> NamedGraph:
    """Return a graph given the evidence in a file, with the same names."""
    given = named.graph.condition(read_evidence(evidence, named, file))
    return NamedGraph(given.graph, {name: given.of(u) for name, u in named.variables.items()})


def _numbers(array: npt.NDArray[np.float64]) -> Any:
    """Return numbers as JSON has them, which knows neither NaN nor infinity."""
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()


def _blamed(error: Exception) -> str:
    """Return what an error says, and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error}, raised in {last.filename}, line {last.lineno}"
