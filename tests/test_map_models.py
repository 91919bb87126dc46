"""Models of inference competitions and of AD3's users, read and held to what is known of them.

Their README's optima are of the local-polytope relaxation, found by HiGHS from a reader of its own;
here HiGHS gets what our declarations hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, sparse

from environments import ROOT
from lpsmap_core import ConvergenceWarning
from lpsmap_decode import FileFormatError, read_network, solve_many
from lpsmap_decode.formats.files import read_evidence, read_graph

DATA = Path(os.environ.get("LPSMAP_DATA", ROOT.parent / "shared" / "data"))
FOLDER = Path(os.environ.get("LPSMAP_MAP_MODELS", DATA / "map-models"))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs the models, in the folder that LPSMAP_MAP_MODELS names"
)

UAI = {
    "10_14_s.binary.uai.gz": (231, 2, 861, 2, -85.762023),
    "GEOM30a_3.uai": (30, 3, 81, 2, 0.0),
    "deer_rescaled_0034.K10.F1.25.model.uai.gz": (60, 11, 195, 2, -182.030920),
    "grid10x10.f2.wrap.uai.gz": (100, 2, 300, 2, 192.359245),
    "grid3x3.uai": (9, 2, 21, 2, 59.510759),
    "grid4x4.uai": (16, 2, 40, 2, 122.680161),
    "smokers_10.uai.gz": (120, 2, 230, 3, 361.999997),
    "Grids_26.uai.gz": (400, 2, 1200, 2, 3830.308406),
    "Promedas_30.uai.gz": (1171, 2, 1171, 3, -24.036835),
    "ProteinFolding_11.uai.gz": (400, 2, 1160, 2, 5605.088347),
    "Segmentation_12.uai.gz": (231, 2, 856, 2, -51.150653),
    "Segmentation_14.uai.gz": (231, 2, 863, 2, -92.333556),
    "wcsp_15.uai.gz": (125, 4, 736, 2, 0.0),
}
"""Variables, states, factors, the largest factor, and the optimum of the linear relaxation."""

FG = {
    "coref.fg.gz": (45, {"Or": 367}, 11.877370),
    "example1.fg": (3, {"Or": 1}, 2.0),
    "example2.fg": (3, {"Or": 1, "Pair": 1}, 1.25),
    "parsing_excerpt.fg.gz": (
        1520,
        {"Xor": 407, "Or": 70, "OrOut": 24, "Pair": 115},
        13705.686058,
    ),
    "srl_fract_001.fg.gz": (321, {"Xor": 12, "AtMostOne": 20}, 25.815017),
    "srl_fract_002.fg.gz": (884, {"Xor": 13, "AtMostOne": 38}, 42.121737),
    "srl_fract_003.fg.gz": (712, {"Xor": 11, "AtMostOne": 48}, 20.107332),
}
"""Variables, factors by type, and the optimum of the linear relaxation."""


class Program:
    """A linear program over the variables of a graph, and more."""

    def __init__(self, graph):
        self.scores = list(graph.flat_scores())
        self.rows = {"=": [], "<": []}

    def new(self, scores):
        """Add variables; return their numbers."""
        first = len(self.scores)
        self.scores += np.ravel(scores).tolist()
        return np.arange(first, len(self.scores))

    def row(self, sense, index, coefficients, negated, bound):
        """Add ``sum c x (=, <=) b``, where negated entries stand for ``1 - x``."""
        c = np.broadcast_to(np.asarray(coefficients, dtype=float), np.shape(index))
        flips = np.broadcast_to(negated, np.shape(index))
        entry = (index, np.where(flips, -c, c), bound - c[flips].sum())
        self.rows[sense].append(entry)

    def maximum(self):
        """Return the optimum; what scores -inf is 0."""
        scores = np.array(self.scores)
        matrices = {}
        for sense, rows in self.rows.items():
            if rows:
                at = np.repeat(np.arange(len(rows)), [len(r[0]) for r in rows])
                values = np.concatenate([r[1] for r in rows])
                columns = np.concatenate([r[0] for r in rows])
                shape = (len(rows), len(scores))
                matrix = sparse.csr_matrix((values, (at, columns)), shape=shape)
                matrices[sense] = matrix, np.array([r[2] for r in rows])
        forbidden = np.isneginf(scores)
        equal, less = matrices.get("=", (None, None)), matrices.get("<", (None, None))
        found = optimize.linprog(
            -np.where(forbidden, 0.0, scores),
            *less,
            *equal,
            bounds=np.stack([np.zeros(len(scores)), np.where(forbidden, 0.0, 1.0)], axis=1),
            method="highs",
        )
        assert found.status == 0
        return -found.fun


def relaxed(graph):
    """Return the optimum of the relaxation in which factors agree on their variables."""
    program = Program(graph)
    for factor in graph.factors:
        kind, view = type(factor).__name__, factor.variables
        for i, (x, flips) in enumerate(zip(view.index, view.negated, strict=True)):
            if kind == "Xor":
                program.row("=", x, 1, flips, 1)
            elif kind == "AtMostOne":
                program.row("<", x, 1, flips, 1)
            elif kind == "Or":
                program.row("<", x, -1, flips, -1)
            elif kind == "OrOut":
                program.row("<", x, [*[-1] * (len(x) - 1), 1], flips, 0)
                for j in range(len(x) - 1):
                    program.row("<", x[[j, -1]], [1, -1], flips[[j, -1]], 0)
            elif kind == "Pair":
                (both,) = program.new(factor.scores[i])
                ends = np.append(x, both), np.append(flips, False)
                program.row("<", ends[0], [1, 1, -1], ends[1], 1)
                program.row("<", ends[0], [-1, 0, 1], ends[1], 0)
                program.row("<", ends[0], [0, -1, 1], ends[1], 0)
            else:
                entries = program.new(factor.table[i]).reshape(factor.n_states)
                for d, block in enumerate(factor.blocks):
                    for j, state in enumerate(block.index[i]):
                        these = np.take(entries, j, axis=d).ravel()
                        index = np.append(these, state)
                        program.row("=", index, [*[1] * len(these), -1], False, 0)
                program.row("=", entries.ravel(), 1, False, 1)
    return program.maximum()


def counted(graph):
    found = {}
    for factor in graph.factors:
        name = type(factor).__name__
        found[name] = found.get(name, 0) + factor.n_factors
    return found


@pytest.mark.parametrize("name", UAI)
def test_uai_models_have_their_numbers(name):
    n_variables, n_states, n_factors, largest, _ = UAI[name]
    path = FOLDER / "uai" / name
    network, named = read_network(path), read_graph(path)
    assert network.n_states == [n_states] * n_variables
    assert len(network.scopes) == n_factors
    assert max(map(len, network.scopes)) == largest
    assert len(named.variables) == n_variables
    n_tables = sum(len(scope) > 1 for scope in network.scopes)
    assert counted(named.graph).get("Dense", 0) == n_tables


SLOW = {"wcsp_15.uai.gz"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in UAI]
)
def test_uai_models_have_their_relaxations_optimum(name):
    path = FOLDER / "uai" / name
    named = read_graph(path)
    evidence = FOLDER / "uai" / f"{name.split('.uai')[0]}.uai.evid"
    if evidence.exists():
        for block, value in read_evidence(evidence, named, path):
            scores = named.graph.flat_scores()
            scores[block.index[~np.asarray(value)]] = -np.inf
            named.graph._scores[:] = [scores]
    assert relaxed(named.graph) == pytest.approx(UAI[name][-1], rel=2e-5, abs=1e-5)


@pytest.mark.filterwarnings("ignore:.*expected the end of the file")  # one ends with a stray word
@pytest.mark.parametrize("name", FG)
def test_fg_models_have_their_numbers_and_optimum(name):
    n_variables, factors, optimum = FG[name]
    graph = read_graph(FOLDER / "fg" / name).graph
    assert graph.n_variables == n_variables
    assert counted(graph) == factors
    assert relaxed(graph) == pytest.approx(optimum, rel=1e-6)


def test_types_that_are_not_read_are_named():
    kind = "GENERAL_TREE_COUNTS"
    with pytest.raises(FileFormatError, match=f"factors of type {kind} are not supported"):
        read_graph(FOLDER / "fg" / "general_tree_counts.fg")


def test_a_sequence_is_read():
    named = read_graph(FOLDER / "fg" / "sequence.fg")
    assert named.variables["u"].shape == (43,)
    assert named.graph.solve().ok
    begin = np.cumsum([0, 4, 2, 1, 1, 1, 2, 2, 3, 2, 2, 10, 5, 1, 2, 2, 2])
    np.testing.assert_allclose(np.add.reduceat(named.variables["u"].value, begin), 1.0)


def test_evidence_is_conditioned_on():
    path = FOLDER / "uai" / "Promedas_30.uai.gz"
    named = read_graph(path)
    evidence = read_evidence(FOLDER / "uai" / "Promedas_30.uai.evid", named, path)
    assert len(evidence) == 16
    given = named.graph.condition(evidence)
    assert given.graph.solve().ok
    for block, value in evidence:
        np.testing.assert_array_equal(given.of(block).value, value)


BEST = {
    "uai/grid3x3.uai": 52.552871,
    "uai/grid4x4.uai": 102.062020,
    "uai/grid10x10.f2.wrap.uai.gz": 162.578542,
    "uai/GEOM30a_3.uai": -101.313744,
    "uai/Grids_26.uai.gz": 3051.012758,
    "uai/smokers_10.uai.gz": 361.999997,
    "uai/10_14_s.binary.uai.gz": -85.762023,
    "uai/Segmentation_14.uai.gz": -92.333556,
    "uai/Segmentation_12.uai.gz": -51.150653,
    "uai/deer_rescaled_0034.K10.F1.25.model.uai.gz": -182.030920,
    "fg/coref.fg.gz": 11.468991,
    "fg/example1.fg": 2.0,
    "fg/example2.fg": 1.25,
    "fg/srl_fract_001.fg.gz": 25.773061,
}
"""Scores of the best assignments, as far as they are quickly proved."""


@pytest.mark.parametrize("name", BEST)
def test_best_assignments(name):
    graph = read_graph(FOLDER / name).graph
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.total == pytest.approx(BEST[name], rel=1e-6)


def test_protein_folding_is_proved_where_the_shipped_assignment_falls_short():
    graph = read_graph(FOLDER / "uai" / "ProteinFolding_11.uai.gz").graph
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.total == pytest.approx(4517.315788, rel=1e-6)


def test_a_model_that_nobody_has_proved_gets_a_good_assignment():
    graph = read_graph(FOLDER / "uai" / "wcsp_15.uai.gz").graph
    with pytest.warns(ConvergenceWarning, match="not proved the best"):
        found = graph.solve_map(exact=True, max_nodes=2)
    assert found.total >= -260.0
    assert found.bound[0] >= -1e-6


COMPETITION = {
    "ProteinFolding_17.uai.gz": (10.0, 38094.0),
    "ProteinFolding_20.uai.gz": (10.0, 12845.0),
    "ProteinFolding_24.uai.gz": (10.0, 11000.0),
    "wcsp_14.uai.gz": (10.0, -100.0),
    "pedigree9.uai.gz": (120.0, -282.9967),
}
"""Hard models: seconds, and what the best assignment scores at least."""


COMMAND = "from lpsmap_core.command.entry import main; main()"


def model(name):
    path = FOLDER / "uai" / name
    if not path.exists():
        pytest.skip(f"no {name} in {path.parent}; LPSMAP_MAP_MODELS names the folder above it")
    return path


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("name", COMPETITION)
def test_command_and_api_agree_on_hard_models(name):
    seconds, least = COMPETITION[name]
    path = model(name)
    found = read_graph(path).graph.solve_map(exact=True, max_time=seconds)
    options = ["--task", "map", "--max-time", str(seconds), "--output", "json"]
    done = run("-c", COMMAND, "solve", str(path), *options)
    assert done.returncode == (0 if found.ok else 3), done.stderr
    answer = json.loads(done.stdout)
    score, bound = sum(answer["score"]), sum(answer["bound"])
    print(name, found.solver, found.total, found.bound.sum(), answer["solver"], score, bound)
    assert (set(answer["status"]) == {"PROVED"}) == found.ok
    assert least <= score <= bound
    assert least <= found.total <= found.bound.sum()
    if found.ok:
        assert score == pytest.approx(found.total, rel=1e-6)


MANY = """
import sys, warnings
from lpsmap_decode import read_graph
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    found = read_graph(name).graph.solve_map(exact=True, max_time=10.0, threads=1)
    assert found.found.all() and not found.interrupted
"""


@pytest.mark.slow
def test_processes_end_well_after_hard_models():
    """Twenty runs of two models, in ten processes one after the other."""
    paths = [str(model(f"ProteinFolding_{number}.uai.gz")) for number in (17, 20)]
    for _ in range(10):
        done = run("-c", MANY, *paths)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_threads_solve_hard_models_side_by_side():
    """Twenty runs of two models, by two threads of one process."""
    paths = [model(f"ProteinFolding_{number}.uai.gz") for number in (17, 20)] * 10
    for solver in ("auto", "highs"):
        with ThreadPoolExecutor(2) as executor:
            outcomes = solve_many(paths, executor, task="map", solver=solver, max_time=10.0)
            for outcome in outcomes:
                assert outcome.error is None, outcome.traceback
                assert outcome.status == ("FOUND",)
