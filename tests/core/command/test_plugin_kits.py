"""The kits of file formats, solvers and engines: what is sound passes, planted faults do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpsmap_core import (
    Answer,
    CompiledEngine,
    FactorGraph,
    FileFormat,
    FileFormatError,
    MapSolver,
    NamedGraph,
    Program,
    SolverLimits,
)
from lpsmap_core.testing import ConformanceError, check_engine, check_format, check_map_solver
from sound_types import OneOf

# -------------------------------------------------------------------- formats


class Lines(FileFormat):
    """A score in each line."""

    name = "lines"
    suffixes: tuple[str, ...] = (".lines",)

    def read(self, path: Path) -> NamedGraph:
        try:
            scores = np.array([float(line) for line in path.read_text().splitlines()])
        except ValueError as error:
            raise FileFormatError(f"{path}: {error}; expected a number.") from error
        graph = FactorGraph()
        return NamedGraph(graph, {"u": graph.variable_from(scores)})

    def write(self, named: NamedGraph, path: Path) -> None:
        path.write_text("".join(f"{x!r}\n" for x in named.graph.flat_scores().tolist()))


class Rounds(Lines):
    def write(self, named: NamedGraph, path: Path) -> None:
        path.write_text("".join(f"{x:.1f}\n" for x in named.graph.flat_scores().tolist()))


class RaisesWhatItMeets(Lines):
    def read(self, path: Path) -> NamedGraph:
        try:
            return super().read(path)
        except FileFormatError as error:
            raise KeyError("line") from error


class Shouts(Lines):
    suffixes = (".LINES",)


def graph_of_three() -> NamedGraph:
    graph = FactorGraph()
    return NamedGraph(graph, {"u": graph.variable_from(np.array([0.25, -1.0, 3.0]))})


def test_a_sound_format_passes(tmp_path: Path) -> None:
    check_format(Lines, graph_of_three(), tmp_path)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Rounds, "a format reads the graph that it wrote"),
        (RaisesWhatItMeets, "raises a FileFormatError, because"),
        (Shouts, "suffixes start with a dot and are in lower case"),
    ],
)
def test_faulty_formats_are_caught(tmp_path: Path, cls: type[FileFormat], words: str) -> None:
    with pytest.raises(ConformanceError, match=f"(?s){words}.*Where: {cls.__name__}"):
        check_format(cls, graph_of_three(), tmp_path)


# -------------------------------------------------------------------- solvers


class TriesAll(MapSolver):
    """Tries all assignments."""

    name = "tries-all"

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        n = len(program.scores)
        x = np.arange(2**n)[:, None] >> np.arange(n) & 1
        matrix = np.zeros((len(program.low), n))
        matrix[program.row, program.column] = program.coefficient
        sums = x @ matrix.T
        allowed = ((sums >= program.low) & (sums <= program.high)).all(axis=1)
        allowed &= (x <= program.upper).all(axis=1)
        if not allowed.any():
            return Answer(None, -np.inf)
        score = np.where(allowed, x @ program.scores, -np.inf)
        return Answer(x[score.argmax()].astype(float), float(score.max()))


class NoBound(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        return super().solve(*arguments)._replace(bound=np.nan)


class BoundTooLow(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        answer = super().solve(*arguments)
        return answer._replace(bound=answer.bound - 0.1)


class AllOff(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        answer = super().solve(*arguments)
        return answer if answer.values is None else answer._replace(values=0.0 * answer.values)


class NothingFound(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        return super().solve(*arguments)._replace(values=None)


class RefusesAll(TriesAll):
    def refuses(self, program: Program) -> str | None:
        return "not today"


def test_a_sound_solver_passes() -> None:
    check_map_solver(TriesAll)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (NoBound, "Got: the bound nan"),
        (BoundTooLow, "Got: the bound .*at least .*, the score of the best assignment"),
        (AllOff, "Got: (an assignment that scores|values .* which violate)"),
        (NothingFound, "Got: no assignment"),
        (RefusesAll, "a solver accepts some programs"),
    ],
)
def test_faulty_solvers_are_caught(cls: type[MapSolver], words: str) -> None:
    with pytest.raises(ConformanceError, match=f"(?s){words}"):
        check_map_solver(cls)


# -------------------------------------------------------------------- engines


class OfHalves(CompiledEngine):
    name = "of-halves"

    def solve(self, part: Any, eta: Any, *others: Any) -> Any:  # type: ignore[override]
        return super().solve(part, 0.5 * eta, *others)


class GivesUp(CompiledEngine):
    name = "gives-up"

    def solve(self, part: Any, eta: Any, eta_v: Any, skip: Any, options: Any, warm: Any) -> Any:
        return super().solve(part, eta, eta_v, skip, options._replace(max_iter=1), warm)


class Refuses(CompiledEngine):
    name = "refuses"

    def refuses(self, part: Any, options: Any) -> str | None:
        return "refuses takes no OneOf."


def small_graph() -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.6, 0.4, -3.0], [0.0, 0.2, 0.1]]))
    graph.add(OneOf(u, np.array([[0.3], [0.1]])))
    graph.add(OneOf(u[:, 0]))
    return graph


def test_cores_engine_passes() -> None:
    check_engine(CompiledEngine, small_graph())


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (OfHalves, "marginals agree with core's engine, because the solution is unique"),
        (GivesUp, "Got: components whose status is .*ITERATION_LIMIT"),
        (Refuses, "Got: refuses takes no OneOf"),
    ],
)
def test_faulty_engines_are_caught(cls: type[CompiledEngine], words: str) -> None:
    with pytest.raises(ConformanceError, match=words):
        check_engine(cls, small_graph())
