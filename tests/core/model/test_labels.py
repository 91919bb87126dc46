"""Names of factors, as messages about contradictions use them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from lpsmap import FactorGraph, Xor
from lpsmap_core.api import label_of


def test_a_name_is_followed_by_the_index_or_has_it_in_its_fields() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 3, 4))
    plain, fields = graph.add(Xor(u), name="cell"), graph.add(Xor(u), name="row {}, digit {}")
    listed = graph.add(Xor(u[0]), name=["first", "second", "{third}"])
    single, none = graph.add(Xor(u[0, 0]), name="top"), graph.add(Xor(u))
    names = [label_of(factor, 4, graph.factors) for factor in (plain, fields, none)]
    assert names == ["cell 1, 1", "row 1, digit 1", "Xor 1, 1 of factors[4]"]
    assert [label_of(listed, i, graph.factors) for i in range(3)] == ["first", "second", "{third}"]
    assert label_of(single, 0, graph.factors) == "top"


def test_names_are_pickled() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable((2, 3))), name="row")
    again = pickle.loads(pickle.dumps(graph))
    assert label_of(again.factors[0], 1, again.factors) == "row 1"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        (3, TypeError, "name: got an? int.*expected text"),
        ([1, 2], TypeError, "sequence with a text for each factor"),
        ("row {}, digit {}", ValueError, r"expected no fields, or 1, \{\}: one for each"),
        ("row {1}", ValueError, "expected no fields, or 1"),
        ("row {first}", ValueError, "Double a brace"),
        ("row {", ValueError, "Double a brace"),
        (["one"], ValueError, "name has 1 texts; expected 2"),
    ],
)
def test_bad_names_are_refused(name: Any, error: type[Exception], words: str) -> None:
    graph = FactorGraph()
    factor = Xor(graph.variable((2, 3)))
    with pytest.raises(error, match=words):
        graph.add(factor, name=name)
    assert not graph.factors


def test_a_name_has_a_field_for_every_batch_axis() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 3, 4))
    with pytest.raises(ValueError, match=r"'lesson \{\}'; expected no fields, or 2, \{\} \{\}"):
        graph.add(Xor(u), name="lesson {}")
    factor = graph.add(Xor(u), name="{1:02d} of lesson {0}")
    assert label_of(factor, 4, graph.factors) == "01 of lesson 1"
