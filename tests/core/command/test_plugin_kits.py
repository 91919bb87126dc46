"""The kits of file formats, solvers and engines: what is sound passes, planted faults do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpsmap_core import CompiledEngine, FactorGraph
from lpsmap_core.testing import ConformanceError, check_engine
from lpsmap_decode import (
    Answer,
    FileFormat,
    FileFormatError,
    MapSolver,
    NamedGraph,
    Program,
    SolverLimits,
)
from lpsmap_decode.testing import check_format, check_map_solver
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


class OneByOne(Lines):
    """Keeps factors, but not how they are grouped in declarations."""

    def read(self, path: Path) -> NamedGraph:
        graph = FactorGraph()
        try:
            first, *others = path.read_text().split("of ")
            u = graph.variable_from(np.array([float(line) for line in first.split()]))
            for scope in others:
                graph.add(OneOf(u[[int(word) for word in scope.split()]]))
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"{path}: {error}") from error
        return NamedGraph(graph, {"u": u})

    def write(self, named: NamedGraph, path: Path) -> None:
        super().write(named, path)
        scopes = [row for f in named.graph.factors for row in f.variables.index.tolist()]
        with path.open("a") as file:
            file.writelines(f"of {' '.join(map(str, scope))}\n" for scope in scopes)


class LosesTheLast(OneByOne):
    def write(self, named: NamedGraph, path: Path) -> None:
        super().write(named, path)
        text = path.read_text()
        path.write_text(text[: text.rindex("of ")])


class Shouts(Lines):
    suffixes = (".LINES",)


def graph_of_three() -> NamedGraph:
    graph = FactorGraph()
    return NamedGraph(graph, {"u": graph.variable_from(np.array([0.25, -1.0, 3.0]))})


def graph_of_pairs() -> NamedGraph:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.25, -1.0, 3.0, 0.0]))
    graph.add(OneOf(u.reshape(2, 2)))
    return NamedGraph(graph, {"u": u})


def test_sound_formats_pass(tmp_path: Path) -> None:
    check_format(Lines, graph_of_three(), tmp_path)
    check_format(OneByOne, graph_of_pairs(), tmp_path)


def test_a_format_that_only_reads_is_checked_on_a_file(tmp_path: Path) -> None:
    class Reads(Lines):
        write = FileFormat.write

    check_format(Reads, b"0.5\n-1.0\n", tmp_path)
    with pytest.raises(ConformanceError, match="raises a FileFormatError, because"):
        check_format(RaisesWhatItMeets, b"0.5\n-1.0\n", tmp_path)


def test_lost_factors_are_counted(tmp_path: Path) -> None:
    words = r"Got: 4 variables .* and 1 factor\nExpected: .* 2 factors, such as .*'OneOf'.*\[2, 3\]"
    with pytest.raises(ConformanceError, match=words):
        check_format(LosesTheLast, graph_of_pairs(), tmp_path)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Rounds, "a format reads the variables, scores and factors that it wrote"),
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

    def refuses(self, program: Program) -> str | None:
        return "tries-all takes no continuous columns" if program.n_auxiliary else None

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


class TakesAuxiliaryColumnsForIntegers(TriesAll):
    def refuses(self, program: Program) -> str | None:
        return None

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        answer, n = super().solve(program, limits), len(program.variables)
        return answer if answer.values is None else answer._replace(values=answer.values[:n])


class Lists(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        answer = super().solve(*arguments)
        return answer if answer.values is None else answer._replace(values=answer.values.tolist())


class Words(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        answer = super().solve(*arguments)
        return answer if answer.values is None else answer._replace(values=["on", "off"])


class NoBound(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        return super().solve(*arguments)._replace(bound=np.nan)


class NoNumber(TriesAll):
    def solve(self, *arguments: Any) -> Answer:
        return super().solve(*arguments)._replace(bound=None)


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


@pytest.mark.parametrize("cls", [TriesAll, Lists])
def test_sound_solvers_pass(cls: type[MapSolver]) -> None:
    check_map_solver(cls)


def test_highs_passes() -> None:
    pytest.importorskip("highspy")
    check_map_solver(pytest.importorskip("lpsmap_decode").HighsSolver)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (NoBound, "Got: the bound nan"),
        (NoNumber, "Got: the bound None"),
        (Words, r"Got: values \['on'.*Expected: an array of"),
        (TakesAuxiliaryColumnsForIntegers, r"Got: .*at least|Got: no assignment"),
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


class Changed(CompiledEngine):
    """Solves, and then changes the result."""

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        raise NotImplementedError

    def solve(self, *arguments: Any) -> Any:
        solved = super().solve(*arguments)
        for name, value in self.changes(solved).items():
            setattr(solved, name, value)
        return solved


class ProductsOfNaN(Changed):
    name = "products-of-nan"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        return {"multiply": lambda d, d_v, *_: (np.nan * d, d_v)}


class OneProduct(Changed):
    name = "one-product"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        return {"multiply": lambda d, d_v, *_: np.append(d, d_v)}


class NoResidual(Changed):
    name = "no-residual"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        return {"primal_residual": np.full(1, np.nan)}


class GapOfNaN(Changed):
    name = "gap-of-nan"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        return {"gap": lambda: np.full(1, np.nan)}


class ErrorOfNaN(Changed):
    name = "error-of-nan"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        return {"error_bound": lambda threads: np.full(1, np.nan)}


class ListsMarginals(Changed):
    name = "lists-marginals"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        found = solved.marginals().tolist()
        return {"marginals": lambda: found}


class ListsStatus(Changed):
    name = "lists-status"

    @classmethod
    def changes(cls, solved: Any) -> dict[str, Any]:
        found = solved.status().tolist()
        return {"status": lambda: found}


class Refuses(CompiledEngine):
    name = "refuses"

    def refuses(self, part: Any, options: Any) -> str | None:
        return "refuses takes no OneOf."


class ChangesScores(CompiledEngine):
    name = "changes-scores"

    def solve(self, part: Any, eta: Any, *others: Any) -> Any:
        solved = super().solve(part, eta, *others)
        eta[:] = 0.0
        return solved


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
        (ProductsOfNaN, r"products with the Jacobian agree with core's engine"),
        (OneProduct, r"multiply returns two arrays.*Got: ndarray: \["),
        (NoResidual, r"Got: primal_residual array\(\[nan\]\)"),
        (GapOfNaN, r"Got: gap array\(\[nan\]\)"),
        (ErrorOfNaN, r"Got: error_bound array\(\[nan\]\)"),
        (ChangesScores, "an engine does not change the scores.*Got: scores array"),
    ],
)
def test_faulty_engines_are_caught(cls: type[CompiledEngine], words: str) -> None:
    with pytest.raises(ConformanceError, match=f"(?s){words}"):
        check_engine(cls, small_graph())


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (ListsMarginals, "'lists-marginals' returned marginals of .* in a list"),
        (ListsStatus, "'lists-status' returned status .* an array of 1 Status"),
    ],
)
def test_lists_of_an_engine_are_named(cls: type[CompiledEngine], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        check_engine(cls, small_graph())


def test_a_graph_at_whose_solution_no_product_differs_is_rejected() -> None:
    graph = FactorGraph()
    graph.add(OneOf(graph.variable_from([5.0, 0.0, -5.0])))
    with pytest.raises(ValueError, match="graph: its products with the Jacobian are all zero"):
        check_engine(CompiledEngine, graph)
