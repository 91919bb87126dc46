"""What a worker does with a batch of problems."""

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

from lpsmap_core import Assignment, ConvergenceWarning, FactorGraph, NamedGraph, Solution
from lpsmap_core.api import FloatArray, kind_of, read_graph
from lpsmap_decode.corpus.outcome import Outcome, status_names

__all__ = [
    "LP_MAP",
    "MAP",
    "SPARSEMAP",
    "TASKS",
    "Done",
    "Job",
    "Problem",
    "solve_as",
    "solve_batch",
]
__all__ += ["travelling"]

SPARSEMAP, LP_MAP, MAP = "sparsemap", "lp-map", "map"

TASKS: dict[str, tuple[Callable[..., Solution | Assignment], dict[str, Any]]] = {
    SPARSEMAP: (FactorGraph.solve, {}),
    LP_MAP: (FactorGraph.solve_map, {}),
    MAP: (FactorGraph.solve_map, {"exact": True}),
}
"""What can be asked of a graph: the verb, and what it is told. Values come as NumPy arrays, also
from the graphs of adapters."""


class Problem(NamedTuple):
    """A problem on its way to a worker."""

    number: int
    content: Any
    pickled: bool


class Job(NamedTuple):
    """What is done with every problem; see `solve_many`."""

    task: str
    options: Mapping[str, Any]
    build: Callable[[Any], FactorGraph | NamedGraph] | None
    extract: Callable[[FactorGraph, Solution | Assignment], Any] | None
    process: int
    """Who asks: elsewhere nobody would read warnings."""


class Done(NamedTuple):
    """A batch that was worked on."""

    outcomes: list[Outcome]
    seconds: float


def solve_as(task: str, graph: FactorGraph, options: Mapping[str, Any]) -> Solution | Assignment:
    """Solve a graph for a task.

    Raises
    ------
    TypeError
        If the task takes no option of a name.
    """
    verb, fixed = TASKS[task]
    wrong = set(options) - set(inspect.signature(verb).parameters) | set(options) & set(fixed)
    if wrong:
        raise TypeError(f"the task {task!r} takes no option {min(wrong)!r}.")
    return verb(graph, **fixed, **options)


def solve_batch(job: Job, problems: Sequence[Problem]) -> Done:
    """Solve some problems, each by itself: the error of one is its own."""
    begin = time.monotonic()
    if os.getpid() == job.process:
        outcomes = [_outcome(job, problem) for problem in problems]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            outcomes = [_outcome(job, problem) for problem in problems]
    return Done(outcomes, time.monotonic() - begin)


def _outcome(job: Job, problem: Problem) -> Outcome:
    begin = time.monotonic()
    try:
        content = pickle.loads(problem.content) if problem.pickled else problem.content
        if isinstance(content, Exception):  # what came of sending it
            raise content
        named = _named(job.build(content) if job.build else _read(content))
        found = solve_as(job.task, named.graph, job.options)
        if isinstance(found, Assignment) and found.interrupted:  # who wants to end all of them
            raise KeyboardInterrupt
        return Outcome(
            index=problem.number,
            status=status_names(found),
            score=found.score if isinstance(found, Assignment) else found.objective,
            bound=found.bound if isinstance(found, Assignment) else None,
            ok=found.ok,
            extracted=job.extract(named.graph, found) if job.extract else None,
            solved_values=_values(named),
            seconds=time.monotonic() - begin,
        )
    except Exception as error:
        text = traceback.format_exc()
        seconds = time.monotonic() - begin
        return Outcome(problem.number, error=travelling(error), traceback=text, seconds=seconds)


def _values(named: NamedGraph) -> dict[int | str, FloatArray]:
    """Return the values of a solved graph as NumPy arrays, whatever the graph's own are."""
    return {name: FactorGraph.value_of(named.graph, u) for name, u in named.variables.items()}


def _read(problem: Any) -> Any:
    """Return the graph in a file, and anything else as it is."""
    return read_graph(problem) if isinstance(problem, (str, Path)) else problem


def _named(graph: Any) -> NamedGraph:
    """Return a graph with names of its variables: the blocks' numbers if it has no others."""
    if isinstance(graph, NamedGraph):
        return graph
    if not isinstance(graph, FactorGraph):
        raise TypeError(
            f"solve_many: got {kind_of(graph)} for a problem; expected a FactorGraph, a "
            "NamedGraph, or the path of a file. Give build what makes a graph of it."
        )
    return NamedGraph(graph, dict(enumerate(graph.blocks)))  # type: ignore[arg-type]


def travelling(error: Exception) -> Exception:
    """Return an error, or one that says the same if it does not survive a pickle."""
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")
