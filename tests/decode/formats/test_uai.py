"""Markov random fields in UAI files."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpsmap
from damages import check_damaged
from lpsmap_core import FactorGraph
from lpsmap_decode import (
    FileFormatError,
    NamedGraph,
    read_assignment,
    read_evidence,
    read_graph,
    read_network,
    write_assignment,
    write_graph,
)

GOOD = """MARKOV
3
2 3 2
4
1 0
2 0 1
3 2 1 0
1 2

2
 0.5 1.5
6
 1 2 3 4 0 6
12
 1 2 3 4 5 6 7 8 9 10 11 12
2
 1e-3 1
"""


def written(folder: Path, text: str, name: str = "model.uai") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@st.composite
def networks(draw):
    """Draw numbers of states, scopes, and tables of potentials."""
    n_states = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    scopes = draw(
        st.lists(st.lists(st.integers(0, len(n_states) - 1), unique=True, max_size=3), max_size=5)
    )
    potentials = st.one_of(st.just(0.0), st.floats(1e-30, 1e30))
    tables = []
    for scope in scopes:
        size = int(np.prod([n_states[v] for v in scope]))
        tables.append(draw(st.lists(potentials, min_size=size, max_size=size)))
    return n_states, scopes, tables


def text_of(n_states, scopes, tables, blank="\n"):
    """Write a network as a file, with words apart by any blanks."""
    words = ["MARKOV", len(n_states), *n_states, len(scopes)]
    for scope in scopes:
        words += [len(scope), *scope]
    for table in tables:
        words += [len(table), *map(repr, table)]
    return blank.join(map(str, words)) + blank


def score_of(graph, blocks, states):
    """Return the score of a choice of states, by the scores and tables of a graph."""
    on = np.concatenate([block.index[[s]] for block, s in zip(blocks, states, strict=True)])
    x = np.zeros(graph.n_variables)
    x[on] = 1.0
    total = graph.flat_scores()[on].sum()
    for factor in graph.factors:
        if type(factor).__name__ == "Xor":
            assert (x[factor.variables.index].sum(axis=-1) == 1).all()
            continue
        chosen = [x[block.index].argmax(axis=-1) for block in factor.blocks]
        total += factor.table[(np.arange(factor.n_factors), *chosen)].sum()
    return total


@given(networks(), st.sampled_from([" ", "\n", "\t ", "\r\n", " \n\n "]))
def test_a_graph_scores_as_the_product_of_its_potentials(tmp_path_factory, network, blank):
    n_states, scopes, tables = network
    path = written(tmp_path_factory.mktemp("uai"), text_of(n_states, scopes, tables, blank))
    found = read_network(path)
    assert found.n_states == n_states
    assert found.scopes == scopes
    named = read_graph(path)
    blocks = list(named.variables.values())
    assert [block.size for block in blocks] == n_states
    for states in itertools.product(*map(range, n_states)):
        expected = 0.0
        for scope, table in zip(scopes, tables, strict=True):
            place = 0
            for v in scope:
                place = place * n_states[v] + states[v]
            with np.errstate(divide="ignore"):
                expected += np.log(table[place])
        np.testing.assert_allclose(score_of(named.graph, blocks, states), expected, rtol=1e-9)


@given(networks())
def test_what_is_written_is_read(tmp_path_factory, network):
    """With its constants."""
    n_states = network[0]
    folder = tmp_path_factory.mktemp("uai")
    named = read_graph(written(folder, text_of(*network)))
    write_graph(named, folder / "again.uai")
    again = read_graph(folder / "again.uai")
    found = []
    for graph, variables in (named, again):
        blocks = list(variables.values())
        assert [block.size for block in blocks] == n_states
        choices = itertools.product(*map(range, n_states))
        found.append(np.array([score_of(graph, blocks, states) for states in choices]))
    assert (np.isneginf(found[0]) == np.isneginf(found[1])).all()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "scores", [[1.0, 1.0, -2.0], [-700.0, 0.0, 700.0], [1e5, 1e5 - 1, -np.inf], [-1e5, -1e5, -1e5]]
)
def test_scores_are_written_with_their_constant(tmp_path, scores):
    graph = FactorGraph()
    u = graph.variable_from([scores, [0.5, 0.0, -0.5]])
    graph.add(lpsmap.Xor(u))
    write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.uai")
    named = read_graph(tmp_path / "g.uai")
    expected, found = graph.solve_map(), named.graph.solve_map()
    np.testing.assert_allclose(found.objective.sum(), expected.objective.sum(), rtol=1e-9)
    values = [block.value for block in named.variables.values()]
    np.testing.assert_allclose(values, u.value, atol=1e-9)


def test_a_constant_that_no_table_can_hold_is_refused(tmp_path):
    graph = FactorGraph()
    u = graph.variable_from([1e9, 1e9])
    graph.add(lpsmap.Xor(u))
    with pytest.raises(
        FileFormatError, match=r"constant part of the scores is 1e\+09; .*Write .json instead"
    ):
        write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.uai")
    assert not list(tmp_path.iterdir())


def test_what_is_no_markov_random_field_is_refused(tmp_path):
    for make, words in (
        (lambda u: lpsmap.Or(u), "Or.* cannot be written as UAI; expected Dense or Xor"),
        (lambda u: lpsmap.Xor(~u), "Xor.* cannot be written as UAI"),
        (lambda u: lpsmap.Xor(u, lengths=[3, 2]), "Xor.* cannot be written as UAI"),
        (lambda u: lpsmap.Xor(u[0]), "blocks of states overlap, or leave variables out"),
        (lambda u: lpsmap.Dense([u[0], u[0]], 1e3 * np.eye(3)), "differ by more than 708"),
    ):
        graph = FactorGraph()
        u = graph.variable((2, 3))
        graph.add(make(u))
        if "708" in words:
            graph.add(lpsmap.Xor(u[1]))
        with pytest.raises(FileFormatError, match=words):
            write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.uai")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("last", [2.0, 3.0])
def test_a_table_of_all_factors_is_stored_once(tmp_path, last):
    scopes, tables = [[0, 1], [2, 1]], [[1.0, 2.0, 3.0, 2.0], [1.0, 2.0, 3.0, last]]
    graph = read_graph(written(tmp_path, text_of([2, 2, 2], scopes, tables))).graph
    (factor,) = graph.factors
    np.testing.assert_allclose(factor.table, np.log(tables).reshape(2, 2, 2))
    assert (factor.table.strides[0] == 0) == (last == 2.0)


def test_it_solves(tmp_path):
    named = read_graph(written(tmp_path, GOOD))
    assert named.graph.solve().ok
    for name, k in (("x0", 2), ("x1", 3), ("x2", 2)):
        assert named.variables[name].shape == (k,)
        np.testing.assert_allclose(named.variables[name].value.sum(), 1.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("MARKOV", "MARKOF", r"line 1, column 1: got 'MARKOF'; expected MARKOV"),
        ("2 3 2", "2 0 2", r"line 3, column 3: got 0; expected the number of states of variable 1"),
        ("2 3 2", "2 3 x", r"line 3, column 5: got 'x'; expected the number of states of v"),
        ("2 0 1", "2 0 3", r"line 6, column 5: got 3; expected a variable of factor 1, from 0 to"),
        ("2 0 1", "2 0 0", r"line 6, column 5: variable 0 occurs twice in factor 1"),
        ("\n6\n", "\n5\n", r"line 12, column 1: got 5 as the number of entries .* expected 6"),
        (" 1e-3 1", " 1e-3", r"line 18, column 1: the file ends; expected an entry of the table"),
        (" 1e-3 1", " 1e-3 -1", r"line 17, column 7: got '-1'; expected .* a finite number of 0"),
        (" 1e-3 1", " 1e-3 1 1", r"line 17, column 9: got '1'; expected the end of the file"),
        ("\n4\n", "\n1000000000000\n", "1000000000000 as the number of factors is more than a"),
        ("2 3 2", "2 1000000 2", "1000000 as the number of states of variable 1 is more than a"),
        ("0.5 1.5", "0.5 1e999", "got '1e999'"),
        ("0.5 1.5", "0.5 nan", "got 'nan'"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, old, new, words):
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=words):
        read_graph(path)


@pytest.mark.parametrize("first", ["markov", "Markov", "bayes"])
def test_the_first_word_may_be_in_lower_case(tmp_path, first):
    named = read_graph(written(tmp_path, GOOD.replace("MARKOV", first, 1)))
    expected = read_graph(written(tmp_path, GOOD)).graph.flat_scores()
    np.testing.assert_array_equal(named.graph.flat_scores(), expected)


def test_many_small_variables_promise_no_huge_table(tmp_path):
    n = 400
    text = f"MARKOV {n} {'2 ' * n} 1 {n} {' '.join(map(str, range(n)))} 4 1 1 1 1"
    with pytest.raises(FileFormatError, match="as the number of entries of the table of factor 0"):
        read_graph(written(tmp_path, text))


def test_damaged_files(tmp_path):
    check_damaged(tmp_path, ".uai", GOOD)


def test_evidence(tmp_path):
    named = read_graph(path := written(tmp_path, GOOD))
    given = written(tmp_path, "2 1 2 0 0\n", "model.uai.evid")
    graph = named.graph.condition(read_evidence(given, named, path))
    assert graph.graph.solve().ok
    np.testing.assert_array_equal(graph.of(named.variables["x1"]).value, [0, 0, 1])
    np.testing.assert_array_equal(graph.of(named.variables["x0"]).value, [1, 0])
    for text, words in (
        ("1 3 0", "got 3; expected a variable, from 0 to 2"),
        ("1 0 2", "got 2; expected a state of variable 0, from 0 to 1"),
        ("1 0", "the file ends"),
        ("2\n1 0 0\n1 1 0 0", "line 1, column 1: got 2 samples.*expected one sample"),
        ("1 0 0 0", "expected the end"),
        ("1000000000000", "is more than a file"),
    ):
        with pytest.raises(FileFormatError, match=words):
            read_evidence(written(tmp_path, text, "e.evid"), named, path)


def test_evidence_may_begin_with_one_sample(tmp_path):
    named = read_graph(path := written(tmp_path, GOOD))
    expected = read_evidence(written(tmp_path, "2 1 2 0 0\n", "plain.evid"), named, path)
    found = read_evidence(written(tmp_path, "1\n2 1 2 0 0\n", "model.uai.evid"), named, path)
    for (_, states), (_, others) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(states, others)
    assert read_evidence(written(tmp_path, "1\n0\n", "none.evid"), named, path) == []


def test_assignments(tmp_path):
    named = read_graph(written(tmp_path, GOOD))
    named.graph.solve()
    path = tmp_path / "model.uai.MAP"
    write_assignment(path, list(named.variables.values()))
    states = read_assignment(path, [2, 3, 2])
    expected = [int(block.value.argmax()) for block in named.variables.values()]
    assert states.tolist() == expected
    for text, words in (
        ("MAP 2 0 0", "got 2; expected the number of variables, from 3 to 3"),
        ("MPE 3 0 0 0", "got 'MPE'; expected MAP"),
        ("MAP 3 0 3 0", "got 3; expected a state of variable 1, from 0 to 2"),
    ):
        with pytest.raises(FileFormatError, match=words):
            read_assignment(written(tmp_path, text, "wrong.MAP"), [2, 3, 2])
