"""Calls of earlier libraries on `PFactorGraph` work, or name their replacement."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Imply, Or, OrOut, Pair, PFactorGraph, Xor


def test_scores_of_multi_variables_are_read_and_set_by_state() -> None:
    graph = PFactorGraph()
    states = graph.create_multi_variable(3)
    states.set_log_potentials([1.0, 2.0, 3.0])
    states.get_state(0).set_log_potential(5.0)
    states[1] = 4.0
    assert [states[k] for k in range(3)] == [5.0, 4.0, 3.0]
    assert states.get_log_potential(2) == states.get_state(2).get_log_potential() == 3.0


def test_the_degree_of_a_variable_is_its_number_of_factors() -> None:
    graph = PFactorGraph()
    a, b, c = (graph.create_binary_variable() for _ in range(3))
    graph.create_factor_logic("OR", [a, b], negated=[True, False])
    graph.create_factor_pair([b, c], 1.0)
    assert [x.get_degree() for x in (a, b, c)] == [1, 2, 1]


@pytest.mark.parametrize(
    "option, advice",
    [
        ("autodetect_acyclic", "omit it"),
        ("branch_and_bound", r"use solve_map\(exact=True\)"),
        ("eta", "use step_size"),
    ],
)
@pytest.mark.parametrize("graph", [FactorGraph, PFactorGraph])
def test_earlier_options_name_their_replacements(graph: Any, option: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"{option} is an option of earlier libraries; {advice}"):
        graph().solve(**{option: True})


def test_earlier_options_of_graphs_of_tensors_name_their_replacements() -> None:
    graph = pytest.importorskip("lpsmap_torch").TorchFactorGraph()
    with pytest.raises(TypeError, match="autodetect_acyclic is an option of earlier libraries"):
        graph.solve(autodetect_acyclic=True)


def test_signatures_show_the_options() -> None:
    """They are those of this library, although earlier ones are answered."""
    options = inspect.signature(PFactorGraph.solve).parameters
    assert "step_size" in options and "eta" not in options
    assert list(inspect.signature(Or).parameters) == ["variables", "axis", "mask", "lengths"]


@pytest.mark.parametrize("factor", [Xor, Or, AtMostOne, Imply, OrOut])
def test_negated_variables_name_their_replacement(factor: Any) -> None:
    u = FactorGraph().variable(2)
    with pytest.raises(TypeError, match=r"negate the variables, as in Or\(u \^ negated\)"):
        factor(u, negated=[True, False])
    factor(u ^ [True, False])


def test_negated_variables_of_factors_with_parameters_name_their_replacement() -> None:
    u = FactorGraph().variable(2)
    with pytest.raises(TypeError, match="negate the variables"):
        Budget(u, 1, negated=[True, False])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="negate the variables"):
        Pair(u[0], u[1], 1.0, negated=[True, False])  # type: ignore[call-arg]


def test_a_solution_is_no_tuple() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1.0, 0.0])))
    with pytest.raises(TypeError, match=r"expected solution\.objective, solution\.values"):
        _value, *_ = graph.solve()


def test_star_imports_the_graph_of_tensors_if_torch_is_there() -> None:
    pytest.importorskip("lpsmap_torch")
    lines = "import torch; from lpsmap import *; TorchFactorGraph; assert 'plot' not in globals()"
    subprocess.run([sys.executable, "-c", lines], check=True)


def test_declared_factors_are_added() -> None:
    with pytest.raises(TypeError, match=r"Use graph\.add\("):
        PFactorGraph().declare_factor(object(), [])
