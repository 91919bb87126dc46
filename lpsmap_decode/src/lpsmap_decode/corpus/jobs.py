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
from lpsmap_core.api import kind_of
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


def solve_as(task: str, graph: FactorGraph, options: Mapping[str, Any]) -> Solution | Assignment:
    """Solve a graph for a task."""
    verb, fixed = TASKS[task]
    wrong = set(options) - set(inspect.signature(verb).parameters) | set(options) & set(fixed)
    if wrong:
        raise TypeError(f"the task {task!r} does not accept the option {min(wrong)!r}.")
    return verb(graph, **fixed, **options)


def solve_batch(job: Job, problems: Sequence[Problem]) -> list[Outcome]:
    """Solve problems independently: an error affects only its own outcome."""
    if os.getpid() == job.process:
        return [_outcome(job, problem) for problem in problems]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [_outcome(job, problem) for problem in problems]


def _outcome(job: Job, problem: Problem) -> Outcome:
    begin = time.monotonic()
    try:
        content = pickle.loads(problem.content) if problem.pickled else problem.content
        if isinstance(content, Exception):  # pickling it failed
            raise content
        if job.build:
            content = job.build(content)
        elif isinstance(content, (str, Path)):
            content = read_graph(content)
        named = _named(content)
        found = solve_as(job.task, named.graph, job.options)
        if isinstance(found, Assignment) and found.interrupted:  # stop all problems
            raise KeyboardInterrupt
        parts, blocks = parts_of(found), named.variables.items()
        return Outcome(
            index=problem.number,
            status=parts.status,
            score=parts.score,
            bound=parts.bound,
            ok=parts.ok,
            extracted=job.extract(named.graph, found) if job.extract else None,
            # NumPy arrays, for any array library
            solved_values={k: FactorGraph.value_of(named.graph, u) for k, u in blocks},
            seconds=time.monotonic() - begin,
        )
    except Exception as error:
        text = traceback.format_exc()
        seconds = time.monotonic() - begin
        return Outcome(
            problem.number, error=picklable_error(error), traceback=text, seconds=seconds
        )


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
