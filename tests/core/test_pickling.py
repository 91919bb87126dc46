"""Graphs, variables and factors in pickles and copies."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import weakref
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from lpsmap_core import FactorGraph
from lpsmap_core.api import row_view
from lpsmap_factors_logic import Pair, Xor
from lpsmap_factors_struct import Sequence
from remote_jobs import marginals


def make_graph() -> FactorGraph:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((2, 3, 2)))
    graph.add(Sequence(u, rng.standard_normal((2, 2, 2, 2)), lengths=[3, 2]))
    graph.add(Pair(u[0, 0], ~u[1, 0], rng.standard_normal(2)))
    graph.add(Xor(~u[:, 0, :]))
    return graph


def round_trip(thing):
    return pickle.loads(pickle.dumps(thing))


def assert_same_solution(graph, other):
    assert [type(f) for f in graph.factors] == [type(f) for f in other.factors]
    for mine, theirs in zip(marginals(graph), marginals(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("copied", [round_trip, copy.deepcopy])
@pytest.mark.parametrize("solved", [False, True])
def test_a_graph_is_copied_unsolved_with_all_its_factors(copied, solved):
    graph = make_graph()
    if solved:
        graph.solve()
    other = copied(graph)
    assert other is not graph
    assert all(factor.variables.graph is other for factor in other.factors)
    with pytest.raises(RuntimeError, match="was not solved"):
        _ = other.factors[0].variables.value
    assert_same_solution(graph, other)


@pytest.mark.parametrize("order", ["factor first", "graph first", "variables first", "list"])
def test_parts_keep_together_in_one_pickle(order):
    graph = make_graph()
    factor, u = graph.factors[1], graph.factors[1].variables
    parts = {
        "factor first": (factor, u, graph),
        "graph first": (graph, factor, u),
        "variables first": (u, factor, graph),
        "list": (graph.factors, factor, u, graph),
    }[order]
    parts = round_trip(parts)
    (other,) = (part for part in parts if isinstance(part, FactorGraph))
    (pair,) = (part for part in parts if isinstance(part, Pair))
    assert other.factors[1] is pair
    assert pair.variables.graph is other
    assert_same_solution(graph, other)


def test_structures_are_pickled_with_their_graph():
    graph = make_graph()
    graph.solve()
    structures = graph.structures(graph.factors[0])
    _, other = round_trip((graph, structures))
    assert other.to_dict() == structures.to_dict()
    np.testing.assert_array_equal(other.variables, structures.variables)


def test_a_copied_graph_grows_and_refuses_as_any_other():
    other = round_trip(make_graph())
    with pytest.raises(ValueError, match="was added before"):
        other.add(other.factors[0])
    v = other.variable(2)
    other.add(Xor(v))
    with pytest.raises(ValueError, match="was added before"):
        other.add(other.factors[-1])
    other.solve()
    np.testing.assert_allclose(v.value, 0.5)


def test_owning_variables_bring_their_graph():
    graph = FactorGraph()
    u = graph.variable_from([0.25, 0.5])
    other = round_trip(~u[1:])
    assert other.graph.n_variables == 2
    other.graph.solve()
    np.testing.assert_array_equal(other.value, [0.5])


def test_a_factor_alone_answers_but_does_not_keep_its_graph():
    graph = make_graph()
    sequence = graph.factors[0]
    other = round_trip(sequence)
    eta_u, eta_v = np.arange(4.0).reshape(2, 2), np.arange(8.0)
    label = row_view(sequence, 1).solve_map(eta_u, eta_v)
    assert row_view(other, 1).solve_map(eta_u, eta_v) == label
    with pytest.raises(RuntimeError, match="keep a reference"):
        _ = other.variables.graph


def test_a_graph_from_a_pickle_dies_with_its_last_reference():
    other = round_trip(make_graph())
    alive = weakref.ref(other)
    gc.disable()
    try:
        del other
        assert alive() is None
    finally:
        gc.enable()


def test_a_factor_whose_graph_is_gone_cannot_be_pickled():
    factor = Xor(FactorGraph().variable(2))
    with pytest.raises(RuntimeError, match="the graph of these variables is gone"):
        pickle.dumps(factor)


@pytest.mark.compiled
def test_other_processes_solve_graphs():
    graphs = [make_graph() for _ in range(2)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found = list(pool.map(marginals, graphs))
    for graph, theirs in zip(graphs, found, strict=True):
        for mine, other in zip(marginals(graph), theirs, strict=True):
            np.testing.assert_array_equal(mine, other)


def test_a_solution_belongs_to_its_process():
    """It holds addresses, which a copy would have read."""
    graph = FactorGraph()
    graph.add(Xor(graph.variable((2, 3))))
    solution = graph.solve()
    for copied in (round_trip, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Solution holds addresses of the process"):
            copied(solution)


def test_two_graphs_cannot_share_variables():
    with pytest.raises(TypeError, match=r"copy: .*copy\.deepcopy\(\(graph, u\)\)"):
        copy.copy(make_graph())
