"""Mistaken arguments of users: errors name the argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpsmap import (
    AtMostOne,
    Budget,
    Factor,
    FactorGraph,
    Pair,
    Variables,
    Xor,
)
from lpsmap_core.model.inputs import integer_array, kind_of, whole_numbers

MASKED = np.ma.masked_array(np.zeros((3, 4)), mask=np.eye(3, 4))


def matching() -> tuple[FactorGraph, Variables]:
    graph = FactorGraph()
    u = graph.variable_from(np.arange(12.0).reshape(3, 4) / 12)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    return graph, u


Call = Callable[[FactorGraph, Variables], Any]

REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "masked scores": (
        lambda graph, u: graph.variable_from(MASKED),
        TypeError,
        r"variable_from: scores: got a masked array; .*filled\(-np.inf\)",
    ),
    "rows of different lengths": (
        lambda graph, u: graph.variable_from([[1.0, 2.0], [3.0]]),
        TypeError,
        "variable_from: scores: got a list that is not an array of numbers",
    ),
    "masked new scores": (
        lambda graph, u: graph.rescore(u, MASKED),
        TypeError,
        "rescore: scores: got a masked array",
    ),
    "no new scores": (
        lambda graph, u: graph.rescore(u, None),
        TypeError,
        "rescore: scores is None; expected real numbers",
    ),
    "new scores of nothing": (
        lambda graph, u: graph.rescore(None, np.zeros((3, 4))),  # type: ignore[arg-type]
        TypeError,
        "rescore: what is None; expected Variables .* or a Factor",
    ),
    "new scores of a type": (
        lambda graph, u: graph.rescore(Xor, np.zeros((3, 4))),  # type: ignore[arg-type]
        TypeError,
        "rescore: what is the class Xor",
    ),
    "a start from a word": (
        lambda graph, u: graph.solve(warm_start="x"),  # type: ignore[arg-type]
        TypeError,
        "warm_start: got a str; expected a Solution.",
    ),
    "a start from a graph": (
        lambda graph, u: graph.solve(warm_start=graph),  # type: ignore[arg-type]
        TypeError,
        "warm_start: got a FactorGraph",
    ),
    "values of another graph": (
        lambda graph, u: graph.value_of(matching()[1]),
        ValueError,
        "value_of: .* belong to another graph",
    ),
    "values of nothing": (
        lambda graph, u: graph.value_of(None),  # type: ignore[arg-type]
        TypeError,
        "value_of: got None",
    ),
    "a shape of words": (
        lambda graph, u: graph.variable("3"),  # type: ignore[arg-type]
        TypeError,
        "variable: shape is '3'; expected integers",
    ),
    "a negative shape": (
        lambda graph, u: graph.variable((2, -1)),
        ValueError,
        r"variable: shape is \(2, -1\); expected sizes of 0 or more",
    ),
    "an axis of another kind": (
        lambda graph, u: Xor(u, axis="0"),  # type: ignore[arg-type]
        TypeError,
        "Xor: axis is '0'; expected an integer",
    ),
    "two lists for one": (
        lambda graph, u: Xor(u[0], u[1]),  # type: ignore[arg-type]
        TypeError,
        "Xor: axis is Variables",
    ),
    "a budget in words": (
        lambda graph, u: Budget(u, "2"),
        TypeError,
        "Budget: budget is '2'; expected whole numbers",
    ),
    "a budget that is a truth value": (
        lambda graph, u: Budget(u, True),
        TypeError,
        "Budget: budget is True; expected whole",
    ),
    "a complex budget": (lambda graph, u: Budget(u, 2 + 0j), TypeError, "Budget: budget is .2.0j."),
    "masked budgets": (
        lambda graph, u: Budget(u, np.ma.masked_array([1, 2, 3], [0, 1, 0])),
        TypeError,
        "Budget: budget: got a masked array",
    ),
    "a switch in words": (
        lambda graph, u: Budget(u, 2, "no"),
        TypeError,
        "Budget: force_budget: got 'no'; expected True or False",
    ),
    "masked lengths": (
        lambda graph, u: Xor(u, lengths=np.ma.masked_array([1, 2, 3], [0, 1, 0])),
        TypeError,
        "Xor: lengths: got a masked array",
    ),
    "a masked mask": (
        lambda graph, u: Xor(u, mask=np.ma.masked_array([True] * 4, [0, 0, 1, 0])),
        TypeError,
        "Xor: mask: got a masked array",
    ),
    "a length that wraps around": (
        lambda graph, u: Xor(u, lengths=np.array([1, 2, 2**64 - 1], dtype=np.uint64)),
        ValueError,
        r"Xor: lengths\[2\] is 4\d*; expected 0 to 4",
    ),
    "complex scores of pairs": (
        lambda graph, u: Pair(u[0], u[1], 1j),
        TypeError,
        "Pair: scores is 1j; expected real numbers",
    ),
    "scores of pairs in words": (
        lambda graph, u: Pair(u[0], u[1], "1"),
        TypeError,
        "Pair: scores is '1'; expected real",
    ),
    "a complex gradient": (
        lambda graph, u: graph.solve().vjp(np.ones(12) + 1j),
        TypeError,
        "vjp: d_values has dtype complex128",
    ),
    "gradients of too few declarations": (
        lambda graph, u: graph.solve().vjp(np.ones(12), [np.empty(0)]),
        ValueError,
        "vjp: d_additionals has 1 arrays; expected 2",
    ),
    "components of nothing": (
        lambda graph, u: graph.solve().component_of(None),  # type: ignore[arg-type]
        TypeError,
        "component_of: got None",
    ),
    "components of a larger graph": (
        lambda graph, u: graph.solve().component_of(FactorGraph().variable(99)),
        ValueError,
        "component_of: .* are not of the solved graph, which has 12",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_raise_errors_that_name_the_argument(name: str) -> None:
    call, error, words = REFUSED[name]
    graph, u = matching()
    graph.solve()
    with pytest.raises(error, match=words):
        call(graph, u)
    assert graph.solve().ok, "a mistake leaves the graph as it was"


@pytest.mark.parametrize(
    "costs", [np.ones(4) + 1j, "1", np.ma.masked_array(np.ones(4), [0, 1, 0, 0])]
)
def test_costs_are_real_numbers(costs: Any) -> None:
    from lpsmap import Knapsack

    with pytest.raises(TypeError, match="Knapsack: costs"):
        Knapsack(matching()[1], costs, 2.0)


def test_costs_of_unused_variables_are_not_validated() -> None:
    from lpsmap import Knapsack

    def solved(costs: Any, **options: Any) -> Any:
        graph = FactorGraph()
        u = graph.variable_from(np.full((3, 4), 0.9))
        graph.add(Knapsack(u, costs, 2.0, **options))
        assert graph.solve().ok
        return u.value

    for options in ({"mask": [True, True, False, True]}, {"mask": None, "lengths": [2, 1, 2]}):
        unused = solved([1.0, 2.0, np.nan, np.inf if "lengths" in options else 3.0], **options)
        np.testing.assert_array_equal(unused, solved([1.0, 2.0, 5.0, 3.0], **options))
    with pytest.raises(ValueError, match="Knapsack: costs holds a value that is not finite"):
        Knapsack(matching()[1], [1.0, np.nan, 1.0, 1.0], 2.0, mask=[True, True, False, True])


def test_scores_of_negative_strides_are_copied() -> None:
    scores = np.arange(12.0).reshape(3, 4) / 12
    graph = FactorGraph()
    u = graph.variable_from(scores[::-1, ::-1])
    graph.add(Xor(u))
    graph.add(Pair(u[0], u[1], np.arange(4.0)[::-1]))
    graph.solve()
    other = FactorGraph()
    v = other.variable_from(scores[::-1, ::-1].copy())
    other.add(Xor(v))
    other.add(Pair(v[0], v[1], np.arange(4.0)[::-1].copy()))
    other.solve()
    np.testing.assert_array_equal(u.value, v.value)


def test_stale_answers_name_the_verb() -> None:
    graph, u = matching()
    xor = graph.factors[0]
    graph.solve()
    graph.rescore(u, np.zeros((3, 4)))
    calls: dict[str, Callable[[], Any]] = {
        "structures": lambda: graph.structures(xor),
        "additionals_of": lambda: graph.additionals_of(xor),
        "value": lambda: u.value,
    }
    for verb, call in calls.items():
        with pytest.raises(RuntimeError, match=f"^{verb}: the graph was not solved since"):
            call()


def test_a_solution_keeps_its_factors_when_the_graph_gets_more() -> None:
    graph, u = matching()
    xor = graph.factors[0]
    solution = graph.solve()
    later = graph.add(Budget(u, 2))
    assert len(solution.factors) == 2
    with pytest.raises(ValueError, match="structures: Budget.* is not a factor of the solved"):
        solution.structures(later)
    assert len(solution.structures(xor)) == 3
    assert len(solution.vjp(np.ones(12))[1]) == 2


def test_the_factors_of_a_graph_cannot_be_modified() -> None:
    graph, u = matching()
    assert isinstance(graph.factors, tuple)
    with pytest.raises(AttributeError):
        graph.factors.append(Xor(u[0]))  # type: ignore[attr-defined]


def test_a_factor_without_additionals_has_no_value_of_them() -> None:
    graph, _ = matching()
    graph.solve()
    assert graph.additionals_of(graph.factors[0]).shape == (0,)


def test_counts_stay_integers_of_any_size() -> None:
    huge = [2**63, 10**400, 1e300, np.uint64(2**64 - 1), np.float32(1e30), np.inf]
    for number in huge[:-1]:
        read = whole_numbers("k", number)
        assert 2**53 <= int(read) <= 2**62
    assert int(whole_numbers("k", 2**53 + 1)) == 2**53 + 1
    assert int(whole_numbers("k", -(10**400))) == -(2**62)
    with pytest.raises(ValueError, match="k holds a value that is not finite"):
        whole_numbers("k", huge[-1])


@pytest.mark.parametrize(
    "numbers",
    [
        [2**63 - 1, -(2**63), 2**62 + 1],
        np.array([2**63 - 1, 5], dtype=np.uint64),
        np.array([2**62 + 1, -(2**63)], dtype=object),
        [[-(2.0**63), 2.0**62, 3.0]],
        2**63 - 1,
    ],
)
def test_integers_of_a_declaration_are_exact(numbers: Any) -> None:
    read = integer_array("edges", numbers)
    assert read.dtype == np.int64
    assert read.tolist() == np.asarray(numbers).tolist()


@pytest.mark.parametrize(
    "number", [2**63, -(2**63) - 1, 2**70, 2.0**63, 1e300, np.uint64(2**64 - 1), 1.5]
)
def test_integers_that_do_not_fit_are_refused(number: Any) -> None:
    for numbers in (number, [number], [[0, number]]):
        with pytest.raises(ValueError, match="edges holds .*; expected whole numbers that fit"):
            integer_array("edges", numbers)


def test_integers_are_numbers_and_as_many_in_every_row() -> None:
    with pytest.raises(TypeError, match=r"edges is \['x'\]; expected whole numbers"):
        integer_array("edges", ["x"])
    with pytest.raises(TypeError, match="edges: got a list that is not an array of numbers"):
        integer_array("edges", [[1], [2, 3]])


@pytest.mark.parametrize("budget", [2**63, 10**400, 1e300, np.uint64(2**64 - 1)])
def test_a_budget_beyond_the_row_is_the_row(budget: Any) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.9, 0.8, -1.0], [0.1, 0.2, 0.3]]))
    factor = graph.add(Budget(u, budget, lengths=[3, 2]))
    assert factor.budget.tolist() == [3, 2]
    graph.solve()
    np.testing.assert_array_equal(u.value, [[0.9, 0.8, 0.0], [0.1, 0.2, 0.3]])
    with pytest.raises(ValueError, match=re.escape("with force_budget, but it covers 3 variables")):
        Budget(u, budget, True)


def test_an_empty_batch_has_an_empty_list_of_lengths() -> None:
    graph = FactorGraph()
    factor = graph.add(Budget(graph.variable((0, 4)), [], lengths=[]))
    assert factor.lengths is not None
    assert (factor.lengths.shape, factor.lengths.dtype) == ((0, 1), np.int64)
    assert graph.solve().status.shape == (0,)
    with pytest.raises(ValueError, match=r"lengths has shape \(0,\); expected \(2,\)"):
        Budget(graph.variable((2, 4)), 1, lengths=[])


def broken_factor(**methods: Any) -> Any:
    sound = {"solve_map": lambda self, a, b: 0, "vertex": lambda self, y: (np.ones(4), [])}
    return type("Broken", (Factor,), sound | methods)


@pytest.mark.parametrize("answer", [None, np.ones(4), (np.ones(4),)])
def test_a_vertex_that_is_no_pair_is_named(answer: Any) -> None:
    graph = FactorGraph()
    graph.add(broken_factor(vertex=lambda self, y: answer)(graph.variable((2, 4))))
    with pytest.raises(TypeError, match="Broken.vertex returned .*; expected a pair of arrays"):
        graph.solve()


def test_a_type_that_does_not_call_its_base_class_is_an_error() -> None:
    factor = broken_factor(__init__=lambda self, u: None)(FactorGraph().variable(4))
    with pytest.raises(TypeError, match=r"the Broken has no variables; .* super\(\).__init__"):
        FactorGraph().add(factor)


def test_errors_describe_the_kind_of_a_value() -> None:
    kinds = {
        "an int": 3,
        "an ndarray": np.ones(2),
        "a list": [],
        "None": None,
        "the class Xor": Xor,
    }
    assert [kind_of(value) for value in kinds.values()] == list(kinds)


def test_invalid_keys_of_distributions_are_explained() -> None:
    graph, _ = matching()
    graph.solve()
    found = graph.structures(graph.factors[0])
    for key in (slice(0, 2), [0, 1], (slice(None),)):
        with pytest.raises(TypeError, match="selects . factors; expected the index of one"):
            found[key]  # type: ignore[index]
    for key in (99, "x", 1.5):
        with pytest.raises(IndexError):
            found[key]  # type: ignore[index]
    with pytest.raises(ValueError, match=r"pull_back: d_probabilities has shape \(2,\); expected"):
        found.pull_back(np.ones(2))
    with pytest.raises(TypeError, match="pull_back: d_probabilities is .x.; expected real"):
        found.pull_back("x")
    with pytest.raises(ValueError, match="push_forward: d_values has 2 numbers; expected 12"):
        found.push_forward(np.ones(2))
