"""The work on a batch of problems, in a worker."""

from __future__ import annotations

import inspect
import os
import pickle
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lpsmap_core import ConvergenceWarning, FactorGraph, Solution
from lpsmap_core.api import FloatArray, kind_of
from lpsmap_decode.component_results import parts_of
from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.formats.files import read_graph
from lpsmap_decode.results.assignment import Assignment

SPARSEMAP, LP_MAP, MAP = "sparsemap", "lp-map", "map"

TASKS: dict[str, tuple[Callable[..., Solution | Assignment], dict[str, Any]]] = {
    SPARSEMAP: (FactorGraph.solve, {}),
    LP_MAP: (FactorGraph.solve_map, {}),
    MAP: (FactorGraph.solve_map, {"exact": True}),
}
"""Tasks by name: the method and its fixed options. Values are NumPy arrays, also for graphs of
adapters."""


class Problem(NamedTuple):
    """A problem as it is sent to a worker."""

    number: int
    content: Any
    pickled: bool


class Job(NamedTuple):
    """The arguments common to all problems; see `solve_many`."""

    task: str
    options: Mapping[str, Any]
    build: Callable[[Any], FactorGraph | NamedGraph] | None
    extract: Callable[[FactorGraph, Solution | Assignment], Any] | None
    process: int
    """The id of the calling process: warnings are suppressed in others."""


class BatchResult(NamedTuple):
    """The result of a batch."""

    outcomes: list[Outcome]
    seconds: float


def solve_as(task: str, graph: FactorGraph, options: Mapping[str, Any]) -> Solution | Assignment:
    """Solve a graph for a task."""
    verb, fixed = TASKS[task]
    wrong = set(options) - set(inspect.signature(verb).parameters) | set(options) & set(fixed)
    if wrong:
        raise TypeError(f"the task {task!r} does not accept the option {min(wrong)!r}.")
    return verb(graph, **fixed, **options)


def solve_batch(job: Job, problems: Sequence[Problem]) -> BatchResult:
    """Solve problems independently: an error affects only its own outcome."""
    begin = time.monotonic()
    if os.getpid() == job.process:
        outcomes = [_outcome(job, problem) for problem in problems]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            outcomes = [_outcome(job, problem) for problem in problems]
    return BatchResult(outcomes, time.monotonic() - begin)


def _outcome(job: Job, problem: Problem) -> Outcome:
    begin = time.monotonic()
    try:
        content = pickle.loads(problem.content) if problem.pickled else problem.content
        if isinstance(content, Exception):  # pickling it failed
            raise content
        named = _named(job.build(content) if job.build else _read(content))
        found = solve_as(job.task, named.graph, job.options)
        if isinstance(found, Assignment) and found.interrupted:  # stop all problems
            raise KeyboardInterrupt
        parts = parts_of(found)
        return Outcome(
            index=problem.number,
            status=parts.status,
            score=parts.score,
            bound=parts.bound,
            ok=parts.ok,
            extracted=job.extract(named.graph, found) if job.extract else None,
            solved_values=_values(named),
            seconds=time.monotonic() - begin,
        )
    except Exception as error:
        text = traceback.format_exc()
        seconds = time.monotonic() - begin
        return Outcome(
            problem.number, error=picklable_error(error), traceback=text, seconds=seconds
        )


def _values(named: NamedGraph) -> dict[int | str, FloatArray]:
    """Return the values of a solved graph as NumPy arrays, for any array library."""
    return {name: FactorGraph.value_of(named.graph, u) for name, u in named.variables.items()}


def _read(problem: Any) -> Any:
    """Return the graph in a file; return anything else unchanged."""
    return read_graph(problem) if isinstance(problem, (str, Path)) else problem


def _named(graph: Any) -> NamedGraph:
    """Return a graph with names of its blocks, by default their numbers."""
    if isinstance(graph, NamedGraph):
        return graph
    if not isinstance(graph, FactorGraph):
        raise TypeError(
            f"solve_many: got {kind_of(graph)} for a problem; expected a FactorGraph, a "
            "NamedGraph, or the path of a file. Pass as build a function that builds a graph from "
            "it."
        )
    return NamedGraph(graph, dict(enumerate(graph.blocks)))  # type: ignore[arg-type]


def picklable_error(error: Exception) -> Exception:
    """Return an error that can be pickled, with the same message."""
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")
