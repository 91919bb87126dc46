"""Subclasses of all factor types: what has other structures is solved as what it is."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judges
from lpsmap import DepTree, FactorGraph, Sequence, TopK, Xor
from lpsmap_core import Factor, Status, Variables
from lpsmap_core.api import row_view, slot_values
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.solvers import choose_solver, solver_of
from lpsmap_core.model.inheritance import OPTIONAL
from lpsmap_core.testing.graphs import declared_again
from lpsmap_decode import FileFormatError, NamedGraph
from lpsmap_decode.formats.files import write_graph
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, HypergraphFactor, Row
from lpsmap_dynamic.best_derivation import best_derivations
from other_structures import TYPES, Four, Plain, other, plain_rows, single, unchanged

EXAMPLES = [
    pytest.param(name, i, id=f"{name}-{i}")
    for name, factor_type in TYPES.items()
    for i in range(len(factor_type.examples()))
]


def declared(factor_type: type[Factor], i: int, seed: int = 0) -> tuple[FactorGraph, Factor]:
    """Return an example of a type with random scores."""
    rng = np.random.default_rng(seed)
    factor = factor_type.examples()[i]
    scores = rng.standard_normal((1, int(factor.offsets[-1])))
    again = declared_again(
        factor, scores, rng.standard_normal((1, factor.n_factors, factor.n_additionals))
    )
    return again.graph, again.factors[0]


def results(graph: FactorGraph, **options: Any) -> tuple[Any, Any]:
    solution = graph.solve(tol=1e-10, **options)
    assert solution.ok
    d = np.random.default_rng(1).standard_normal(solution.values.shape)
    return solution.values, solution.vjp(d)[0]


# -------------------------------------------------------------------- without changes


@pytest.mark.filterwarnings("ignore:lpsmap. Components have constraints that no zeros and ones")
@pytest.mark.parametrize("name, i", EXAMPLES)
def test_a_subclass_without_changes_is_solved_as_its_base(name: str, i: int) -> None:
    base, same = TYPES[name], unchanged(TYPES[name])
    assert choose_solver(same) == choose_solver(base)
    for attribute in OPTIONAL:
        assert attribute not in vars(same)
    for attribute in ("expected_failures", "gibbs", "unused", "linear_constraints", "inference"):
        assert getattr(same, attribute) is getattr(base, attribute)
    (graph, factor), (other_graph, wanted) = declared(same, i), declared(base, i)
    assert type(factor) is same
    for one, two in zip(results(graph), results(other_graph), strict=True):
        np.testing.assert_array_equal(one, two)
    assert [row.solver for row in graph.plan().factors] == [
        row.solver for row in other_graph.plan().factors
    ]
    if not factor.n_additionals and not graph.plan().factors[0].solver.startswith("closed"):
        structures = graph.structures(factor)
        assert structures[(0,) * len(factor.batch_shape)]
    found, best = graph.solve_map(exact=True), other_graph.solve_map(exact=True)
    assert found.total == best.total
    assert found.solver == best.solver
    assert type(wanted) is base


# -------------------------------------------------------------------- with other structures


@pytest.mark.parametrize("name, i", EXAMPLES)
class TestOtherStructures:
    def test_nothing_of_the_base_is_left(self, name: str, i: int) -> None:
        factor_type = other(TYPES[name])
        graph, factor = declared(factor_type, i)
        for attribute in OPTIONAL:
            default = getattr(Plain, attribute, None)
            found = getattr(factor_type, attribute, None)
            assert getattr(found, "__func__", found) is getattr(default, "__func__", default)
        assert factor.linear_constraints() is None
        assert factor.unused() == (None, None)
        (bucket,) = graph._laid_out().part.buckets
        assert solver_of(bucket).solver is ActiveSets

    def test_solutions_and_gradients(self, name: str, i: int) -> None:
        graph, factor = declared(other(TYPES[name]), i)
        plain, _ = plain_rows(factor, graph.flat_scores())
        for one, two in zip(results(graph), results(plain), strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-8)
        values = slot_values(factor, factor.variables.value)
        m, n, a, eta_v = judged_row(factor)
        z, _ = judges.project_polytope(m, n, a, eta_v, np.ones(len(a)))
        np.testing.assert_allclose(values[: len(a)], z, rtol=0, atol=1e-8)

    def test_among_other_factors(self, name: str, i: int) -> None:
        graph, factor = declared(other(TYPES[name]), i)
        plain, _ = plain_rows(factor, graph.flat_scores())
        for each in (graph, plain):
            each.add(Xor(Variables(each, np.arange(2), np.zeros(2, dtype=bool))))
        for one, two in zip(results(graph), results(plain), strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)
        assert graph.solve_map().objective.sum() == pytest.approx(
            plain.solve_map().objective.sum(), abs=1e-6
        )

    def test_decoding(self, name: str, i: int, tmp_path: Path) -> None:
        graph, factor = declared(other(TYPES[name]), i)
        plain, _ = plain_rows(factor, graph.flat_scores())
        found, wanted = graph.solve_map(exact=True), plain.solve_map(exact=True)
        assert found.proved.all()
        assert found.total == pytest.approx(wanted.total, abs=1e-9)
        ranked = [best.score for best in graph.k_best(3)]
        expected = [best.score for best in plain.k_best(3)]
        np.testing.assert_allclose(ranked, expected, rtol=0, atol=1e-9)
        if importlib.util.find_spec("highspy"):
            with pytest.raises(ValueError, match="linear constraints"):
                graph.solve_map(exact=True, solver="highs")

    def test_sums_are_refused(self, name: str, i: int) -> None:
        graph, factor = declared(other(TYPES[name]), i)
        with pytest.raises(TypeError, match=f"^{type(factor).__name__} has no inference"):
            graph.gibbs(factor)

    def test_files(self, name: str, i: int, tmp_path: Path) -> None:
        graph, factor = declared(other(TYPES[name]), i)
        again = pickle.loads(pickle.dumps(graph))
        assert type(again.factors[0]) is type(factor)
        for one, two in zip(results(graph), results(again), strict=True):
            np.testing.assert_array_equal(one, two)
        named, _ = declared(type(name, (Four, TYPES[name]), {}), i)  # by the name of its base
        for written in (graph, named):
            for suffix in ("json", "fg"):
                with pytest.raises(FileFormatError):
                    write_graph(NamedGraph(written, {}), tmp_path / f"graph.{suffix}")

    def test_one_structure_with_vertices_of_the_base(self, name: str, i: int) -> None:
        """Only `solve_map` is overridden."""
        graph, factor = declared(single(TYPES[name]), i)
        solution = graph.solve()
        assert (solution.status == Status.SOLVED).all()
        only = [
            view.vertex(view.solve_map(np.zeros(view.event_shape), np.zeros(view.n_additionals)))
            for view in (row_view(factor, k) for k in range(factor.n_factors))
        ]
        m = np.concatenate([np.reshape(x, -1) for x, _ in only])
        np.testing.assert_allclose(slot_values(factor, factor.variables.value), m, atol=1e-12)
        np.testing.assert_allclose(solution.vjp(np.ones(graph.n_variables))[0], 0.0, atol=1e-12)
        extra = graph.additional_scores(factor).reshape(-1)
        n = np.concatenate([np.reshape(x, -1) for _, x in only])
        score = graph.flat_scores() @ solution.values + extra @ n
        assert graph.solve_map().objective.sum() == pytest.approx(score, abs=1e-8)


def judged_row(factor: Factor) -> tuple[Any, ...]:
    """Return the structures of a declaration's first row, and its scores."""
    view, graph = row_view(factor, 0), factor.variables.graph
    begin, end = factor.offsets[:2]
    index = slot_values(factor, factor.variables.index)[begin:end]
    negated = slot_values(factor, factor.variables.negated)[begin:end]
    scores = graph.flat_scores()[index]
    extra = graph.additional_scores(factor)
    vertices = [Four.vertex(view, y) for y in range(4)]
    m = np.array([np.reshape(x, -1) for x, _ in vertices])
    n = np.array([x for _, x in vertices])
    a = np.where(negated, 1.0 - scores, scores)
    return m, n, a, extra[0] if extra.size else np.empty(0)


# -------------------------------------------------------------------- single cases


def test_projective_trees_of_a_subclass_do_not_cross() -> None:
    class Tree(DepTree):
        pass

    graph = FactorGraph()
    scores = np.full((4, 4), -3.0)
    scores[0, 0] = scores[2, 0] = scores[1, 1] = scores[3, 1] = 1.0  # 0 -> 2 crosses 1 -> 3
    u = graph.variable_from(scores)
    graph.add(Tree(u, projective=True))
    assert graph.solve().ok
    assert u.value[2, 0] + u.value[3, 1] <= 1.0 + 1e-9
    crossing = FactorGraph()
    v = crossing.variable_from(scores)
    crossing.add(DepTree(v))
    crossing.solve()
    assert v.value[2, 0] + v.value[3, 1] == pytest.approx(2.0)


def test_projective_and_other_trees_share_a_graph(rng) -> None:
    """In two buckets of a type, also for warm starts, and with structures of each."""
    scores = rng.standard_normal((2, 5, 5))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factors = [graph.add(DepTree(u[k], projective=k == 1)) for k in range(2)]
    graph.add(Xor(u[:, 0, 0]))
    first = graph.solve(tol=1e-9)
    assert first.ok
    for k, factor in enumerate(factors):
        found = graph.structures(factor)[()]
        mean = sum(s.probability * s.variables for s in found)
        np.testing.assert_allclose(mean, u.value[k], atol=1e-6)
    again = graph.solve(tol=1e-9, warm_start=first)
    np.testing.assert_allclose(again.values, first.values, atol=1e-7)


def test_methods_of_a_mixin_switch_off_what_is_inherited() -> None:
    class Mixed(Four, Xor):
        pass

    assert Mixed.projection_kernel is None
    graph = FactorGraph()
    u = graph.variable_from([0.6, 0.7, 0.4, -0.1])
    factor = graph.add(Mixed(u))
    plain, _ = plain_rows(factor, graph.flat_scores())
    np.testing.assert_allclose(results(graph)[0], results(plain)[0], atol=1e-10)


def test_what_a_class_declares_itself_is_kept() -> None:
    """With a hypergraph of its own, a type has the sums that follow from it."""

    class Constant(Sequence):
        """The same state at all positions."""

        @classmethod
        def hypergraph(cls, row, build):
            length, n_states = row.event_shape
            for state in range(n_states):
                slots = np.arange(length) * n_states + state
                before = "start"
                if state == 0:
                    build.edge(before)
                for t, slot in enumerate(slots.tolist()):
                    item = (state, t)
                    build.edge(item, [before], slots=[slot])
                    before = item
            for state in range(n_states):
                build.edge("goal", [(state, length - 1)])
            return "goal"

    assert Constant.map_kernel is best_derivations
    assert Constant.local_solver() is None
    assert Constant.unused is DynamicProgram.unused
    graph = FactorGraph()
    scores = np.array([[0.3, 0.0], [0.1, 0.2], [-0.2, 0.1]])
    u = graph.variable_from(scores)
    factor = graph.add(Constant(u, np.zeros((2, 2))))
    assert graph.solve().ok
    np.testing.assert_allclose(u.value, np.tile(u.value[0], (3, 1)), atol=1e-9)
    gibbs = graph.gibbs(factor)
    totals = scores.sum(axis=0)
    assert float(np.ravel(gibbs.log_partition)[0]) == pytest.approx(np.logaddexp(*totals))


def test_a_subclass_of_a_subclass_has_its_structures() -> None:
    middle = other(Xor)

    class Lower(middle):  # type: ignore[misc, valid-type]
        pass

    class Again(middle):  # type: ignore[misc, valid-type]
        solve_map, vertex = Xor.solve_map, Xor.vertex
        projection_kernel, jvp_kernel = Xor.projection_kernel, Xor.jvp_kernel

    assert Lower.projection_kernel is None
    assert choose_solver(Again).name == choose_solver(Xor).name


def test_other_hypergraphs_do_not_inherit_the_paths_of_their_base() -> None:
    """The bound on the paths of all subsets of k would be wrong for one path alone."""

    class First(TopK):
        @classmethod
        def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
            build.edge("goal", slots=[0])
            return "goal"

    assert First.min_paths is HypergraphFactor.min_paths
    graph = FactorGraph()
    graph.add(First(graph.variable(6), 3))
    np.testing.assert_allclose(graph.gibbs().log_partition, [0.0], atol=1e-12)
