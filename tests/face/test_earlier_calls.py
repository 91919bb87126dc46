"""Calls of earlier libraries on `PFactorGraph` work, or name their replacement."""

from __future__ import annotations

import pytest

from lpsmap import PFactorGraph


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
        ("branch_and_bound", r"use solve_exact_map_ad3\(\)"),
        ("eta", "use step_size"),
    ],
)
def test_earlier_options_name_their_replacements(option: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"{option} is an earlier option; {advice}"):
        PFactorGraph().solve(**{option: True})


def test_declared_factors_are_added() -> None:
    with pytest.raises(TypeError, match=r"Use graph\.add\("):
        PFactorGraph().declare_factor(object(), [])
