"""Factor graphs in AD3's text format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpsmap
from damages import check_damaged
from lpsmap_core import FactorGraph
from lpsmap_core.api import declared_variables
from lpsmap_decode import FileFormatError, NamedGraph, read_graph, write_graph

GOOD = """7
9
0.75
1.25
-0.5
0
1e-1
0.3
-1
XOR 3 1 2 -3
OR 2 3 -4
ATMOSTONE 2 5 6
OROUT 3 1 2 7
PAIR 2 1 -2 -1.05
BUDGET 4 1 2 3 4 2
KNAPSACK 3 4 5 6 1.5 2 0.5 2.5
DENSE 4 1 2 3 4 2 2 2 0.1 0.2 0.3 0.4
SEQUENCE 5 1 2 3 4 -5 2 2 3 1 2 .1 .2 .3 .4 .5 .6 7 8 9
"""

TYPES = {
    **{"XOR": "Xor", "OR": "Or", "ATMOSTONE": "AtMostOne", "OROUT": "OrOut", "PAIR": "Pair"},
    **{"XOROUT": "XorOut", "ANDOUT": "AndOut", "IMPLY": "Imply", "BUDGET": "Budget"},
    **{"KNAPSACK": "Knapsack", "DENSE": "Dense"},
}


def written(folder: Path, text: str) -> Path:
    path = folder / "model.fg"
    path.write_text(text)
    return path


numbers = st.floats(-1e6, 1e6)


@st.composite
def graphs(draw):
    """Draw log-potentials, and factors: a type, literals, and numbers behind them."""
    n = draw(st.integers(1, 6))
    literal = st.integers(1, n).flatmap(lambda v: st.sampled_from([v, -v]))
    factors = []
    for kind in draw(st.lists(st.sampled_from(sorted(TYPES)), max_size=6)):
        arity = {"PAIR": 2, "DENSE": 5}.get(kind) or draw(st.integers(1, 4))
        literals = draw(st.lists(literal, min_size=arity, max_size=arity))
        behind = ()
        if kind == "PAIR":
            behind = (draw(numbers),)
        elif kind == "BUDGET":
            behind = (draw(st.integers(0, arity)),)
        elif kind == "KNAPSACK":
            behind = tuple(draw(st.floats(0, 10)) for _ in range(arity + 1))
        elif kind == "DENSE":
            behind = (2, 2, 3, *(draw(numbers) for _ in range(6)))
        factors.append((kind, tuple(literals), behind))
    return [draw(numbers) for _ in range(n)], factors


def declared(graph):
    """Return the factors of a graph as a file has them, by what their declarations hold."""
    for factor in graph.factors:
        view = declared_variables(factor)
        literals = np.where(view.negated, -1 - view.index, view.index + 1)
        for i, row in enumerate(literals.tolist()):
            behind = ()
            if isinstance(factor, lpsmap.Pair):
                behind = (float(factor.scores[i]),)
            elif isinstance(factor, lpsmap.Budget):
                behind = (int(factor.budget[i]),)
            elif isinstance(factor, lpsmap.Knapsack):
                behind = (*factor.costs[i].tolist(), float(factor.budget[i]))
            elif isinstance(factor, lpsmap.Dense):
                sizes = factor.n_states.tolist()
                behind = (len(sizes), *sizes, *factor.table[i].ravel().tolist())
            yield type(factor).__name__, tuple(row), behind


@given(graphs())
def test_a_graph_has_the_factors_of_its_file(tmp_path_factory, model):
    scores, factors = model
    lines = [str(len(scores)), str(len(factors)), *map(repr, scores)]
    for kind, literals, behind in factors:
        words = [kind, len(literals), *literals, *map(repr, behind)]
        lines.append(" ".join(map(str, words)))
    named = read_graph(written(tmp_path_factory.mktemp("fg"), "\n".join(lines)))
    np.testing.assert_array_equal(named.graph.flat_scores(), scores)
    expected = Counter((TYPES[kind], literals, behind) for kind, literals, behind in factors)
    assert Counter(declared(named.graph)) == expected


@given(graphs())
def test_what_is_written_is_read(tmp_path_factory, model):
    scores, factors = model
    folder = tmp_path_factory.mktemp("fg")
    lines = [str(len(scores)), str(len(factors)), *map(repr, scores)]
    lines += [" ".join(map(str, [k, len(x), *x, *map(repr, more)])) for k, x, more in factors]
    named = read_graph(written(folder, "\n".join(lines)))
    write_graph(named, folder / "again.fg")
    again = read_graph(folder / "again.fg")
    np.testing.assert_array_equal(again.graph.flat_scores(), scores)
    assert Counter(declared(again.graph)) == Counter(declared(named.graph))


def test_nand_lengths_and_rescored_pairs_are_written(tmp_path):
    graph = FactorGraph()
    u = graph.variable((2, 3))
    graph.add(lpsmap.Nand(u, lengths=[3, 2]))
    pair = graph.add(lpsmap.Pair(u[0, 0], ~u[1, 0], 0.5))
    graph.rescore(pair, 1.5)
    write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.fg")
    lines = (tmp_path / "g.fg").read_text().splitlines()
    assert lines[8:] == ["OR 3 -1 -2 -3", "OR 2 -4 -5", "PAIR 2 1 -4 1.5"]


def test_potts_is_written_as_tables(tmp_path):
    graph = lpsmap.FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(4, 3)))
    graph.add(lpsmap.Potts(u[:-1], u[1:], [0.5, -1.5, 2.0]))
    write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.fg")
    again = read_graph(tmp_path / "g.fg").graph
    assert {type(factor) for factor in again.factors} == {lpsmap.Dense}
    sums = [x.gibbs().log_partition for x in (graph, again)]
    np.testing.assert_allclose(*sums, rtol=1e-14)


def test_what_the_format_does_not_have_is_refused(tmp_path):
    for make, words in (
        (lambda u: lpsmap.Budget(u, 1, True), "Budget.* cannot be written for AD3"),
        (lambda u: lpsmap.Sequence(u, np.zeros((3, 3))), "Sequence.* cannot be written for AD3"),
        (lambda u: lpsmap.Pair(u[0], u[1], -np.inf), "a score is not finite"),
    ):
        graph = FactorGraph()
        u = graph.variable((2, 3))
        graph.add(make(u))
        with pytest.raises(FileFormatError, match=words):
            write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.fg")
    assert not list(tmp_path.iterdir())


def test_equal_factors_are_one_declaration(tmp_path):
    lines = ["4", "100", *["0.5"] * 4, *["XOR 2 1 -2"] * 50, *["PAIR 2 3 4 1.5"] * 50]
    graph = read_graph(written(tmp_path, "\n".join(lines))).graph
    assert [factor.n_factors for factor in graph.factors] == [50, 50]


def test_sequences_of_uneven_numbers_of_states(tmp_path):
    """A file's sequence is that of the best path, by enumeration of its log-potentials."""
    rng = np.random.default_rng(0)
    sizes = [2, 3, 1, 2]
    scores, first, last = 100 * rng.normal(size=8), rng.normal(size=2), rng.normal(size=2)
    steps = [100 * rng.normal(size=(a, b)) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    behind = np.concatenate([first, *(s.ravel() for s in steps), last])
    lines = ["8", "1", *map(repr, scores.tolist())]
    words = ["SEQUENCE", 8, *range(1, 9), len(sizes), *sizes, *behind.tolist()]
    lines.append(" ".join(map(str, words)))
    named = read_graph(written(tmp_path, "\n".join(lines)))
    named.graph.solve()
    begin = np.cumsum([0, *sizes])
    best, path = -np.inf, ()
    for states in np.ndindex(*sizes):
        total = first[states[0]] + last[states[-1]]
        total += sum(scores[begin[t] + s] for t, s in enumerate(states))
        total += sum(
            steps[t][a, b] for t, (a, b) in enumerate(zip(states[:-1], states[1:], strict=True))
        )
        if total > best:
            best, path = total, states
    expected = np.zeros(8)
    expected[begin[:-1] + np.array(path)] = 1.0
    np.testing.assert_allclose(named.variables["u"].value, expected, atol=1e-9)


def test_it_solves_as_the_graph_that_python_would_build(tmp_path):
    text = "3\n2\n0.75\n1.25\n-0.5\nOR 3 1 -2 3\nPAIR 2 1 2 -1.05\n"
    named = read_graph(written(tmp_path, text))
    named.graph.solve()
    graph = FactorGraph()
    u = graph.variable_from([0.75, 1.25, -0.5])
    graph.add(lpsmap.Or([u[0], ~u[1], u[2]]))
    graph.add(lpsmap.Pair(u[0], u[1], -1.05))
    graph.solve()
    np.testing.assert_array_equal(named.variables["u"].value, u.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("XOR 3", "XNOR 3", "line 10, column 1: got 'XNOR'; expected the type of a factor, one of"),
        (
            "XOR 3",
            "GRANDPARENT_HEAD_AUTOMATON 3",
            "factors of type GRANDPARENT_HEAD_AUTOMATON are not supported; expected one of",
        ),
        ("1 2 -3", "1 2 -8", "line 10, column 11: got -8; expected a variable, negated or not"),
        ("1 2 -3", "1 0 -3", "got 0; expected a variable, counted from 1"),
        ("PAIR 2 1 -2", "PAIR 3 1 2 3", "a PAIR has 3 variables; expected 2"),
        ("2 2 2 0.1", "2 2 3 0.1", "multi-valued variables have 5 states; expected 4"),
        ("2 2 3 1 2", "2 2 2 1 2", "positions have 4 states; expected 5"),
        ("1.5 2 0.5", "1.5 -2 0.5", "got '-2'; expected a cost, a finite number of 0 or more"),
        ("3 4 2\n", "3 4 -2\n", "got -2; expected the budget"),
        ("XOR 3 1 2 -3", "XOR 0", "got 0; expected|more than|type of a factor|from 1 to"),
        ("7 8 9\n", "7 8\n", "the file ends; expected the log-potential of a transition"),
        ("7\n9\n", "7\n8\n", "line 18, column 1: got one more factor; expected 8"),
        ("7\n9\n", "7\n10\n", "the file ends; expected the type of a factor"),
        ("7\n9\n", "1000000000000\n9\n", "line 1, column 1: 1000000000000 as the number of v"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, old, new, words):
    assert old in GOOD
    with pytest.raises(FileFormatError, match=words):
        read_graph(written(tmp_path, GOOD.replace(old, new, 1)))


def test_words_behind_the_last_factor_are_left_out(tmp_path):
    path = written(tmp_path, GOOD.replace("7 8 9\n", "7 8 9\nand more\n", 1))
    with pytest.warns(UserWarning, match="line 19, column 1: got 'and'; expected the end of the f"):
        again = read_graph(path).graph
    assert len(again.factors) == len(read_graph(written(tmp_path, GOOD)).graph.factors)


def test_damaged_files(tmp_path):
    check_damaged(tmp_path, ".fg", GOOD)
