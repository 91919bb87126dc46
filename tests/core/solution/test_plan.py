"""The plan of a graph: what it says, and that a solve does as it says."""

from __future__ import annotations

import gc
import json
import re
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from environments import ROOT
from lpsmap import AtMostOne, Budget, DepTree, Matching, Pair, Sequence, Xor
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.layout import arrangement
from lpsmap_core.local.solvers import choose_solver
from lpsmap_jit.compile import COMPILED
from pages import execute

KERNEL = "compiled" if COMPILED else "Python"


class ArrayXor(Xor):
    """Exactly one, by its array code."""

    projection_kernel = None
    jvp_kernel = None


class OracleXor(Factor):
    """Exactly one, by an oracle in Python."""

    def solve_map(self, eta_u, eta_v):
        return int(eta_u.argmax())

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []


class IteratedXor(Xor):
    """Exactly one, with a closed form that no limit holds."""

    projection_iterates = True


def mixed() -> FactorGraph:
    """A graph with components of every kind."""
    graph = FactorGraph()
    graph.variable(3)
    graph.add(Xor(graph.variable((4, 5))))
    graph.add(Sequence(graph.variable((2, 6, 3)), np.zeros((3, 3)), lengths=[6, 4]))
    u = graph.variable((2, 4))
    graph.add(AtMostOne(u))
    graph.add(Pair(u[:, 0], u[:, 1], 1.0))
    return graph


# -------------------------------------------------------------------- what it says


def test_sizes_and_components() -> None:
    plan = mixed().plan()
    assert (plan.variables, plan.links, plan.additionals) == (67, 20 + 30 + 8 + 4, 2 * 15 + 2)
    assert [(c.kind, c.solved_by, c.count, c.variables, c.links) for c in plan.components] == [
        ("free variable", "clipped to [0, 1]", 9, 9, 0),  # 6 of them beyond the shorter sequence
        ("one factor", f"closed form, {KERNEL}", 4, 20, 20),
        ("one factor", f"forests, or active set, {KERNEL} oracle", 2, 30, 30),
        ("several factors", "ADMM", 2, 8, 12),
    ]


def test_factors() -> None:
    rows = {row.factor: row for row in mixed().plan().factors}
    assert list(rows) == ["Xor", "Sequence", "AtMostOne", "Pair"]
    sequence = rows["Sequence"]
    assert (sequence.count, sequence.links, sequence.additionals) == (2, 30, 30)
    assert (sequence.smallest_arity, sequence.largest_arity, sequence.level) == (12, 18, 2)
    assert sequence.reason == "a chain"
    assert sequence.function == "lpsmap_factors_struct.sequence._best_sequences"
    assert rows["Xor"].level == 3


@pytest.mark.parametrize(
    ("factor_type", "limited", "name", "reason"),
    [
        (Xor, True, f"closed form, {KERNEL}", "kernels for whole buckets"),
        (ArrayXor, True, "closed form, array code", "array code, no kernels"),
        (IteratedXor, False, f"closed form, {KERNEL}", "kernels for whole buckets"),
        (IteratedXor, True, f"active set, {KERNEL} oracle", "iterations are limited"),
        (OracleXor, False, "active set, Python oracle", "no closed form"),
    ],
)
def test_the_solver_is_the_one_that_serves(
    factor_type: type[Factor], limited: bool, name: str, reason: str
) -> None:
    graph = FactorGraph()
    graph.add(factor_type(graph.variable((2, 3))))
    (row,) = graph.plan(limited=limited).factors
    assert (row.solver, row.reason) == (name, reason)
    solver = graph.solve(max_inner_iter=100 if limited else None).solved.state.solvers[0]
    choice = choose_solver(factor_type, limited=limited)
    assert type(solver) is choice.solver
    assert row.function.endswith(f".{choice.function.__qualname__}")


@pytest.mark.compiled
def test_threads_take_shares_in_turn() -> None:
    graph = FactorGraph()
    graph.add(Matching(graph.variable((800, 10, 10))))
    plan = graph.plan(threads=4)
    sizes = [share.components for share in plan.shares]
    assert sizes[:10] == [100, 87, 77, 67, 58, 51, 45, 40, 34, 30]
    assert sizes[-8:] == [5, 5, 5, 5, 5, 5, 5, 3]
    assert sum(share.links for share in plan.shares) == plan.links == 80_000
    assert (plan.threads, plan.available_threads) == (4, 4)
    assert "threads: 4 of 4, for 31 shares of 300 to 10,000 links\n" in repr(plan)


@pytest.mark.compiled
def test_threads_take_blocks_of_coupled_components() -> None:
    graph = FactorGraph()
    u = graph.variable((800, 50))
    graph.add(Xor(u))
    graph.add(AtMostOne(u))
    plan = graph.plan(threads=4)
    assert [share.components for share in plan.shares] == [200] * 4
    assert "threads: 4 of 4, for 4 shares of 20,000 links\n" in repr(plan)
    eight = repr(graph.plan(threads=8))
    assert "threads: 6 of 8, for 6 shares of 13,300 to 13,400 links" in eight
    assert "; a thread is worth its start from 12,000 links on" in eight
    assert "threads: 1 of 1, for a share of 80,000 links\n" in repr(graph.plan(threads=1))
    with pytest.raises(ValueError, match="threads: got 0; expected an integer of at least 1"):
        graph.plan(threads=0)


@pytest.mark.compiled
def test_a_pass_of_closed_forms_needs_more_links_for_a_thread() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable((50, 100))))
    plan = graph.plan(threads=4)
    assert (plan.threads, plan.links_per_thread) == (1, 96_000)
    assert "a thread is worth its start from 96,000 links on" in repr(plan)
    large = FactorGraph()
    large.add(Xor(large.variable((2_000, 100))))
    assert large.plan(threads=4).threads == 2


def test_array_forms_are_one_share() -> None:
    """They serve whole buckets: of factors without kernels, and of all where nothing compiles."""
    graph = FactorGraph()
    graph.add(ArrayXor(graph.variable((50, 100))))
    plan = graph.plan(threads=4)
    assert [share.components for share in plan.shares] == [50]
    assert (plan.threads, plan.available_threads) == (1, 4)


def test_planning_solves_nothing_and_a_solve_uses_its_layout() -> None:
    graph = mixed()
    graph.plan(threads=1)
    layout = graph._laid_out()
    assert graph.solution is None
    assert graph.solve(threads=1).layout is layout


def test_an_empty_graph() -> None:
    plan = FactorGraph().plan()
    assert plan.components == plan.factors == plan.shares == ()
    assert plan.threads == 0
    assert repr(plan).startswith("Plan: 0 variables, 0 links, 0 additionals\n\nthreads: none\n")


def test_prints_as_tables_and_converts_to_json() -> None:
    plan = mixed().plan(threads=1)
    lines = repr(plan).splitlines()
    assert lines[2].split() == ["components", "kind", "variables", "links", "solved", "by"]
    assert lines[8].split()[:4] == ["factors", "type", "arity", "links"]
    assert re.search(r"2  Sequence +12 to 18 +30 +30 +2  forests, or active set", repr(plan))
    assert re.match(
        r"memory: [\d.]+ kB, \d+ bytes a link \(.* layout, .* solve, .* active", lines[-1]
    )
    found = json.loads(json.dumps(plan.to_dict()))
    assert found["factors"][0]["factor"] == "Xor"
    assert found["memory"]["layout"] == plan.memory.layout


def test_the_readme_shows_a_plan_as_it_prints() -> None:
    readme = ROOT / "lpsmap_core" / "README.md"
    tables = repr(execute(readme).fg.plan()).partition("\n\nthreads")[0]
    assert f"```text\n{tables}\n```" in readme.read_text(encoding="utf-8")


# -------------------------------------------------------------------- memory


def alignments(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((64, 8, 14)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    return graph


def choices(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from(rng.standard_normal((2000, 20)))))
    return graph


def sequences(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    scores = 3.0 * rng.standard_normal((16, 14, 20))
    graph.add(Sequence(graph.variable_from(scores), rng.standard_normal((20, 20))))
    return graph


def trees(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((8, 20, 20)))
    graph.add(DepTree(u))
    graph.add(Budget(u, 5, axis=1))
    return graph


@pytest.mark.compiled
@pytest.mark.parametrize("make", [alignments, choices, sequences, trees])
def test_memory_is_what_a_solve_takes(
    make: Callable[[np.random.Generator], FactorGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(np.random.default_rng(0)).solve(threads=1)  # loads what is compiled
    graph = make(np.random.default_rng(0))
    planned = make(np.random.default_rng(0)).plan(threads=1).memory.total
    monkeypatch.setattr(arrangement, "_entries", [])  # as if this structure were new
    gc.collect()
    tracemalloc.start()
    graph.solve(threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 < peak / planned < 1.25
