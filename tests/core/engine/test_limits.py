"""Limits of time and of work: what once took longer than it was given."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numba.core.event import install_recorder

from lpsmap import AtMostOne, Dense, FactorGraph, Pair, Potts, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_core.command import cli
from lpsmap_core.layout.layout import build_layout
from lpsmap_decode import NamedGraph
from lpsmap_decode.command.solve_file import UNSOLVED
from lpsmap_decode.formats.json_format import JsonFormat
from lpsmap_decode.networks.cycles import triplets_of
from lpsmap_decode.networks.elimination import elimination_order
from lpsmap_decode.networks.network import TableNetwork, build_network, networks_of
from lpsmap_jit.interrupts import Watch, interrupted


def grid(n: int, seed: int = 0) -> FactorGraph:
    """Return a grid of pairs, whose relaxation is not tight."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    u = graph.variable_from(rng.normal(size=(n, n)))
    graph.add(Pair(u[:-1], u[1:], 1.5 * rng.normal(size=(n - 1, n))))
    graph.add(Pair(u[:, :-1], u[:, 1:], 1.5 * rng.normal(size=(n, n - 1))))
    return graph


def potts_grid(rows: int, columns: int) -> FactorGraph:
    """Return a grid of Potts factors over blocks of four states."""
    rng, graph = np.random.default_rng(0), FactorGraph()
    x = graph.variable_from(rng.normal(size=(rows, columns, 4)))
    graph.add(Xor(x))
    graph.add(Potts(x[:-1], x[1:], rng.normal(size=(rows - 1, columns))))
    graph.add(Potts(x[:, :-1], x[:, 1:], rng.normal(size=(rows, columns - 1))))
    return graph


def network_of(pairs: list[tuple[int, int]], n: int) -> TableNetwork:
    """Return a network of binary nodes."""
    scope = np.array(pairs, dtype=np.int64).reshape(-1)
    return build_network(np.full(n, 2), np.arange(0, len(scope) + 1, 2), scope)


def circles_by_trial(neighbours: np.ndarray) -> set[tuple[int, ...]]:
    """Return the triplets of all circles of three, and of four without chords."""
    n = len(neighbours)
    found = set()
    for i in range(n):
        for j in range(i):
            common = np.flatnonzero(neighbours[i] & neighbours[j])
            if neighbours[i, j]:
                found |= {tuple(sorted((i, j, int(k)))) for k in common}
                continue
            for a in common.tolist():
                for b in common.tolist():
                    if a < b and not neighbours[a, b]:
                        found |= {tuple(sorted((i, j, a))), tuple(sorted((i, j, b)))}
    return found


@pytest.mark.parametrize("seed", range(6))
def test_circles_are_those_that_trial_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 12))
    i, j = np.triu_indices(n, 1)
    some = rng.random(len(i)) < rng.uniform(0.2, 0.9)
    neighbours = np.zeros((n, n), dtype=bool)
    neighbours[i[some], j[some]] = neighbours[j[some], i[some]] = True
    pairs = list(zip(i[some].tolist(), j[some].tolist(), strict=True))
    expected = circles_by_trial(neighbours)
    found = triplets_of(network_of(pairs, n)) if pairs else None
    assert (found is not None) == bool(expected)
    if found is not None:
        assert {tuple(nodes) for nodes in found[1].nodes.tolist()} == expected


@pytest.mark.compiled
def test_circles_of_a_large_grid_are_found_along_its_paths() -> None:
    """To look at all pairs of its 4,900 nodes took 20 seconds, and a square table 24 MB."""
    network = networks_of(build_layout(4900, grid(70).factors).part).of(0)[0]
    triplets_of(network)  # compiles
    begin = time.process_time()
    tracemalloc.start()
    found = triplets_of(network)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - begin < 2.0
    assert most < 15e6
    assert found is not None
    assert len(found[1].nodes) == 4 * 69 * 69


def test_no_circle_is_found_nor_order_when_the_time_is_up() -> None:
    """And what was not found for want of time is looked for again."""
    graph = grid(8)
    part = build_layout(64, graph.factors).part
    network = networks_of(part).of(0)[0]
    with Watch(1e-9):
        assert interrupted()
        assert triplets_of(network) is None
        assert elimination_order(network, 1e9).cost == np.inf
    assert triplets_of(network) is not None
    assert elimination_order(network, 1e9).cost < 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        graph.solve_map(exact=True, max_time=1e-9, solver="lpsmap")
    assert graph.solve_map(exact=True, solver="lpsmap").n_nodes[0] == 0  # it was eliminated


@pytest.mark.compiled
def test_a_table_over_three_wide_nodes_is_rounded_in_one_pass() -> None:
    """It was passed through for each of their states, with no look at the time: half a minute."""
    rng, graph = np.random.default_rng(0), FactorGraph()
    k = 150
    u = graph.variable_from(rng.normal(size=(3, k)))
    table = rng.normal(size=(k, k, k))
    graph.add(Dense([u[0], u[1], u[2]], table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        graph.solve_map(exact=True, max_time=1e-3, solver="lpsmap")  # compiles
        begin = time.process_time()
        found = graph.solve_map(exact=True, max_time=1.0, solver="lpsmap")
    assert time.process_time() - begin < 6.0
    scores = graph.flat_scores().reshape(3, k)
    best = (scores[0][:, None, None] + scores[1][:, None] + scores[2] + table).max()
    assert found.bound[0] >= best - 1e-9


@pytest.mark.compiled
@pytest.mark.parametrize("verb", ["exact", "decode", "k_best"])
def test_every_verb_of_a_large_grid_has_its_time(verb: str) -> None:
    """Half a second, with head-room."""
    graph = potts_grid(40, 44)

    def call(seconds: float) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            relaxed = graph.solve(max_time=0.2) if verb == "decode" else None
            begin = time.process_time()
            if relaxed is not None:
                found = relaxed.decode(max_time=seconds)
            elif verb == "exact":
                found = graph.solve_map(exact=True, max_time=seconds, solver="lpsmap")
            else:
                found = graph.k_best(5, max_time=seconds)[0]
        assert found.bound[0] >= found.score[0]
        if verb != "k_best":  # which knows a bound once it has looked at a node
            assert np.isfinite(found.bound[0])
        return time.process_time() - begin

    call(0.1)  # loads or compiles kernels, and may end before the last ones
    while True:
        with install_recorder("numba:compile") as recorder:
            duration = call(0.5)
        if not recorder.buffer:
            break
    assert duration < 4.0


@pytest.mark.slow
@pytest.mark.compiled
def test_decoding_left_alone_ends_by_itself() -> None:
    """It took four minutes, since only the nodes had a limit by default."""
    graph = potts_grid(48, 52)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        relaxed = graph.solve(max_time=0.2)
        relaxed.decode(max_time=0.1)  # compiles
    begin = time.monotonic()
    found = relaxed.decode()
    assert time.monotonic() - begin < 15.0
    assert -np.inf < found.score[0] <= found.bound[0] < np.inf


@pytest.mark.compiled
@pytest.mark.parametrize("way", ["exact", "decode", "command"])
def test_every_way_to_search_a_grid_of_pairs_has_its_time(way: str, tmp_path: Path) -> None:
    """To look for circles took 12 seconds of 70x70 variables, after a relaxation that is short."""
    graph, path = grid(70), tmp_path / "grid.json"
    JsonFormat().write(NamedGraph(graph, {"u": graph.blocks[0]}), path)
    options = ["--task", "map", "--solver", "lpsmap", "--max-iter", "20", "--max-time"]

    def call(seconds: float) -> float:
        relaxed = graph.solve(max_iter=20) if way == "decode" else None
        begin = time.process_time()
        if relaxed is not None:
            found = relaxed.decode(max_time=seconds)
            assert found.score[0] <= found.bound[0] < np.inf
        elif way == "command":
            arguments = ["solve", str(path), "--quiet", *options, str(seconds)]
            result = CliRunner().invoke(cli.main, arguments)
            assert result.exit_code in (0, UNSOLVED), result.output
        else:
            found = graph.solve_map(exact=True, max_time=seconds, max_iter=20, solver="lpsmap")
            assert found.score[0] <= found.bound[0] < np.inf
        return time.process_time() - begin

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        call(0.1)  # compiles
        assert call(0.5) < 6.0


def test_many_of_the_best_cost_what_there_are() -> None:
    """The list ends, where each that there is not was made all the same, in 40 seconds."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.3, 0.2], [0.1, 0.5]]))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    ranked = graph.k_best(100_000)
    assert [found.score[0] for found in ranked] == pytest.approx([0.8, 0.3])
    with pytest.raises(IndexError):
        ranked[2]


def test_more_of_the_best_than_can_be_kept_are_refused() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1.0, 2.0])))
    for k in (10**6 + 1, 2**62):
        with pytest.raises(ValueError, match=rf"k_best: k: got {k}; expected at most 1000000"):
            graph.k_best(k)
